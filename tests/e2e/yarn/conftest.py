"""One real YARN for all tests of this folder: it takes seconds to start and 400 MiB."""

from collections.abc import Iterator

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.yarn.operator_process import YarnOperatorProcess
from tests.e2e.yarn.real_yarn import RealYarn, missing


@pytest.fixture(scope="module")
def yarn(
    controlplane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealYarn]:
    """Run a ResourceManager and a NodeManager."""
    if why := missing():
        pytest.skip(why)
    with RealYarn(tmp_path_factory.mktemp("yarn"), controlplane.process_group) as running:
        yield running


@pytest.fixture
def manager(controlplane: ControlPlane) -> Iterator[ManagerProcess]:
    """Run a manager in a cluster that has its namespace."""
    controlplane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with ManagerProcess(controlplane) as running:
        yield running


@pytest.fixture
def operator(
    controlplane: ControlPlane, yarn: RealYarn, request: pytest.FixtureRequest
) -> Iterator[YarnOperatorProcess]:
    """Run the operator beside the manager."""
    request.getfixturevalue("manager")
    with YarnOperatorProcess(controlplane, yarn.conf_dir, ["--shrink-grace-period=2s"]) as running:
        yield running
