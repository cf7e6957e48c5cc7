"""Cgroup files and directories of the kubelet's hierarchy.  No I/O."""
