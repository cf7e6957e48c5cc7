"""Controllers: pure functions from objects, configuration and time to writes.

``node_metric``         a NodeMetric per node, with the metrics that koordlet collects
``node_slo``            a NodeSLO per node
``quota_profile``       a root quota for the nodes of a profile
``colocation_profile``  colocation profiles of existing pods
"""
