"""Rules that only the scheduler needs, without I/O and independent of its state.

``numa``, ``cpus``, ``load``, ``reservations``, ``job_queues`` and ``volumes`` are one subject each;
the other modules are kernels and formulas that several plugins share.
"""
