"""Reservations: owners, matching, fit and lifecycle.

``offer``      amounts and terms of an available reservation
``match``      usability by a pod: names, taints, terms, exact amounts
``remainder``  remaining devices, CPUs and NUMA amounts
``lifecycle``  status, expiry and termination
"""
