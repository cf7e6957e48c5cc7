"""Whole GPUs and shares of GPUs: placement, fragmentation and prices.

``mix``            expected kinds of pods, as arrays
``options``        placements of a pod of each kind on a node
``expectation``    expected mix of pods in a configuration
``fragmentation``  GPU that no expected pod can use
``holes``          combinations of free shares, and their value
``price``          value of the free room of a node, before and after an allocation
``request``        GPU request of a pod
"""
