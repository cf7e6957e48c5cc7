"""A real Kubernetes control plane on loopback, for tests and benchmarks; needs no container."""

from tests.e2e.controlplane.controlplane import ControlPlane
from tests.e2e.controlplane.errors import ApiError, ControlPlaneError

__all__ = ["ApiError", "ControlPlane", "ControlPlaneError"]
