"""Reservations: owners, matching, fit and lifecycle.

``offer``      amounts and terms of an available reservation, and what its users leave
``match``      usability by a pod: names, taints, terms, exact amounts
``lifecycle``  status, expiry and termination
"""
