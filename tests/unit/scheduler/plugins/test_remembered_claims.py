"""Remembered claims and verdicts equal a fresh reading, whatever has changed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.plugins.test_dynamic_resources import (
    GPUS,
    V1,
    claim,
    gpu_claim_spec,
    slice_of,
    user,
)
from tests.worlds import embedded, made, node

from koordinator.api.dynamic_resources import DeviceClass, ResourceClaim
from koordinator.api.meta import KubeObject
from koordinator.domain.dynamic_resources.allocator import (
    NO_GATES,
    NodeAllocation,
    allocate,
)
from koordinator.scheduler.contract import Refusal
from koordinator.scheduler.plugins.dynamic_resources import claims as of_claims
from koordinator.scheduler.plugins.dynamic_resources import verdicts as of_verdicts
from koordinator.scheduler.plugins.dynamic_resources.claims import (
    PodDeviceClaims,
    forget_claims,
    read_claims,
)
from koordinator.scheduler.plugins.dynamic_resources.verdicts import verdict_of, verdict_table
from koordinator.scheduler.snapshot import PodClass, Snapshot
from koordinator.simulator import Embedded

NODES = ("a", "b", "c")
NAMES = ("c0", "c1")
INDEX = 'device.attributes["gpu.example.com"].index'


def allocated(name: str, to: str, device: int) -> KubeObject:
    """Return a claim with a device of a node."""
    result = {"driver": "gpu.example.com", "pool": to, "device": f"gpu-{device}", "request": "r"}
    status = {"allocation": {"devices": {"results": [result]}}}
    return made("ResourceClaim", name, V1, spec=gpu_claim_spec(), status=status)


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, KubeObject]:
    """Draw a change: ``put`` or ``drop``, and the object."""
    what = draw(st.sampled_from(["claim", "claim", "used", "other", "class", "slice"]))
    if what == "claim":
        selectors = draw(st.sampled_from([(), (f"{INDEX} >= 1",), (f"{INDEX} >=",)]))
        obj = claim(draw(st.sampled_from(NAMES)), draw(st.integers(1, 3)), *selectors)
    elif what == "used":
        obj = allocated(draw(st.sampled_from(NAMES)), draw(st.sampled_from(NODES)), 0)
    elif what == "other":
        of = draw(st.sampled_from(NODES))
        obj = allocated(f"other-{of}", of, draw(st.integers(0, 2)))
    elif what == "class":
        text = draw(st.sampled_from(["true", "false", f"{INDEX} < 2"]))
        obj = made("DeviceClass", "gpu", V1, spec={"selectors": [{"cel": {"expression": text}}]})
    else:
        obj = slice_of(draw(st.sampled_from(NODES)), draw(st.integers(0, 3)))
    return draw(st.sampled_from(["put", "put", "put", "drop"])), obj


def read_afresh(snapshot: Snapshot, pod_class: PodClass) -> PodDeviceClaims | Refusal:
    """Return the claims of a pod, read without what is kept."""
    forget_claims(pod_class)
    return read_claims(snapshot, pod_class, None)


def world() -> tuple[Embedded, list[PodClass]]:
    """Return a cluster with one slice per node, and the classes of two pods with claims."""
    one = embedded(*(node(name) for name in NODES), *(slice_of(name, 2) for name in NODES), GPUS)
    pods = [user("p0", "c0"), user("p1", "c0", "c1")]
    return one, [one.state.classes.of(each) for each in pods]


@settings(max_examples=examples(60), deadline=None)
@given(steps=st.lists(changes(), max_size=12))
def test_kept_claims_and_verdicts_are_current(steps: list[tuple[str, KubeObject]]) -> None:
    """After each change: the same claims, and the verdict and devices of the allocator per node."""
    one, pod_classes = world()
    objects = one.state.objects
    for how, obj in steps:
        if how == "put":
            objects.put(obj)
        elif objects.get(type(obj), obj.key) is not None:
            objects.drop(obj)
        snapshot = Snapshot(one.state)
        for pod_class in pod_classes:
            kept = read_claims(snapshot, pod_class, None)
            assert kept == read_afresh(snapshot, pod_class)
            if isinstance(kept, Refusal) or not kept.pending:
                continue
            table = verdict_table(snapshot, NO_GATES)
            verdicts = table.of_claims(kept.pending, len(snapshot), kept.avoids)
            for row in range(len(snapshot)):
                pools = table.devices.pools(row, kept.avoids)
                plain = allocate(pools, kept.pending, table.devices.use)
                assert (verdicts.codes[row], verdicts.scores[row]) == verdict_of(plain)
                assert table.allocation(kept.pending, row, kept.avoids) == plain


def device_on(one: Embedded, pod_class: PodClass, name: str) -> str:
    """Return the name of the device that a pod with one claim gets on a node; empty: none."""
    snapshot = Snapshot(one.state)
    kept = read_claims(snapshot, pod_class, None)
    assert isinstance(kept, PodDeviceClaims)
    row = one.state.nodes.rows[name]
    allocation = verdict_table(snapshot, NO_GATES).allocation(kept.pending, row, kept.avoids)
    if not isinstance(allocation, NodeAllocation):
        return ""
    return allocation.claims[0][0].device.id[2]


def test_devices_of_alike_nodes_are_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The free devices of a node decide the result, not its name."""
    one, (pod_class, _) = world()
    objects = one.state.objects
    for obj in (claim("c0"), allocated("other-b", "b", 0)):
        objects.put(obj)
    kept = read_claims(Snapshot(one.state), pod_class, None)
    assert isinstance(kept, PodDeviceClaims)
    verdict_table(Snapshot(one.state), NO_GATES).of_claims(kept.pending, len(NODES))
    with monkeypatch.context() as patch:
        patch.setattr(of_verdicts, "allocate", None)
        before = [device_on(one, pod_class, name) for name in NODES]
    objects.put(allocated("other-a", "a", 0))
    objects.put(slice_of("b", 1))

    assert before == ["gpu-0", "gpu-1", "gpu-0"]
    assert [device_on(one, pod_class, name) for name in NODES] == ["gpu-1", "", "gpu-0"]


def test_claims_are_read_once_for_an_attempt() -> None:
    """As long as neither a claim nor a class changes; the slices have no part in it."""
    one, (pod_class, _) = world()
    objects = one.state.objects
    objects.put(claim("c0"))
    snapshot = Snapshot(one.state)
    kept = read_claims(snapshot, pod_class, None)

    objects.put(slice_of("a", 1))
    assert read_claims(snapshot, pod_class, None) is kept
    for kind in (ResourceClaim, DeviceClass):
        again: Any = next(iter(objects.all(kind)))
        objects.put(again)
        changed = read_claims(snapshot, pod_class, None)
        assert changed is not kept
        assert changed == kept
        kept = changed


def test_claims_of_a_placed_pod_are_not_kept() -> None:
    """Claims are cached for attempts; a cluster has many placed pods."""
    one = embedded(node("n"), slice_of("n", 1), GPUS, claim("c"), user("p", "c"))
    one.run_to_fixed_point()
    placed = one.state.placed("default/p")

    assert placed is not None
    assert of_claims._CLAIMS.peek(placed.pod_class) is None
