"""Deleted objects leave nothing behind, in any table of any process: the short form of the soak."""

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from tests.soak.agent import AgentChurn
from tests.soak.census import census, growth
from tests.soak.manager import ManagerChurn
from tests.soak.scheduling import CONFIGURATION, SchedulerChurn
from tests.soak.usage import Course, Usage
from tests.soak.yarn import YarnChurn
from tests.worlds import node, pod

from koordinator.api.node import NodeSpec
from koordinator.api.pod import Pod
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator import Embedded

pytestmark = pytest.mark.integration

ROUNDS = 48


class Churn(Protocol):
    """Objects that pass through a process."""

    @property
    def roots(self) -> tuple[object, ...]: ...

    @property
    def others(self) -> tuple[object, ...]: ...

    def round(self, number: int) -> None: ...


def left_behind(churn: Churn, rounds: int) -> dict[str, int]:
    """Return the places where every second of the later rounds, or more, has left an entry.

    Half as many rounds follow the first ones, in which bounded tables fill.
    """
    for number in range(rounds):
        churn.round(number)
    before = census(*churn.roots, but=churn.others)
    for number in range(rounds, rounds + rounds // 2):
        churn.round(number)
    return growth(before, census(*churn.roots, but=churn.others), by=rounds // 4)


@pytest.mark.slow
@pytest.mark.parametrize("decides", [True, False], ids=["leader", "follower"])
def test_deleted_objects_leave_nothing_in_the_scheduler(decides: bool) -> None:
    """Pods, gangs, quotas, reservations, claims, nodes, namespaces: each of names of its own."""
    churn = SchedulerChurn(audited=50, new_classes=16, decides=decides)

    assert left_behind(churn, ROUNDS) == {}
    churn.world.state.validate()


@pytest.mark.slow
def test_what_outlives_a_term_of_leadership_keeps_nothing_of_it() -> None:
    """Nodes and pods of a term have been deleted when the next one lists the cluster."""
    audit, metrics = Audit(capacity=4), SchedulerMetrics(CollectorRegistry())

    def term(number: int) -> None:
        world = Embedded(CONFIGURATION, audit=audit, metrics=metrics)
        closed = replace(node(f"closed-{number}"), spec=NodeSpec(unschedulable=True))
        world.load([node(f"n{number}", 4), closed, pod(f"p{number}", 1), pod(f"large{number}", 90)])
        world.scheduler.step()
        metrics.unwatch()
        audit.unwatch()

    for number in range(ROUNDS):
        term(number)
    before = census(audit, metrics)
    for number in range(ROUNDS, ROUNDS + ROUNDS // 2):
        term(number)

    assert growth(before, census(audit, metrics), by=ROUNDS // 4) == {}


#: What makes a pod of about 100 KiB, by what it stands in.
LARGE: dict[str, Callable[[str], dict[str, Any]]] = {
    "tolerations": lambda own: {
        "tolerations": [{"key": f"{own}-{i}", "operator": "Exists"} for i in range(1500)]
    },
    "labels": lambda own: {"labels": {f"{own}-{i}": "a" * 60 for i in range(1200)}},
    "annotation": lambda own: {"annotations": {f"pod.koordinator.sh/{own}": "a" * 100_000}},
    "gang": lambda own: {
        "annotations": {"gang.scheduling.koordinator.sh/name": own,
                        "gang.scheduling.koordinator.sh/min-available": "2",
                        f"pod.koordinator.sh/{own}": "a" * 100_000}
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGE)
def test_deleted_large_pods_take_no_memory(kind: str) -> None:
    """Tables are bounded by what their entries take, not by how many they are."""
    world = Embedded(CONFIGURATION, state=ClusterState(new_bytes=1 << 18))
    world.load([node("n", 4)])
    measured = []
    for number in range(32):
        pods = [pod(f"p{i}", 90, **LARGE[kind](f"k{number}")) for i in range(2)]
        world.load(pods)
        world.scheduler.step()
        for one in pods:
            world.cluster.delete(Pod, one.metadata.name, "default", grace_period_s=0)
        world.clock.advance_to(world.clock.now_s() + 30)
        world.scheduler.step()
        measured.append(tracemalloc.get_traced_memory()[0])

    assert max(measured[24:]) - max(measured[8:16]) < 16 * 60_000


@pytest.fixture(autouse=True)
def _traced(request: pytest.FixtureRequest) -> Iterator[None]:
    """Trace what is allocated by the tests that look at it."""
    if "large" not in request.node.name:
        yield
        return
    tracemalloc.start(1)
    yield
    tracemalloc.stop()


@pytest.mark.slow
def test_deleted_objects_leave_nothing_in_the_manager() -> None:
    """The look-up tables of its webhooks are empty as well."""
    assert left_behind(ManagerChurn(), ROUNDS) == {}


@pytest.mark.slow
def test_deleted_objects_leave_nothing_in_the_yarn_operator() -> None:
    """Served, unclear, or rejected: nodes and NodeManagers of names of their own."""
    churn = YarnChurn()
    assert left_behind(churn, 16) == {}
    assert len(churn.yarn.requests) > 24


@pytest.mark.slow
def test_deleted_pods_leave_nothing_in_the_agent() -> None:
    """Series, counters, refusals, histograms and claims go after minutes; the audit has a bound."""
    assert left_behind(AgentChurn(), 16) == {}


@pytest.mark.slow
def test_deleted_objects_leave_nothing_in_the_cluster_in_memory() -> None:
    """Events go after an hour; of names, only so many are known again."""
    churn = ManagerChurn()
    for number in range(ROUNDS):
        churn.round(number)
    churn.cluster._store.log.trim()
    known = (churn.cluster._identities, churn.cluster._store.log)
    before = census(churn.cluster, but=known)
    for number in range(ROUNDS, ROUNDS + ROUNDS // 2):
        churn.round(number)

    assert growth(before, census(churn.cluster, but=known), by=ROUNDS // 4) == {}


@pytest.mark.parametrize(("rounds", "first"), [(1, 0), (10, 5), (20, 10), (99, 10), (1000, 100)])
def test_age_counts_from_a_tenth_of_the_way_but_after_each_disturbance(
    rounds: int, first: int
) -> None:
    """Before, code runs for the first time; afterwards all growth counts."""
    usage = [Usage(mib=100.0 + number, threads=1, files=1) for number in range(rounds)]
    course = Course(rounds=rounds, usage={"scheduler": usage})

    assert course.growth() == {"scheduler": (99.0 + rounds) / (100.0 + first)}


class _Careless:
    """Has a table that is never emptied."""

    __module__ = "koordinator.careless"

    def __init__(self) -> None:
        self._labels: dict[str, list[str]] = {}


def test_the_census_names_a_table_that_is_never_emptied() -> None:
    """Wherever it hangs, also in a closure."""
    careless = _Careless()

    def closure() -> object:
        return careless

    before = census(closure)
    careless._labels |= {str(number): [str(number)] for number in range(10)}

    assert set(growth(before, census(closure), by=10)) == {
        "_Careless._labels",
        "_Careless._labels[]",
    }
