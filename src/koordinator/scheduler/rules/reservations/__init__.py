"""Reservations: who may use one, and what becomes of it.

``reserve_pod`` the pod that stands for a reservation while it is scheduled and holds its amounts
``offer``       what a reservation that is available offers, and on which terms
``owners``      whose pods it is for
``match``       whether a pod may use it: names, taints, terms, exact amounts
``fit``         whether a pod fits into what is left of it
``remainder``   what its users have left of devices, CPUs and NUMA nodes
``message``     what a pod that fits nowhere is told of reservations
``lifecycle``   status, expiry and the end
"""
