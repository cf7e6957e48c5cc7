"""Cgroup settings of pods that follow from decisions of the scheduler and the manager.

The original's runtime hooks change a container before it starts; here a reconciler also applies the
same rules to running containers.
"""
