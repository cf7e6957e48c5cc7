"""Hadoop 3.2, whose web services can't change nodes: what is asked by REST elsewhere, by RPC."""

import getpass
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.waiting import eventually
from tests.e2e.yarn.account_auditor import AccountAuditor
from tests.e2e.yarn.copilot_process import CopilotProcess
from tests.e2e.yarn.operator_process import YarnOperatorProcess
from tests.e2e.yarn.real_yarn import Amounts, RealYarn, missing
from tests.e2e.yarn.test_yarn_operator import CONFIG, Machine

from koordinator.hadoop.amounts import YarnResource
from koordinator.hadoop.configuration import read_clusters
from koordinator.hadoop.connection import YarnApi, YarnClientOptions, connector
from koordinator.hadoop.port import YarnLimit, YarnRefusedError
from koordinator.host.linux.sockets import SocketCopilot

VERSION = "3.2.4"


@pytest.fixture(scope="module")
def yarn(
    controlplane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealYarn]:
    """Run a ResourceManager and a NodeManager of Hadoop 3.2."""
    if why := missing(VERSION):
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("yarn")
    with RealYarn(folder, controlplane.process_group, version=VERSION) as running:
        yield running


def test_rpc_is_detected(yarn: RealYarn) -> None:
    """A call that REST of this version lacks succeeds, and fails for the user ``nobody``."""
    (config,) = read_clusters(yarn.conf_dir)
    with ExitStack() as cleanup:
        clients = []
        for user in (getpass.getuser(), "nobody"):
            clients.append(connector(config, YarnClientOptions(user=user, api=YarnApi.AUTO))())
            cleanup.callback(clients[-1].close)
        admin, unprivileged = clients
        admin.set_limit(YarnLimit(yarn.node_id, YarnResource(4, 2048), -1))
        eventually(lambda: yarn.limit() == Amounts(4, 2048))
        (node,) = admin.nodes()
        assert node.limit == YarnResource(4, 2048)
        with pytest.raises(YarnRefusedError, match="nobody"):
            unprivileged.set_limit(YarnLimit(yarn.node_id, YarnResource(8, 8192), -1))


@pytest.mark.usefixtures("manager")
def test_capacity_follows_and_nothing_ends_but_through_the_copilot(
    controlplane: ControlPlane, namespace: str, yarn: RealYarn
) -> None:
    """Hadoop 3.2 knows no over-commit timeout: containers keep what they have, promised."""
    path = "/api/v1/namespaces/koordinator-system/configmaps"
    controlplane.api.request("POST", path, CONFIG)
    machine = Machine(controlplane, yarn, namespace)
    copilot = CopilotProcess(controlplane, yarn, yarn.folder / "copilot.sock")
    flags = ["--shrink-grace-period=2s"]
    with YarnOperatorProcess(controlplane, yarn.conf_dir, flags):
        machine.uses(0, "0")
        eventually(lambda: yarn.limit() == Amounts(9, 14745), 60)
        app = yarn.run_tasks(5)
        try:
            with AccountAuditor(controlplane, yarn, "n1") as auditor:
                eventually(lambda: len(yarn.tasks()) == 5, 60)
                machine.uses(6, "8Gi")
                eventually(lambda: yarn.limit() == Amounts(4, 7372))  # with the headroom
                time.sleep(5)
                assert len(yarn.tasks()) == 5
                machine.uses(0, "0")
                eventually(lambda: yarn.limit() == Amounts(9, 14745))
            assert auditor.samples
            assert not auditor.violations()

            copilot.start()
            newest = max(yarn.tasks())
            SocketCopilot(str(copilot.socket)).release(
                {"kubernetes.io/batch-memory": 1.0}, node_cpu_ratio=-1, node_memory_ratio=-1
            )
            eventually(lambda: newest not in yarn.tasks())
        finally:
            copilot.kill()
            yarn.end(app)
