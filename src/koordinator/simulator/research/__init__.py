"""Experiments on a public GPU trace, independent of clusters and workload files.

``openb``           files, nodes, pods and orders of arrival of the trace
``bound``           proven upper bounds of the allocation for any placement
"""
