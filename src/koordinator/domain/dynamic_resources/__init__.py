"""Dynamic resource allocation: which devices a claim gets on a node.

``versions``    semantic versions, as attributes of devices have them
``selectors``   expressions over a device
``inventory``   ResourceSlices as pools that a node reaches
``requests``    what claims ask for, with their classes looked up
``constraints`` what devices of one claim must have in common, or not
``shares``      counters and capacities that several allocations take from
``allocator``   the search
``allocation``  what is written about a result
"""
