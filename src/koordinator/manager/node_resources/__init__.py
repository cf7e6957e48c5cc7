"""Batch, mid and device resources of a node, from a NodeMetric to the patch of the Node.

Amounts are exact (nanos) and are rounded in the places and in the way of the original.

``node``           a node, its pods and their usage as the formulas read them
``amounts``        CPU and memory together
``batch``, ``zones``  batch resources of a node and of its NUMA nodes
``mid``            mid resources
``device_sums``    resources of GPUs and RDMA cards
``normalization``  worth of a CPU
``amplification``  nodes that show more than they have
``difference``     smallest change that is written
``calculation``    resources that a node should show
``preparation``    the node with these resources
``reconciler``     the patches, if the difference is large enough

Source: koordinator pkg/slo-controller/noderesource.
"""
