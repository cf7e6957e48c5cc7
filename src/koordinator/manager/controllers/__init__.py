"""Controllers: what should be written so that a node is as it should be.

Each is a function of objects, configuration and time; none remembers or does anything.

``node_metric``    a NodeMetric per node, and what koordlet has to measure
``node_slo``       a NodeSLO per node
``quota_profile``  a root quota for the nodes of a profile
``colocation_profile``  what a profile makes of pods that exist
"""
