"""The manager: what nodes give to batch and mid pods, how they treat them, and what pods become.

``configuration``  the ConfigMap slo-controller-config: read, checked, resolved for a node
``node_resources`` batch, mid and device resources of nodes
``queue_units``    jobs that wait in the queues of koord-queue
``controllers``    objects in, writes out: pure functions over what is mirrored
``admission``      what becomes of a request: pure functions of objects and ``Lookup``
``mirror``         what exists, as the watches tell it
``writes``         creations, patches and deletions as data
``app``            the only loop
"""
