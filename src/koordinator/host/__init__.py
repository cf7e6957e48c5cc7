"""Ports to the machine of a node agent: files, processes, accelerators.

``port`` declares the ports; ``linux`` implements them for the machine of this process.
"""
