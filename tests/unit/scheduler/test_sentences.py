"""Plain sentences for every reason of the built-in plugins."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import koordinator
from koordinator.api.device import DeviceType
from koordinator.domain.devices import allocation
from koordinator.scheduler.explanations.sentences import (
    SENTENCES,
    has_sentence,
    sentence,
    without_names,
)

ROOT = Path(koordinator.__file__).parent

#: Where reasons are written down besides the plugins themselves.
OTHERS = (
    "scheduler/rules/cpus/binding.py",
    "domain/devices/requests.py",
    "domain/devices/pod_request.py",
    "domain/devices/allocation.py",
    "domain/gangs/cache.py",
    "domain/network/plan.py",
    "scheduler/rules/numa/align.py",
    "scheduler/rules/numa/rows.py",
    "scheduler/rules/numa/zone_scorer.py",
    "scheduler/rules/numa/align.py",
    "scheduler/rules/numa/trial.py",
    "domain/dynamic_resources/extended_resources.py",
    "domain/quota/admission.py",
    "domain/quota/hooks.py",
    "scheduler/rules/reservations/match.py",
    "scheduler/rules/reservations/offer.py",
    "scheduler/rules/volumes.py",
    "scheduler/features/gangs/topology.py",
    "scheduler/features/quotas/queues.py",
)
#: Files of plugins with explanations, which are in words already.
FOR_PEOPLE_ONLY = ("constraints.py", "messages.py", "remedies.py")
#: Functions and tables that are in words already.
FOR_PEOPLE = {
    "_term_in_words",
    "missing_volume_remedy",
    "CALLED",
    "_GATE_REASON",  # a pattern of reasons that are below
    "EXAMPLE",  # manifests of the world in which a plugin speaks
    "_BANDS",
    "_IN_WORDS",
    "_UNUSABLE",
    "_broken",
    "_expression_in_words",
    "_hint",
    "_in_words",
    "_matching_instead",
    "_missing_claims",
    "room_detail",
    "template_to_create",
    "_missing_classes",
    "_toleration_in_words",
    "detail",
    "hold_remedies",
    "in_words",
    "node_remedy",
    "objects_to_create",
    "pod_remedies",
    "refusal_detail",
    "remedy",
    "_required_size",
    "size_remedies",
    "unusable",
}
#: Texts that are no reasons: parts of such, names of what is kept, words for people and logs,
#: messages of PostFilter.
NO_REASONS = frozenset(
    (
        # parts, which the whole reasons below have
        "x: x, ",
        " by node",
        ", and x with closed scheduling gates",
        ", requested: 1, used: x, capacity: x",
        ", requested: x, used: x, capacity: x",
        "; best was x with room for x of x",
        "; podCountMultiple constraints: x",
        ";and x with no more room",
        "Insufficient x devices",
        "looking up PVC x: x",
        "neither pod nor PodGroup x is the owner",
        "pod is not owner",
        "numbers from 0 to x",
        "ResourceClaim x was not created for pod x/x (x)",
        "pod's request: x, exceedDimensions: [x]",
        'bound to non-existent persistentvolume "x"',
        "is being deleted",
        'persistentvolumeclaim "x" x',
        "the cluster",
        "topology topologyNode x/x: x",
        "x (missing required label)",
        "x for x",
        "x prefer [x] among [x]",
        "x: x",
        "x: x, ",
        "xInsufficient xx",
        "xToo many podsx",
        # summaries about reservations, beside the reason
        "didn't match affinity rules",
        "didn't match the requested reservation name",
        "exactly matches the requested reservation name",
        "is not exact matched",
        "is unschedulable",
        "x xfor node reason that x",
        "x xhad untolerated taint x",
        "x xmatched owner total",
        "x xx",
        "{x: x}",
        # keys of tables
        "NUMA nodes",
        # around the reason why a bind failed
        'running PreBind plugin "DynamicResources": x',
        # logs, warnings about objects, errors of configurations and of ours
        "child quotas, which keep their minimum until it is recreated",
        "deleted while it had x",
        "moved to parent x, which has no room for its usage: x",
        "pods, which now count in other quotas",
        "gang x is kept although it has no members.",
        "gangs x of Workload x are not all known.",
        "x is in no gang that could be tried.",
        "empty: no hook is installed",
        "one of x",
        "x x",
        "x; x",
        # messages of PostFilter about preemption
        "No victims found for preemptor pod x",
        "no new claims to deallocate",
        "preemption: found a potential placement for pod on node x, preempting x victims",
        "deallocation of ResourceClaim completed",
        "deletion of ResourceClaim completed",
        "still not schedulable",
        "preemption: x",
    )
)

#: The reasons that the code puts together of parts.
WHOLE = (
    "cannot allocate all claims",
    *(f"Insufficient {kind} devices" for kind in DeviceType),
    *(one.reason for one in allocation.NO_VIRTUAL_FUNCTION.values()),
    "Reservation(s) Insufficient cpu, requested: 3000, used: 0, capacity: 2000",
    "Reservation(s) Too many pods, requested: 1, used: 2, capacity: 2",
    "Insufficient memory by node",
    "ResourceClaim default/p-c was not created for pod default/p (pod is not owner)",
    (
        "ResourceClaim default/p-c was not created for pod default/p "
        "(neither pod nor PodGroup g is the owner)"
    ),
    'looking up PVC default/data: persistentvolumeclaim "data" not found',
    'persistentvolumeclaim "data" is being deleted',
    'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
    "Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]",
    (
        "Insufficient quotas, quotaName: team, runtime: map[cpu:2], used: map[cpu:1], "
        "pod's request: map[cpu:2], exceedDimensions: [cpu]"
    ),
    (
        "Insufficient quotas, quotaNameTopo: [root team], runtime: map[cpu:2], used: map[cpu:1], "
        "pod's request: map[cpu:2], exceedDimensions: [cpu]"
    ),
    (
        "Insufficient non-preemptible quotas, quotaName: team, min: map[cpu:2], "
        "nonPreemptibleUsed: map[cpu:1], pod's request: map[cpu:2], exceedDimensions: [cpu]"
    ),
    "Insufficient kubernetes.io/batch-cpu",
    (
        "gang default/g needs 3 members; there were 1 when this was written, "
        "and 1 with closed scheduling gates"
    ),
    (
        "no candidate topology nodes can accommodate job, desiredOfferSlot: 2, topology "
        "topologyNode BlockLayer/b4: 1, x; best was BlockLayer/b4 with room for 1 of 2"
    ),
    "no node has the label zone that nodes of PodGroup default/g must share",
    "members of PodGroup default/g are on nodes with zone=a, which have room for 1 of 2",
    (
        "no value of the label zone has enough nodes for PodGroup default/g; best was a with room "
        "for 1 of 2"
    ),
    (
        "CompositePodGroup default/t: 0/2 placements are available, first placement status: "
        "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
    ),
    "node(s) didn't match pod topology spread constraints (missing required label)",
)


def reasons() -> Iterator[tuple[str, str]]:
    """Yield the reasons of plugins with their source lines."""
    return ((at, text) for at, text in texts() if text not in NO_REASONS)


def texts() -> Iterator[tuple[str, str]]:
    """Yield texts with a space in the code of plugins, with their source lines."""
    folder = ROOT / "scheduler/plugins"
    of_plugins = (path for path in folder.rglob("*.py") if path.name not in FOR_PEOPLE_ONLY)
    files = [*sorted(of_plugins), *(ROOT / name for name in OTHERS)]
    for path in files:
        tree = ast.parse(path.read_text("utf-8"))
        where = str(path.relative_to(ROOT))
        for text in _texts(tree):
            if " " in text.strip():
                yield where, text


def _texts(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) if name in FOR_PEOPLE:
            return
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if (
            name in FOR_PEOPLE
        ):
            return
        case ast.Expr(value=ast.Constant()):
            return  # a docstring
        case ast.Constant(value=str(text)):
            yield text
            return
        case ast.JoinedStr(values=parts):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "x" for p in parts)
            return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child)


def test_every_reason_of_a_plugin_has_a_sentence() -> None:
    """A new reason fails here until it has a sentence."""
    assert not [(at, text) for at, text in reasons() if not has_sentence(text)]


@pytest.mark.parametrize("reason", WHOLE)
def test_composed_reasons_have_a_sentence(reason: str) -> None:
    """Composed reasons contain names and amounts."""
    assert has_sentence(reason), reason


def test_every_exception_is_used() -> None:
    """An unused exception could hide a new reason."""
    assert {text for _, text in texts()} >= NO_REASONS


def test_every_sentence_is_used() -> None:
    """No sentence is left for a removed reason."""
    all_texts = [*(text for _, text in texts()), *WHOLE]
    unused = [p for p, _ in SENTENCES if not any(re.fullmatch(p, text) for text in all_texts)]
    assert not unused


def test_unknown_reason_is_shown_unchanged() -> None:
    """Out-of-tree plugins have their own texts."""
    assert sentence("node(s) were painted green") == "node(s) were painted green"


@pytest.mark.parametrize(
    ("sentence", "alike"),
    [
        (
            "its gang default/train-3 starts with 8 members, and there are 3",
            "its gang … starts with … members, and there are …",
        ),
        ("default/p-1 stands for its gang default/g", "… stands for its gang …"),
        ("too little nvidia.com/gpu is free", "too little nvidia.com/gpu is free"),
        (
            "too little kubernetes.io/batch-cpu is left",
            "too little kubernetes.io/batch-cpu is left",
        ),
        ("quota team-2 has too little cpu left", "quota team-2 has too little cpu left"),
    ],
)
def test_similar_cases_have_equal_texts(sentence: str, alike: str) -> None:
    """Objects and numbers are removed, names of resources and quotas are kept."""
    assert without_names(sentence) == alike
