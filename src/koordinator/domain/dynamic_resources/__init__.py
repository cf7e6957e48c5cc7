"""Dynamic resource allocation: allocation of devices to claims on a node.

``selectors``   CEL expressions over a device
``inventory``   ResourceSlices as pools that a node can access
``requests``    requests of claims with their device classes
``shares``      counters and capacities that several allocations share
``allocator``   depth-first search for an allocation
``allocation``  status of allocated claims, and claims of PodGroups
"""
