"""Ports to the machine of a node agent: files, processes, accelerators.

``port`` declares the ports; ``linux`` implements them for this machine, ``memory`` for tests.
"""
