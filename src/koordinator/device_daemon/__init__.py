"""Describes the accelerators of a node that are not NVIDIA's, for the node agent to report.

Each vendor has a module that turns what its tool prints into descriptions; ``daemon`` asks them and
leaves a file.  The daemon knows no cluster.
Source: koordinator cmd/koord-device-daemon, pkg/device-daemon.
"""
