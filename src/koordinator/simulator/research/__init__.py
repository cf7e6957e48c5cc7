"""Experiments on a public trace; nothing that runs on a cluster or a described workload needs them.

``openb``           the GPU trace: its files, its nodes and pods, and orders of arrival
``openb_topology``  GPU partitions for nodes of the trace, which says nothing of them
``openb_replay``    every arrival through the real scheduler, by one of the GPU policies
``bound``           what no placement of these arrivals can exceed, proven
"""
