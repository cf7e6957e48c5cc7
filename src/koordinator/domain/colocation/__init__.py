"""What is left of a node for batch and mid pods, in the original's own arithmetic.

Amounts are exact (nanos); what is rounded is rounded where the original rounds it, in its way.

``amounts``       CPU and memory together
``strategy``      how much of what is idle is given away
``node``          a node, its pods and what they use, as the arithmetic sees them
``batch``, ``zones``  batch resources of a node, and of its NUMA nodes
``mid``           mid resources
``device_sums``   resources of GPUs and RDMA cards
``normalization`` what a CPU is worth
``amplification`` nodes that show more than they have
``difference``    whether a change is worth a write
"""
