"""The descheduler: finds pods that would be better off elsewhere, and has them moved.

It knows nothing of the scheduler: both meet in pods, nodes and Reservations.
"""
