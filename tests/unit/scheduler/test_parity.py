"""Recorded decisions of kube-scheduler and koord-scheduler: outcome, message, every score.

The recordings and the generators of their clusters are not part of the repository: ``KOORD_SHARED``
is their folder, by default beside it.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.annotations.numa import RESOURCE_STATUS
from koordinator.api.codec import decode_object
from koordinator.api.defaults import with_defaults
from koordinator.api.kube_version import V1_35, V1_37, KubeVersion
from koordinator.api.kubescheduler import FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.cli.input.configuration import read_configuration
from koordinator.scheduler.loop import Bound, Unschedulable
from koordinator.simulator import ScheduleResult, schedule
from koordinator.simulator.embedded import STOCK

HERE = Path(__file__).resolve()
SHARED = Path(os.environ.get("KOORD_SHARED", HERE.parents[4] / "shared"))
PARITY = SHARED / "parity"
KUBE_SCHEDULERS = (
    (PARITY / "kube-scheduler.json", V1_35),
    (PARITY / "kube-scheduler-1.37.json", V1_37),
)
KOORD_SCHEDULER = PARITY / "koord-scheduler.json"
ALLOCATIONS = (ALLOCATED.key, RESOURCE_STATUS.key)
NOW_S = 1_767_225_610.0  # 2026-01-01T00:00:10Z

Part = Callable[[str], object]  # what of a message has to be the same

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not PARITY.is_dir(), reason=f"{PARITY} is not there"),
]


@pytest.mark.parametrize(("recording", "level"), KUBE_SCHEDULERS)
def test_every_recorded_decision_of_kube_scheduler_is_made_again(
    recording: Path, level: KubeVersion
) -> None:
    """Any of equally scored nodes is right; messages are identical."""
    assert _all_differences(recording, "stock", STOCK, str, level) == []


def test_every_recorded_decision_of_koord_scheduler_is_made_again() -> None:
    """The clusters have devices, NUMA nodes and measured load, with the configuration of the chart.

    Its messages end with the preemption results of each plugin; that part is left out.
    """
    configuration = read_configuration(PARITY / "koord.yaml")

    assert _all_differences(KOORD_SCHEDULER, "koord", configuration, _reasons, V1_35) == []


def _all_differences(
    recording: Path,
    which: str,
    configuration: KubeSchedulerConfiguration,
    part: Part,
    level: KubeVersion,
) -> list[str]:
    cases = list(_cases(recording, which))
    assert cases
    return [text for case in cases for text in _differences(*case, configuration, part, level)]


def _cases(recording: Path, which: str) -> Iterator[tuple[JsonObject, list[KubeObject]]]:
    """Yield the recorded decisions with the cluster before and the pending pod."""
    compare = _imported("compare")
    for case, before, pending in compare.clusters(json.loads(recording.read_text()), which):
        if case["expect"]:
            manifests = [*before, pending]
            yield case, [with_defaults(decode_object(manifest)) for manifest in manifests]


def _differences(
    case: JsonObject,
    objects: list[KubeObject],
    configuration: KubeSchedulerConfiguration,
    part: Part,
    level: KubeVersion,
) -> Iterator[str]:
    where, key = f"seed {case['seed']} {case['pod']}", f"default/{case['pod']}"
    result = schedule(
        objects, configuration, now_s=NOW_S, explain=True, gates=FeatureGates.parse("", level)
    )
    if "node" in case["expect"]:
        bound = next((b for b in result.placements if b.pod == key), None)
        if bound is None:
            yield f"{where}: recorded is {case['expect']['node']}, found {_refusal(result, key)}"
        else:
            yield from _different_scores(where, case, bound)
            yield from _different_annotations(where, case["expect"], bound)
    else:
        refused = _refusal(result, key)
        message, recorded = refused.message if refused else "", case["expect"]["message"]
        if refused is None or part(message) != part(recorded):
            yield f"{where}: recorded is {recorded!r}, found {message!r}"


def _reasons(message: str) -> tuple[str, frozenset[str]]:
    """Return the reasons of a message in any order, without its preemption part."""
    head, _, reasons = message.partition(". preemption:")[0].partition(": ")
    return head, frozenset(reason.strip(" .") for reason in reasons.split(", "))


def _different_annotations(where: str, recorded: JsonObject, bound: Bound) -> Iterator[str]:
    if bound.node != recorded["node"]:
        return
    for key, text in recorded.get("annotations", {}).items():
        actual = bound.annotations.get(key)
        if key in ALLOCATIONS and (actual is None or json.loads(actual) != json.loads(text)):
            yield f"{where}: recorded is {key} {text}, found {actual}"


def _different_scores(where: str, case: JsonObject, bound: Bound) -> Iterator[str]:
    final: dict[str, int] = case["final"]
    best = {n for n, score in final.items() if score == max(final.values())}
    if bound.node not in (best or {case["expect"]["node"]}):
        yield f"{where}: recorded is {case['expect']['node']}, found {bound.node}"
    assert bound.scorecard is not None
    table = bound.scorecard.score_table()
    for name, score in final.items():
        scores: dict[str, Any] = table.get(name, {})
        actual = {plugin: scores.get(plugin, 0) for plugin in case["plugins"].get(name, {})}
        recorded = case["plugins"].get(name, {})
        if (actual, scores.get("total")) != (recorded, score):
            yield f"{where} {name}: recorded is {recorded} = {score}, found {scores}"
    if final and table.keys() != final.keys():
        yield f"{where}: recorded as feasible is {sorted(final)}, found {sorted(table)}"


def _refusal(result: ScheduleResult, key: str) -> Unschedulable | None:
    return next((u for u in result.unschedulable if u.pod == key), None)


def _imported(name: str) -> ModuleType:
    """Import a module of the recordings by path, with its siblings on the path."""
    folder = PARITY
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module
