"""NUMA nodes: which of them a pod gets, and how much of each.

One node, exactly (microseconds): a ``NumaNode`` is the facts of its topology (``read_topology``)
and a ``NumaLedger`` of what its pods hold; a ``NumaTrial`` puts one pod on it.  ``resource_hints``
says which sets of NUMA nodes have enough, plugins with devices add theirs, ``align`` finds the set
that suits all, ``NumaTrial.allocate`` gives the ``NumaAllocation`` that is written with the bind
and from which ``read_allocation`` rebuilds the ledger.

Many nodes (5,000 in a few milliseconds): ``NumaRows`` keeps what those answers depend on as arrays,
a row per node, rewritten when its ledger changes.  ``fits_of``, ``align_rows`` and ``score_rows``
give the same answers for all rows of a pod class; so a scheduler filters and scores rows, and puts
a pod on trial on the one node that it has chosen.  Only there, CPUs are chosen; for the
other questions it is enough to count them, because a choice never fails where the count suffices.
Reservations and victims are asked one node at a time, with ``Reusable``.
"""
