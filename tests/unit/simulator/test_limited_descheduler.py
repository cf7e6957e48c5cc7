"""A descheduler in a described workload: it moves pods to good purpose, within its budget."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import InputError
from koordinator.simulator import Simulation, parse_workload, shipped_configuration
from koordinator.simulator.run import MoveSettings
from koordinator.simulator.run_report import MoveTotals
from koordinator.simulator.stages import Eviction, moves_allowed

SMALL = {"cpu": 2, "memory": "4Gi", "gpus": 1}


def bursts(*minutes: int, count: int = 1) -> dict[str, Any]:
    return {"bursts": [{"count": count, "at": f"{minute}m"} for minute in minutes]}


#: On each node one pod that stays among three that go: then there is no room for a large one.
SCATTERED: dict[str, Any] = {
    "horizon": "90m",
    "sampleEvery": "5m",
    "nodePools": [
        {
            "name": "gpu",
            "count": 3,
            "cpu": 64,
            "memory": "512Gi",
            "gpus": {"count": 4, "memory": "80Gi", "model": "H800"},
        }
    ],
    "podStreams": [
        {
            "name": "short",
            "arrival": bursts(0, 2, 4, count=3),
            "duration": {"constant": "30m"},
            "template": SMALL,
        },
        {"name": "small", "arrival": bursts(1, 3, 5), "template": SMALL},
        {
            "name": "large",
            "arrival": bursts(40),
            "duration": {"constant": "30m"},
            "template": SMALL | {"gpus": 4},
        },
    ],
}


def simulation(workload: dict[str, Any] = SCATTERED, **how: Any) -> Simulation:
    parsed = parse_workload(yaml.safe_dump(workload), "test")
    return Simulation(parsed, stopwatch=VirtualClock(), **how)


def policy(**more: Any) -> Any:
    """Return a policy that evicts pods by age, whether it is of use or not."""
    evictor = {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]}
    data = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "deschedulingInterval": "1m",
        "profiles": [
            {
                "plugins": {
                    "deschedule": {"enabled": [{"name": "PodLifeTime"}]},
                    "evict": evictor,
                    "filter": evictor,
                },
                "pluginConfig": [
                    {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 60}},
                ],
            }
        ],
    }
    return decode_descheduler_configuration(data | more, "test")


def test_a_pod_is_moved_so_that_one_that_waits_for_a_whole_node_gets_it() -> None:
    """Without moves it waits for ever; with them one pod is evicted and restarts elsewhere."""
    without = simulation().run()
    moved_run = simulation(moves=MoveSettings(100)).run()

    def large(result: Any) -> Any:
        return next(each for each in result.placements if each.kind == "large")

    assert large(without).bound_s is None
    assert without.report.moves is None
    assert large(moved_run).bound_s == 45 * 60
    assert moved_run.report.moves == MoveTotals(
        moves=1, in_vain=0, arrivals=13, per_1000=1000 / 13, at_most_per_1000=100
    )
    (again,) = [each for each in moved_run.placements if each.pod.endswith("-r1")]
    assert again.submitted_s == again.bound_s == 45 * 60
    assert moved_run.report.total.finished == without.report.total.finished + 1
    (event,) = [each.text for each in moved_run.report.events if "moved off" in each.text]
    assert "GPUDefragmentation: room for default/large-0" in event


def test_load_is_evened_out_when_services_use_more_than_was_expected() -> None:
    """Two nodes come back late, so that the morning's services crowd on the others."""
    requests = {"cpu": 3, "memory": "2Gi", "priority": 9000, "qos": "LS"}
    streams = [
        {
            "name": name,
            "arrival": bursts(minute, count=8),
            "template": requests | {"usage": {"low": 5, "high": high, "peakAt": "2h"}},
        }
        for name, minute, high in (("morning", 10, 100), ("idle", 40, 10))
    ]
    best_effort = {"cpu": 1, "priority": 5000, "qos": "BE"}
    batch = {"name": "batch", "arrival": bursts(0), "template": best_effort}
    slo = {"enable": True, "metricReportIntervalSeconds": 300}
    workload = {
        "horizon": "3h",
        "sampleEvery": "1h",
        "gracePeriod": "1s",
        "nodePools": [{"name": "n", "count": 4, "cpu": 16, "memory": "64Gi"}],
        "podStreams": [*streams, batch],
        "colocation": {"step": "5m"},
        "outages": [{"pool": "n", "at": "0s", "nodes": 2, "repair": {"constant": "30m"}}],
        "objects": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
                "data": {"colocation-config": json.dumps(slo)},
            },
            {
                "apiVersion": "config.koordinator.sh/v1alpha1",
                "kind": "ClusterColocationProfile",
                "metadata": {"name": "batch"},
                "spec": {
                    "selector": {"matchLabels": {"app": "batch"}},
                    "qosClass": "BE",
                    "priorityClassName": "koord-batch",
                },
            },
        ],
    }
    how = {"configuration": shipped_configuration(), "moves": MoveSettings(200)}
    result = simulation(workload, **how).run().report

    assert result.moves is not None
    assert 1 <= result.moves.moves <= 3
    assert result.moves.in_vain == 0
    events = [each.text for each in result.events if "moved off" in each.text]
    assert all("LowNodeLoad" in text and "default/morning-" in text for text in events)


@pytest.mark.parametrize("per_1000", [0.0, 76.0])
def test_no_pod_moves_before_the_budget_allows_it(per_1000: float) -> None:
    """The thirteenth arrival is one too few for 76 of 1,000."""
    moves = simulation(moves=MoveSettings(per_1000)).run().report.moves

    assert moves is not None
    assert moves.moves == 0


@pytest.mark.parametrize("how", ["evictions at once", "jobs"])
def test_a_policy_that_would_move_everything_never_exceeds_the_budget(how: str) -> None:
    """Looked at whenever there is a sample, and at every eviction."""
    wild = policy(**({} if how == "evictions at once" else {"profiles": [jobs()]}))
    run = simulation(
        configuration=shipped_configuration(), moves=MoveSettings(400, wild), until_s=1800
    )
    seen = []

    def look() -> None:
        evicted = sum(pod.left is not None for pod in run.world.history)
        assert evicted <= moves_allowed(400, run.world.arrivals)
        seen.append(evicted)

    moved = run.world.moved
    run.world.moved = lambda key: (moved(key), look())[0]  # type: ignore[method-assign,func-returns-value]
    moves = run.run(look).report.moves

    assert moves is not None
    assert moves.moves == max(seen) == moves_allowed(400, 12)
    assert moves.per_1000 <= 400


def jobs() -> dict[str, Any]:
    """Return a profile that moves by age through PodMigrationJobs, which reserve first."""
    controller = {
        "skipCheckExpectedReplicas": True,
        "maxMigratingPerNode": 0,
        "objectLimiters": {"workload": {"duration": "0s"}},
        "skipEvictionGates": ["MaxMigratingPerWorkload", "MaxUnavailablePerWorkload"],
    }
    return {
        "plugins": {"deschedule": {"enabled": [{"name": "PodLifeTime"}]}},
        "pluginConfig": [
            {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 60}},
            {"name": "MigrationController", "args": controller},
        ],
    }


def test_the_same_seed_gives_the_same_moves() -> None:
    """Everything but the measured wall time, which is virtual here, too."""

    def outcome() -> object:
        result = simulation(moves=MoveSettings(300, policy())).run()
        return result.placements, result.report.moves, result.report.events

    assert outcome() == outcome()


def test_moves_are_not_among_those_that_make_an_owner_give_up() -> None:
    """A pod that its owner never submits again is still moved more than once."""
    streams = [each | {"resubmit": {"limit": 0}} for each in SCATTERED["podStreams"][1:2]]
    run = simulation(
        SCATTERED | {"podStreams": streams}, moves=MoveSettings(3000, policy()), until_s=1800
    )
    result = run.run()

    assert result.report.moves is not None
    assert result.report.moves.moves > 3
    assert len(run.world.pods) == 3


@pytest.mark.parametrize(
    ("node", "waited_s", "in_vain"),
    [("a", 0, True), ("b", 0, False), ("b", 60, False), ("b", 61, True), ("", 61, True)],
)
def test_an_eviction_is_useless_if_the_pod_returns_or_waits_too_long(
    node: str, waited_s: float, in_vain: bool
) -> None:
    """The evicted pod had run for a minute on node a."""
    assert Eviction("a", 100, 60).was_wasted(node, waited_s) is in_vain


def _without_gpus() -> dict[str, Any]:
    pool = {"name": "n", "count": 2, "cpu": 4, "memory": "8Gi"}
    pods = {"name": "s", "arrival": bursts(0), "template": {"cpu": 1}}
    return {"nodePools": [pool], "podStreams": [pods]}


def _with_job() -> dict[str, Any]:
    job = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": "j"},
        "spec": {"podRef": {"namespace": "default", "name": "small-0"}},
    }
    return SCATTERED | {"objects": [job]}


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (_without_gpus, "neither load .* nor GPUs"),
        (_with_job, "must not contain a PodMigrationJob"),
    ],
)
def test_a_workload_in_which_nothing_could_be_kept_to_is_refused(
    workload: Callable[[], dict[str, Any]], message: str
) -> None:
    """Before anything is run."""
    with pytest.raises(InputError, match=message):
        simulation(workload(), moves=MoveSettings(10))
