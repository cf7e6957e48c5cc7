"""The control plane of the end-to-end tests; scheduler and manager run on it while cases attack."""

from collections.abc import Iterator

import pytest
from tests.e2e.conftest import (
    _left_as_found,
    controlplane,
    kubectl,
    kubelet,
    leftovers,
    namespace,
    pytest_runtest_makereport,
)
from tests.e2e.controlplane import ControlPlane
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.scheduler_process import SchedulerProcess

__all__ = [
    "_left_as_found",
    "controlplane",
    "kubectl",
    "kubelet",
    "leftovers",
    "namespace",
    "pytest_runtest_makereport",
]


@pytest.fixture(scope="module")
def scheduler(controlplane: ControlPlane) -> Iterator[SchedulerProcess]:
    """Run one scheduler."""
    with SchedulerProcess(controlplane) as running:
        yield running


@pytest.fixture
def manager(controlplane: ControlPlane) -> Iterator[ManagerProcess]:
    """Run one manager in a cluster that has its namespace."""
    controlplane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with ManagerProcess(controlplane) as running:
        yield running
