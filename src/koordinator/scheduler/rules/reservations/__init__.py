"""Reservations: owners, matching, fit and lifecycle.

``offer``       amounts and terms of an available reservation
``owners``      owner matching
``match``       usability by a pod: names, taints, terms, exact amounts
``fit``         fit into the remaining amounts
``remainder``   remaining devices, CPUs and NUMA amounts
``message``     summary of reservations for an unschedulable pod
``lifecycle``   status, expiry and termination
"""
