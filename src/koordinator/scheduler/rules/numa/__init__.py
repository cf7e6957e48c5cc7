"""NUMA nodes: the set that a pod gets, and the amounts from each.

One node, exactly (microseconds): a ``NumaNode`` combines its topology (``read_topology``) and a
``NumaLedger`` of its pods' allocations; a ``NumaTrial`` evaluates one pod on it. ``resource_hints``
returns the sufficient sets of NUMA nodes, plugins with devices add theirs, ``align`` finds the set
that satisfies all, ``NumaTrial.allocate`` returns the ``NumaAllocation`` that is written with the
bind and from which ``read_allocation`` rebuilds the ledger.

Many nodes (5,000 in a few milliseconds): ``NumaRows`` keeps the inputs as arrays, a row per node,
rewritten when its ledger changes. ``fits_of``, ``align_rows`` and ``score_rows`` give the same
results for all rows of a pod class, so a scheduler filters and scores rows and runs a trial only on
the chosen node. CPUs are chosen only there; elsewhere counting suffices, because a choice never
fails where the count is sufficient. Reservations and victims are evaluated one node at a time, with
``Reusable``.
"""
