"""Services and batch pods that share nodes, over virtual time.

``usage``        what pods use of what they ask for, at every time
``fleet``        who is on which node, and what that adds up to
``suppression``  the node agent's CPU suppress, of all nodes at once
``reporting``    the reports that the node agents write
``evicting``     the node agent's evictions, of the nodes that need them
``tally``        what is counted for the report
``loop``         one step after the other: use, hold back, evict, report, publish
"""
