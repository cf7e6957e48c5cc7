"""One real YARN for all tests of this folder: it takes seconds to start and 400 MiB."""

import getpass
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.waiting import eventually
from tests.e2e.yarn.operator_process import YarnOperatorProcess
from tests.e2e.yarn.real_yarn import REGISTERED, RealYarn, missing

from koordinator.hadoop.amounts import YarnResource
from koordinator.hadoop.configuration import read_clusters
from koordinator.hadoop.connection import YarnClientOptions, connector
from koordinator.hadoop.port import YarnLimit

CHART = Path(__file__).parents[3] / "charts/koordinator-yarn-copilot"


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
def rights(controlplane: ControlPlane, helm: Callable[..., str], manager: ManagerProcess) -> Path:
    """Install the account of the chart; return a kubeconfig of it."""
    assert manager.is_running
    rendered = helm("template", "yarn", str(CHART), "--namespace", NAMESPACE)
    kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    objects = [each for each in yaml.safe_load_all(rendered) if each and each["kind"] in kinds]
    assert len(objects) == len(kinds)
    controlplane.kubectl(
        "apply", "--server-side", "--filename=-", stdin=yaml.safe_dump_all(objects)
    )
    return controlplane.service_account_kubeconfig(NAMESPACE, "koord-yarn-operator")


@pytest.fixture
def operator(
    controlplane: ControlPlane, yarn: RealYarn, rights: Path
) -> Iterator[YarnOperatorProcess]:
    """Run the operator beside the manager, with the rights that it is installed with.

    The limit is the registered one at first: a test that waits for another limit would otherwise
    get the limit from the test before.
    """
    _reset_limit(yarn)
    flags = ["--shrink-grace-period=2s"]
    with YarnOperatorProcess(controlplane, yarn.conf_dir, flags, kubeconfig=rights) as running:
        yield running


def _reset_limit(yarn: RealYarn) -> None:
    """Give the NodeManager the limit with which it registered, and wait until it has it."""
    (config,) = read_clusters(yarn.conf_dir)
    client = connector(config, YarnClientOptions(user=getpass.getuser()))()
    try:
        smallest = YarnResource(REGISTERED.vcores, REGISTERED.memory_mb)
        client.set_limit(YarnLimit(yarn.node_id, smallest, -1))
        eventually(lambda: yarn.own_limit() == yarn.limit() == REGISTERED, 60)
    finally:
        client.close()
