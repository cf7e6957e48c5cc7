"""The Node Resource Interface: how a container runtime asks plugins before it makes a container.

Everything here is bytes and messages; ``host.linux.nri_connection`` has the socket.
Source: github.com/containerd/nri 0.11 pkg/net/multiplex, pkg/api/api.proto; containerd/ttrpc 1.2.
"""
