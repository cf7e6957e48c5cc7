"""Whole GPUs and shares of GPUs: placement, fragmentation and prices.

``mix``      expected kinds of pods, as arrays
``options``  placements of a pod of each kind on a node; GPU request of a pod
``price``    value of the free room of a node, before and after an allocation
"""
