"""Node Resource Interface (NRI): calls of the container runtime to plugins, without I/O.

``host.linux.nri_connection`` has the socket.
Source: github.com/containerd/nri 0.11 pkg/net/multiplex, pkg/api/api.proto; containerd/ttrpc 1.2.
"""
