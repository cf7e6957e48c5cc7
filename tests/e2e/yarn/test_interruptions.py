"""Operators that take turns, and a ResourceManager that hangs: what is given to YARN meanwhile."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.waiting import eventually
from tests.e2e.yarn.account_auditor import AccountAuditor
from tests.e2e.yarn.operator_process import YarnOperatorProcess
from tests.e2e.yarn.real_yarn import Amounts, RealYarn
from tests.e2e.yarn.test_yarn_operator import CONFIG, Machine

FLAGS = ["--shrink-grace-period=2s", "--yarn-timeout=3s"]
ALL, SOME = Amounts(9, 14745), Amounts(3, 7372)
#: A lease that was not given back runs out after 15 s; a busy machine is late.
TAKEN_OVER_S = 60


@pytest.fixture
def replicas(
    controlplane: ControlPlane, yarn: RealYarn, rights: Path
) -> Iterator[Sequence[YarnOperatorProcess]]:
    """Run two operators with leader election."""
    with ExitStack() as running:
        yield [
            running.enter_context(
                YarnOperatorProcess(
                    controlplane, yarn.conf_dir, FLAGS, kubeconfig=rights, elects=True, name=name
                )
            )
            for name in ("koord-yarn-operator-a", "koord-yarn-operator-b")
        ]


@pytest.fixture
def machine(controlplane: ControlPlane, yarn: RealYarn, namespace: str) -> Machine:
    """Make a node that gives all it has."""
    path = "/api/v1/namespaces/koordinator-system/configmaps"
    controlplane.api.request("POST", path, CONFIG)
    return Machine(controlplane, yarn, namespace)


def leader(replicas: Sequence[YarnOperatorProcess]) -> YarnOperatorProcess:
    """Wait for a leader and return it."""
    (replica,) = eventually(lambda: [each for each in replicas if each.leads], TAKEN_OVER_S)
    return replica


def test_two_replicas_take_turns(
    controlplane: ControlPlane,
    yarn: RealYarn,
    replicas: Sequence[YarnOperatorProcess],
    machine: Machine,
) -> None:
    """A former leader that wakes up after a pause writes nothing any more.

    The new leader continues the work of the old one.
    """
    with AccountAuditor(controlplane, yarn, "n1") as auditor:
        machine.uses(0, "0")
        eventually(lambda: yarn.own_limit() == ALL, 60)

        first = leader(replicas)
        (second,) = (each for each in replicas if each is not first)
        first.signal(signal.SIGSTOP)
        machine.uses(6, "8Gi")
        eventually(lambda: second.leads, TAKEN_OVER_S)
        eventually(lambda: yarn.own_limit() == SOME, 60)
        first.signal(signal.SIGCONT)
        eventually(lambda: "koord_yarn_operator_is_leader 0.0" in first.get("/metrics"), 60)
        machine.uses(2, "2Gi")
        eventually(lambda: yarn.own_limit() == Amounts(7, 12902), 60)
        assert second.leads

        machine.report(0, "0")
        second.kill()
        eventually(lambda: first.leads, TAKEN_OVER_S)
        eventually(lambda: yarn.own_limit() == ALL, 60)
    assert auditor.samples
    assert not auditor.violations()


@pytest.mark.parametrize("dies", [False, True])
def test_request_to_a_hanging_resource_manager_takes_effect_later(
    dies: bool, controlplane: ControlPlane, yarn: RealYarn, rights: Path, machine: Machine
) -> None:
    """The request stays promised until the ResourceManager is back, even if the operator dies."""
    with (
        YarnOperatorProcess(controlplane, yarn.conf_dir, FLAGS, kubeconfig=rights) as operator,
        AccountAuditor(controlplane, yarn, "n1") as auditor,
    ):
        machine.uses(6, "8Gi")
        eventually(lambda: yarn.own_limit() == SOME, 60)
        yarn.pause("rm")
        try:
            machine.uses(0, "0")
            down = 'koord_yarn_operator_cluster_up{cluster="__default_yarn_cluster__"} 0.0'
            eventually(lambda: down in operator.get("/metrics"), 60)
            if dies:
                operator.kill()
                operator.start()
            machine.uses(6, "8Gi")
        finally:
            yarn.resume("rm")
        eventually(lambda: yarn.own_limit() == SOME, 90)
        machine.uses(0, "0")
        eventually(lambda: yarn.own_limit() == ALL, 60)
    assert auditor.samples
    assert not auditor.violations()
