"""What cgroups of pods have to be, from what the scheduler and the manager promised.

The original's runtime hooks change a container before it starts; here a reconciler applies the same
rules to the containers that run.
"""
