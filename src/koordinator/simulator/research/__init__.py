"""Experiments on a public GPU trace, independent of clusters and workload files.

``openb``           files, nodes, pods and orders of arrival of the trace
``openb_objects``   nodes and pods of the trace as objects of the API
``bound``           proven upper bounds of the allocation for any placement
"""
