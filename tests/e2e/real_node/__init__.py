"""A real Kubernetes node without Docker: kubelet, containerd with NRI, and runc."""

from tests.e2e.real_node.node import RealNode
from tests.e2e.real_node.programs import Programs, find_programs, missing

__all__ = ["Programs", "RealNode", "find_programs", "missing"]
