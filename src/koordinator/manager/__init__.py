"""The manager: controllers of node resources, NodeSLOs, quotas and queues, and admission webhooks.

``configuration``  the ConfigMap slo-controller-config: read, checked, resolved per node
``node_resources`` batch, mid and device resources of nodes
``queue_units``    jobs that wait in the queues of koord-queue
``controllers``    pure functions from mirrored objects to writes
``admission``      webhooks as pure functions of the request and ``Lookup``
``mirror``         objects as last seen by the watches
``writes``         creations, patches and deletions as data
``app``            the reconcile loop
"""
