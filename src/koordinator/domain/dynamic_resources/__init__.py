"""Dynamic resource allocation: allocation of devices to claims on a node.

``versions``    semantic versions, as device attributes use them
``selectors``   CEL expressions over a device
``inventory``   ResourceSlices as pools that a node can access
``requests``    requests of claims with their device classes
``constraints`` attribute constraints between devices of one claim
``shares``      counters and capacities that several allocations share
``allocator``   depth-first search for an allocation
``allocation``  status of allocated claims
"""
