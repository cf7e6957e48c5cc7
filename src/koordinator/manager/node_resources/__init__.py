"""Batch, mid and device resources of a node, from a NodeMetric to the patch of the Node.

Amounts are exact (nanos) and are rounded in the places and in the way of the original.

``node``         a node, its pods and their usage as the formulas read them
``batch``        batch resources of a node and of its NUMA nodes
``mid``          mid resources
``ratios``       CPU normalization, and nodes that show more than they have
``calculation``  resources that a node should show, of devices too
``preparation``  the node with these resources
``reconciler``   the patches, if the difference is large enough

Source: koordinator pkg/slo-controller/noderesource.
"""
