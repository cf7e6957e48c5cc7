"""Recorded decisions of koord-descheduler: jobs, reasons, evictions, deletion costs, cordons.

The recording and the generator of its clusters are not part of the repository: ``KOORD_SHARED``
is their folder, by default beside it.
"""

import importlib.util
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from koordinator.api.annotations.scheduling import (
    EVICT_REASON,
    EVICT_TRIGGER,
    PASSED_ARBITRATION,
    POD_DELETION_COST,
    SOFT_EVICTION,
)
from koordinator.api.codec import decode_object
from koordinator.api.defaults import with_defaults
from koordinator.api.meta import JsonObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.simulator.descheduled import CycleReport, deschedule_once
from koordinator.simulator.policies import default_configuration

SHARED = Path(os.environ.get("KOORD_SHARED", Path(__file__).resolve().parents[4] / "shared"))
PARITY = SHARED / "parity/descheduler"
NOW = 1_800_000_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PARITY.is_dir(), reason=f"{PARITY} is not there"),
]


def test_recorded_decisions_of_koord_descheduler_are_reproduced() -> None:
    """Run one cycle and one arbitration on each recorded cluster, without proofs.

    Jobs, reasons, triggers, modes, times to live and admitted jobs are the same, as are
    deletion costs and cordons; of evictions how many there are of each workload, or of each
    namespace where that is limited: the original leaves it to chance which job gets the token.
    """
    scenarios = _imported("descheduler_scenarios")
    cases = json.loads((PARITY / "koord-descheduler.json").read_text())["cases"]
    assert len(cases) >= 48
    result = {}
    for case in cases:
        made = scenarios.scenario(case["seed"], NOW)
        report = deschedule_once(
            [with_defaults(decode_object(manifest)) for manifest in made["objects"]],
            decode_descheduler_configuration({**made["config"], "proveMoves": False}, "recorded"),
            now_s=NOW,
            prover=default_configuration(),
        )
        limited = json.dumps(made["config"]).partition('"objectLimiters"')[2]
        by = _namespaces if '"namespace": {' in limited else _workloads
        differences = _differences(case["expect"], report, by)
        if differences:
            result[f"{case['seed']} {case['family']}"] = differences
    assert result == {}


def _differences(
    expected: JsonObject, report: CycleReport, by: Callable[[Iterable[str]], Counter[str]]
) -> list[str]:
    """Return what differs; ``by`` counts evicted pods by what limits evictions."""
    created = report.changes.created
    changed = [*report.changes.changed, *report.changes.deleted]
    pods = [obj for obj in changed if isinstance(obj, Pod)]
    jobs = {_job(obj) for obj in created if isinstance(obj, PodMigrationJob)}
    wanted_costs = _annotated(expected["annotated"], POD_DELETION_COST)
    costs = {pod.key: pod.metadata.annotations.get(POD_DELETION_COST) for pod in pods}
    soft_evicted = [pod.key for pod in pods if SOFT_EVICTION.key in pod.metadata.annotations]
    evicted = [obj.key for obj in report.changes.deleted if isinstance(obj, Pod)]
    cordoned = [obj.key for obj in changed if isinstance(obj, Node) and obj.spec.unschedulable]
    compared = {
        "jobs": (jobs, set(map(_recorded_job, expected["jobs"]))),
        "costs": ({key: costs.get(key) for key in wanted_costs}, wanted_costs),
        "evicted": (by(evicted), by(expected["evicted"])),
        "asked to go": (
            by(soft_evicted),
            by(_annotated(expected["annotated"], SOFT_EVICTION.key)),
        ),
        "cordoned": (sorted(cordoned), sorted(expected["cordoned"])),
        "error": (bool(report.cycles[0].problems), expected["error"] is not None),
    }
    return [
        f"{name}: found {ours}, recorded {theirs}"
        for name, (ours, theirs) in compared.items()
        if ours != theirs
    ]


def _job(job: PodMigrationJob) -> tuple[object, ...]:
    annotations, spec = job.metadata.annotations, job.spec
    return (
        f"{spec.pod_ref.namespace}/{spec.pod_ref.name}",
        annotations.get(EVICT_REASON, ""),
        annotations.get(EVICT_TRIGGER, ""),
        spec.mode,
        str(spec.ttl),
        annotations.get(PASSED_ARBITRATION) == "true",
    )


def _recorded_job(job: JsonObject) -> tuple[object, ...]:
    names = ("pod", "reason", "trigger", "mode", "ttl", "passed")
    return tuple(job[name] or "" if name == "reason" else job[name] for name in names)


def _annotated(pods: Mapping[str, Mapping[str, str]], key: str) -> dict[str, str]:
    return {pod: annotations[key] for pod, annotations in pods.items() if key in annotations}


def _workloads(pods: Iterable[str]) -> Counter[str]:
    """Return how many pods there are of each workload: names are ``namespace/workload-number``."""
    return Counter(pod.rpartition("-")[0] for pod in pods)


def _namespaces(pods: Iterable[str]) -> Counter[str]:
    return Counter(pod.partition("/")[0] for pod in pods)


def _imported(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PARITY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
