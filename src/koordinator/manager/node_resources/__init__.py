"""Batch, mid and device resources of a node, from a NodeMetric to the patch of the Node.

Amounts are exact (nanos) and rounded where and how the original rounds them.

``node``         a node, its pods and their usage, as input of the formulas
``batch``        batch resources of a node and of its NUMA nodes
``ratios``       CPU normalization and resource amplification
``calculation``  resources that a node should publish, including mid resources and devices
``reconciler``   patches of nodes whose resources differ enough

Source: koordinator pkg/slo-controller/noderesource.
"""
