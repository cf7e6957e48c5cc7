"""CPUs: where they sit on a node, who holds which, which ones a pod gets.

A set of CPUs is a Python integer with a bit per CPU.  Set operations, counting and "the lowest n"
cost the same for 8 CPUs and for 256, and a choice is a few dozen of them.  What depends on the
hardware alone is in a ``CpuLayout``, interned: 5,000 equal nodes share one.  What changes is in a
``CpuLedger`` per node, some masks.  So a table of answers may be keyed by layout and free mask, and
an array over nodes needs three counts per NUMA node: CPUs that are free, in whole cores, or one per
core (``scheduler.rules.numa.rows``).
"""
