"""Experiments on a public GPU trace, independent of clusters and workload files.

``openb``           files, nodes, pods and orders of arrival of the trace
``openb_topology``  assumed GPU partitions of the trace's nodes
``openb_replay``    replay of all arrivals with the real scheduler and a GPU policy
``bound``           proven upper bound of the allocation for any placement
"""
