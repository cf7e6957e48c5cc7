"""Whole GPUs and shares of GPUs: what fits on a node, what is stranded, what an allocation costs.

``mix``            kinds of pods that are expected, as arrays
``options``        the ways in which a pod of each kind fits on a node
``expectation``    the mix that a cluster shows
``fragmentation``  GPU that no expected pod can use
``holes``          combinations of free shares, and their value
``price``          value of the free room of a node, before and after an allocation
``request``        the GPUs that a pod requests
"""
