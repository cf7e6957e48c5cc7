"""Containers of YARN beside pods: the real operator and manager over virtual time."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.simulator.colocation.test_loop import config, described, measured, pods, run

from koordinator.api.annotations.node import ORIGIN_EXTENDED_ALLOCATABLE
from koordinator.api.node import Node
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import InputError
from koordinator.hadoop.amounts import batch_amounts
from koordinator.simulator import Simulation, parse_workload, read_workload
from koordinator.simulator.colocation_report import YarnReport
from koordinator.simulator.report import run_page
from koordinator.simulator.results import SimulationResult

EXAMPLE = Path(__file__).parents[4] / "examples/yarn.yaml"


def queue(name: str, count: int, *, at: str = "10m", **container: Any) -> dict[str, Any]:
    """Return a queue to which one application comes, whose containers work for an hour."""
    return {
        "name": name,
        "arrival": {"bursts": [{"count": 1, "at": at}]},
        "containers": count,
        "container": {"vcores": 1, "memory": "1Gi", **container},
        "duration": {"constant": "1h"},
    }


def with_yarn(data: dict[str, Any], *queues: Any, **more: Any) -> dict[str, Any]:
    return {**data, "yarn": {"queues": list(queues), **more}}


def yarn_of(result: SimulationResult) -> YarnReport:
    """Return what was counted of YARN."""
    yarn = measured(result).yarn
    assert yarn is not None
    return yarn


def test_yarn_has_what_services_leave_but_for_the_headroom() -> None:
    """6.5 CPUs less two of the service, less a tenth of these 4.5: four whole vcores."""
    data = with_yarn(described(pods("web", 1, 10, usage={"cpu": 20})), queue("etl", 5))

    result = run(data)
    before = run(data, colocates=False)

    yarn, (etl,) = yarn_of(result), yarn_of(result).queues
    assert (etl.applications, etl.containers, etl.started, etl.finished) == (1, 5, 5, 5)
    # Four of them at once, the last one when these are done.
    assert etl.waiting is not None
    assert (etl.waiting.p50_s, etl.waiting.mean_s) == (0, pytest.approx(3600 / 5, abs=30))
    assert yarn.core_hours == pytest.approx(5, abs=0.01)
    assert yarn.lost_core_hours == 0
    assert max(yarn.samples.limit_cpu) == 0.4
    assert measured(result).totals.best_effort_core_hours == pytest.approx(5, abs=0.01)
    (without,) = yarn_of(before).queues
    assert (without.containers, without.started, without.waiting) == (5, 0, None)
    rows = run_page(result.report, before.report).sections[0].tables[0].rows
    assert "by containers of YARN" in [row[0] for row in rows]


def test_containers_end_for_services_and_work_again_afterwards() -> None:
    """A spike takes what YARN had: beyond the limit containers end after the grace period."""
    spike = {"stream": "web", "at": "30m", "lasts": "1h", "factor": 2}
    streams = pods("web", 1, 10, usage={"cpu": 20})
    data = with_yarn(described(streams, spikes=[spike]), queue("etl", 3))

    result = run(data)
    spared = run(
        with_yarn(described(streams, spikes=[spike]), queue("etl", 3), shrinkGracePeriod="never")
    )

    (etl,) = yarn_of(result).queues
    assert etl.preempted == 1  # 2.5 CPUs are left; containers may use up the headroom
    assert etl.finished == 3
    assert yarn_of(result).lost_core_hours == pytest.approx(20 / 60, abs=0.05)
    (untouched,) = yarn_of(spared).queues
    assert (untouched.preempted, untouched.finished) == (0, 3)
    assert measured(spared).totals.suppressed > 0  # held back in their place


def test_a_pod_that_waits_finds_room_beside_containers() -> None:
    """The pod requests more than the headroom; YARN returns resources without containers."""
    data = with_yarn(
        described(pods("web", 1, 10, usage={"cpu": 20}), pods("batch", 1, 2, at="20m")),
        queue("etl", 1),
    )

    result = run(data)

    (job,) = (p for p in result.placements if p.pod.startswith("default/batch"))
    assert job.bound_s is not None
    assert job.bound_s - job.submitted_s < 300
    (etl,) = yarn_of(result).queues
    assert (etl.finished, etl.preempted) == (1, 0)


def test_memory_that_runs_short_ends_containers_when_no_pod_can_go() -> None:
    """The node agent asks the copilot, which ends the newest."""
    data = with_yarn(
        described(
            pods("web", 1, 9, usage={"cpu": 20, "memory": 20}, memory="60Gi"),
            pods("web2", 1, 1, at="30m", memory="40Gi"),
            memoryEvictThresholdPercent=70,
        ),
        queue("etl", 3, memory="11Gi"),
        shrinkGracePeriod="never",
    )

    result = run(data)

    (etl,) = yarn_of(result).queues
    assert etl.evicted >= 1
    assert any("BEMemoryEvict" in event.text for event in result.report.events)


def test_containers_are_lost_with_their_node() -> None:
    """YARN restarts them once it knows; the node comes back with what it registers with."""
    data = with_yarn(described(pods("web", 1, 10, usage={"cpu": 20})), queue("etl", 3))
    data["outages"] = [{"pool": "node", "at": "30m", "nodes": 1, "repair": {"constant": "30m"}}]

    result = run(data)

    (etl,) = yarn_of(result).queues
    assert (etl.lost, etl.finished) == (3, 3)
    assert yarn_of(result).lost_core_hours == pytest.approx(1, abs=0.01)


def test_only_nodes_of_named_pools_run_node_managers() -> None:
    """The others keep all their batch resources for pods."""
    data = with_yarn(described(pods("web", 1, 2)), queue("etl", 1), pools=["second"])
    data["nodePools"].append({"name": "second", "count": 2, "cpu": 10, "memory": "100Gi"})

    result = run(data)

    noted = {
        node.metadata.name
        for node in result.cluster.list(Node).items
        if "yarn.hadoop.apache.org/node-id" in node.metadata.annotations
    }
    assert noted == {"second-0", "second-1"}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.integration
def test_nothing_is_given_twice_at_any_time(seed: int) -> None:
    """YARN's limit and the amounts published to pods fit in the node together, at all times."""
    job = pods("batch", 0, 2, usage={"cpu": 90})
    job |= {"arrival": {"poisson": {"perHour": 20}}, "duration": {"exponential": {"mean": "20m"}}}
    etl = queue("etl", 6) | {
        "arrival": {"poisson": {"perHour": 6}},
        "duration": {"exponential": {"mean": "20m"}},
    }
    data = with_yarn(
        described(pods("web", 2, 10, usage={"low": 5, "high": 60, "peakAt": "1h"}), job),
        etl,
        {**etl, "name": "adhoc", "capacity": 20, "containers": 1},
    )
    data["nodePools"] = [{"name": "node", "count": 3, "cpu": 16, "memory": "64Gi"}]
    data["failures"] = [{"pool": "node", "mtbf": "3h", "repair": {"constant": "20m"}}]
    data["colocation"]["noisePercent"] = 20
    data["sampleEvery"] = "1m"
    workload = parse_workload(yaml.safe_dump(data), "test")
    simulation = Simulation(workload, seed=seed, stopwatch=VirtualClock())
    yarn = simulation.yarn
    assert yarn is not None
    looked_at = 0

    def look() -> None:
        nonlocal looked_at
        limits = {node.node_id: node.limit.batch() for node in yarn.nodes()}
        for node in simulation.world.cluster.list(Node).items:
            limit = limits.get(f"{node.metadata.name}:8041")
            origin = ORIGIN_EXTENDED_ALLOCATABLE.read(node.metadata)
            if limit is None or origin is None:
                continue
            has, shown = batch_amounts(origin.resources), batch_amounts(node.status.allocatable)
            for name, given, sold, there in zip(has._fields, limit, shown, has, strict=True):
                assert not sold or given + sold <= there, (node.metadata.name, name)
            looked_at += 1

    report = yarn_of(simulation.run(look))
    assert looked_at > 100
    assert sum(each.finished for each in report.queues) > 20


def test_the_example_has_queues_beside_batch_pods() -> None:
    """The shipped week begins well: every queue gets something, and the page shows it."""
    workload = read_workload(EXAMPLE)
    result = Simulation(workload, until_s=4 * 3600, stopwatch=VirtualClock()).run()

    assert {each.queue for each in yarn_of(result).queues if each.finished} == {"etl", "reports"}
    assert yarn_of(result).limit_cpu > yarn_of(result).used_cpu > 0
    shown = {chart.title for chart in run_page(result.report).sections[0].charts}
    assert {"CPU of YARN", "Pending containers of YARN"} <= shown


def test_runs_repeat_exactly() -> None:
    """An equal seed gives equal containers."""
    data = with_yarn(
        described(pods("web", 1, 10, usage={"cpu": 20})),
        queue("etl", 4) | {"duration": {"exponential": {"mean": "20m"}}},
    )

    assert yarn_of(run(data)) == yarn_of(run(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queues": []}, "yarn.queues: must have at least one queue"),
        (
            {"queues": [queue("a", 1), queue("a", 1)]},
            r"yarn.queues\[1\].name: must be unique, got 'a' again",
        ),
        ({"queues": [queue("", 1)]}, r"yarn.queues\[0\].name: must not be empty"),
        ({"queues": [queue("a", 0)]}, r"containers"),
        ({"queues": [queue("a", 1, memory="0")]}, r"container.memory: must be more than 0, got 0"),
        ({"queues": [queue("a", 1, vcores=0)]}, "vcores"),
        (
            {"queues": [queue("a", 1, usage={"low": 10})]},
            r"container.usage.high: is required with low",
        ),
        ({"queues": [queue("a", 1) | {"arrival": {}}]}, r"arrival: must have at least one of"),
        (
            {"queues": [queue("a", 1) | {"duration": {}}]},
            r"duration: must have exactly one of .*, got none",
        ),
        (
            {"queues": [queue("a", 1)], "pools": ["x"]},
            r"yarn.pools\[0\]: must be one of",
        ),
        (
            {"queues": [queue("a", 1)], "shrinkGracePeriod": "-1s"},
            "shrinkGracePeriod: must be .*, got '?-1s'?",
        ),
        ({"queues": [queue("a", 1)], "shrinkGracePeriod": "late"}, "shrinkGracePeriod: .*late"),
        ({"queues": [queue("a", 1)], "headroomPercent": 101}, "headroomPercent"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], message: str) -> None:
    """With the field, what was found, and what is accepted."""
    data = described(pods("web", 1, 1)) | {"yarn": change}
    with pytest.raises(InputError, match=message):
        run(data)


def test_yarn_needs_colocation() -> None:
    """YARN uses resources of colocation, with or without best-effort pods."""
    data = with_yarn(described(pods("web", 1, 1)), queue("a", 1))
    data["objects"] = [config()]
    run({**data, "horizon": "2m"})
    del data["colocation"]
    with pytest.raises(InputError, match="yarn: requires colocation"):
        run(data)
