"""Simulation of services and batch pods that share nodes, in virtual time.

``fleet``       pods by node, their usage and the progress of their work
``objects``     objects of a cluster with and without a manager
``suppression`` the node agent's CPU suppression, vectorised over nodes, and its evictions
``reporters``   reports of the node agents
``loop``        steps of the simulation: usage, suppression, eviction, report, publication
"""
