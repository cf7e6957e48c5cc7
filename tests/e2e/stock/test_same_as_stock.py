"""``koord scheduler`` decides as the stock kube-scheduler does, seen from the API server.

Both see the same cluster; every pod is given to one, taken away again, and given to the other.
"""

import os
import sys
from collections.abc import Iterator

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.stock.arena import Arena, Decision
from tests.e2e.stock.scenarios import Manifest, make_scenario

FIRST = int(os.environ.get("KOORDINATOR_STOCK_FIRST", "0"))
SCENARIOS = int(os.environ.get("KOORDINATOR_STOCK_SCENARIOS", "12"))  # 60 take about two minutes
OURS, STOCK = "koord", "stock"
AT_ONCE_S = 1  # a pod is tried again soon: the scenario waits for it
#: The original's message if a plugin's PreFilter rejects the pod before DynamicResources ran,
#: whose PostFilter then misses its state and keeps preemption from running.
LOST = ". not found"


def configuration(scheduler: str) -> Manifest:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 1000, "burst": 1000},
        "podInitialBackoffSeconds": AT_ONCE_S,
        "podMaxBackoffSeconds": AT_ONCE_S,
        "profiles": [{"schedulerName": scheduler}],
    }


@pytest.fixture
def arena(controlplane: ControlPlane, namespace: str) -> Iterator[Arena]:
    """Run both schedulers on one cluster."""
    controlplane.start_scheduler(configuration(STOCK))
    with SchedulerProcess(controlplane, configuration(OURS)):
        made = Arena(controlplane, namespace)
        made.prepare()
        yield made


def test_decisions_are_those_of_kube_scheduler(arena: Arena) -> None:
    """Node (any of the best ones), message, victims and events are the same, pod by pod."""
    decisions, different = 0, []
    for seed in range(FIRST, FIRST + SCENARIOS):
        scenario = make_scenario(seed)
        arena.build(scenario, (OURS, STOCK))
        for pod in scenario.pending:
            decisions += 1
            difference = compare(arena, pod)
            if difference:
                different.append(f"seed {seed} {pod['metadata']['name']}: {difference}")

    sys.stderr.write(f"{decisions - len(different)} of {decisions} decisions are the same\n")
    assert decisions == SCENARIOS * len(make_scenario(FIRST).pending)
    assert not different, "\n".join(different)


def compare(arena: Arena, pod: Manifest) -> str:
    """Return how the decisions about a pod differ; it stays where the stock scheduler puts it.

    The original may not retry a pod after its victims were deleted: it considers the
    anti-affinity of the pod only, not the victims'.
    """
    ours = arena.try_pod(pod, OURS, keep=False)
    best = arena.best_nodes(pod) if ours.node and not ours.victims else {ours.node}
    theirs = arena.try_pod(pod, STOCK, keep=True)
    cut = theirs.message.endswith(LOST)
    same = without_node(ours, cut=cut) == without_node(theirs, cut=cut)
    if {ours.node, theirs.node} <= best and same and ours.is_bound is bool(ours.node):
        return ""
    return f"ours {ours}\n  theirs {theirs}\n  best {sorted(best)}"


def without_node(decision: Decision, *, cut: bool = False) -> tuple[object, ...]:
    """Return the decision without the node; ``cut`` removes the text about preemption."""
    if not cut:
        return decision.message, decision.events, decision.victims
    events = tuple((*it[:-1], head(it[-1])) for it in decision.events)
    return head(decision.message), events, decision.victims


def head(message: str) -> str:
    text = message.removesuffix(LOST).partition(". no new claims to deallocate")[0]
    return text.partition(". preemption: ")[0]
