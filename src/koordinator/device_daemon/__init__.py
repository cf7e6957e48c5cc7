"""Device daemon: describe the accelerators of a node, except NVIDIA's, for the node agent.

Each vendor has a module that parses its tool's output into descriptions; ``daemon`` runs them and
writes a file.  The daemon does not access the cluster.
Source: koordinator cmd/koord-device-daemon, pkg/device-daemon.
"""
