"""Services and batch pods that share nodes, over virtual time.

``fleet``       who is on which node, and what that adds up to
``objects``     what a manager's cluster has, and one without
``thresholds``  what the NodeSLOs say
``suppression`` the node agent's CPU suppress, of all nodes at once
``reporters``   the reports that the node agents write
``evictors``    the node agent's evictions, of the nodes that need them
``tally``       what is counted for the report
``loop``        one step after the other: use, hold back, evict, report, publish
"""
