"""Jobs of several pods in a simulation: they start together, near to each other, within quotas."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.api.pod_groups import PodGroup
from koordinator.cli.input.configuration import read_configuration
from koordinator.foundation.errors import InputError
from koordinator.simulator import parse_workload, read_workload, simulate
from koordinator.simulator.results import SimulationResult

EXAMPLES = Path(__file__).parents[3] / "examples"
POOL: dict[str, Any] = {"name": "n", "count": 2, "cpu": 4, "memory": "8Gi"}
JOBS: dict[str, Any] = {
    "name": "job",
    "arrival": {"bursts": [{"count": 2}]},
    "duration": {"constant": "10m"},
    "template": {"cpu": 2, "members": 3},
}


def parsed(stream: dict[str, Any] | None = None, **more: Any) -> Any:
    data = {"nodePools": [POOL], "podStreams": [JOBS | (stream or {})], "horizon": "1h", **more}
    return parse_workload(yaml.safe_dump(data), "test.yaml")


def run(stream: dict[str, Any] | None = None, **more: Any) -> SimulationResult:
    profile = read_configuration(EXAMPLES / "training-profile.yaml")
    return simulate(parsed(stream, **more), profile)


def test_members_start_together_or_wait_together() -> None:
    """Four places: the second job of three waits until the whole first one is done."""
    result = run()

    times = {p.pod.partition("/")[2]: p.bound_s for p in result.placements}
    assert {name: times[name] for name in ("job-0-0", "job-0-1", "job-0-2")} == {
        "job-0-0": 0.0,
        "job-0-1": 0.0,
        "job-0-2": 0.0,
    }
    assert {times[f"job-1-{i}"] for i in range(3)} == {600.0}
    assert not result.cluster.list(PodGroup).items  # they go with their last members


def test_a_quota_of_the_workload_holds() -> None:
    """Manifests of the file exist from the start of the run."""
    quota = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "team", "namespace": "default"},
        "spec": {"max": {"cpu": 5}},
    }
    template = {"cpu": 1, "members": 3, "quota": "team"}
    result = run({"template": template}, objects=[quota])

    assert [p.bound_s for p in result.placements] == [0.0, 0.0, 0.0, 600.0, 600.0, 600.0]


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        (
            {"objects": [{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}]},
            r"kind: must not be a Pod",
        ),
        ({"objects": [{"apiVersion": "v1"}]}, r"objects\[0\]"),
        (
            {"stream": {"template": {"members": 1, "gather": [{"layer": "Rack"}]}}},
            r"template\.gather: requires at least 2 members",
        ),
    ],
)
def test_impossible_job_amounts_are_refused(changes: dict[str, Any], warning: str) -> None:
    """With the path of the field."""
    with pytest.raises(InputError, match=warning):
        parsed(**changes)


def test_the_example_keeps_every_job_below_one_spine() -> None:
    """The example requires MustGather in the upper layer."""
    workload = read_workload(EXAMPLES / "training-jobs.yaml")
    profile = read_configuration(EXAMPLES / "training-profile.yaml")
    result = simulate(workload, profile, until=6 * 3600)

    spine = {"r0": "s0", "r1": "s0", "r2": "s1", "r3": "s1"}
    jobs: dict[str, set[str]] = {}
    for placement in result.placements:
        if placement.kind == "pretrain" and placement.node:
            job = placement.pod.rpartition("-")[0]
            jobs.setdefault(job, set()).add(spine[placement.node.partition("-")[0]])
    assert jobs
    assert all(len(spines) == 1 for spines in jobs.values())
