"""CPU topology of a node, exclusive CPUs of pods, and the choice of CPUs.

A set of CPUs is a Python integer with a bit per CPU.  Set operations, counting and "the lowest n"
cost the same for 8 CPUs and for 256, and a choice takes a few dozen of them.  The hardware is a
``CpuLayout``, interned: 5,000 equal nodes share one.  Mutable state is a ``CpuLedger`` per node, a
few masks.  So results can be cached by layout and free mask, and an array over nodes needs three
counts per NUMA node: CPUs that are free, in whole cores, or one per core
(``scheduler.rules.numa.rows``).
"""
