"""Properties of storage in any order of events."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.plugins.volumes import (
    DRIVER,
    HOSTNAME,
    World,
    claim,
    csi_node,
    ephemeral,
    mount,
    owned,
    pod,
    storage_class,
    volume,
)

from koordinator.api.kubescheduler import VolumeBindingArgs
from koordinator.api.pod import Pod
from koordinator.api.volume import (
    PersistentVolume,
    PersistentVolumeClaim,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
)
from koordinator.scheduler.contract import AllocationResult, NoArgs
from koordinator.scheduler.plugins.node_volume_limits import PLUGIN as LIMITS_PLUGIN
from koordinator.scheduler.plugins.volume_binding import PLUGIN as BINDING_PLUGIN
from koordinator.scheduler.plugins.volume_binding.claims import match_volumes, reach
from koordinator.scheduler.plugins.volume_restrictions import PLUGIN as RESTRICTIONS_PLUGIN
from koordinator.scheduler.rules.volumes import (
    SELECTED_NODE,
    capacity,
    claim_name,
    is_meant_for,
    requested,
)
from koordinator.scheduler.snapshot import ResourceAxis
from koordinator.scheduler.transaction import Transaction

AXIS = ResourceAxis()
RESTRICTIONS = RESTRICTIONS_PLUGIN.build(NoArgs(), AXIS)
LIMITS = LIMITS_PLUGIN.build(NoArgs(), AXIS)
BINDING = BINDING_PLUGIN.build(VolumeBindingArgs(), AXIS)
PLUGINS = (RESTRICTIONS, LIMITS, BINDING)
NODES = ("n0", "n1", "n2")
CLAIMS = tuple(f"c{i}" for i in range(6))


@dataclass(frozen=True)
class Storage:
    """Random cluster: limits by node, volumes and claims by size, pods with mounts."""

    limits: list[int]
    volumes: list[tuple[int, frozenset[str]]]  # size, nodes (none: all)
    claims: list[tuple[int, bool]]  # size, for one pod only
    pods: list[tuple[frozenset[str], int, bool, bool]]  # claims, preferred node, leaves, scratch
    dynamic: bool = field(default=False)


def storages() -> st.SearchStrategy[Storage]:
    sizes = st.integers(1, 4)
    names = st.frozensets(st.sampled_from(CLAIMS), min_size=1, max_size=3)
    return st.builds(
        Storage,
        limits=st.lists(st.integers(0, 4), min_size=len(NODES), max_size=len(NODES)),
        volumes=st.lists(
            st.tuples(sizes, st.frozensets(st.sampled_from(NODES), max_size=2)), max_size=8
        ),
        claims=st.lists(
            st.tuples(sizes, st.booleans()), min_size=len(CLAIMS), max_size=len(CLAIMS)
        ),
        pods=st.lists(
            st.tuples(names, st.integers(0, len(NODES) - 1), st.booleans(), st.booleans()),
            max_size=10,
        ),
        dynamic=st.booleans(),
    )


def build(storage: Storage) -> World:
    modes = {True: ("ReadWriteOncePod",), False: ("ReadWriteOnce",)}
    both = ("ReadWriteOncePod", "ReadWriteOnce")
    label = TopologySelectorLabelRequirement(key=HOSTNAME, values=NODES if storage.dynamic else ())
    allowed = (TopologySelectorTerm(match_label_expressions=(label,)),)
    return World(
        {name: {} for name in NODES},
        storage_class("late", allowed_topologies=allowed),
        *(csi_node(n, {DRIVER: limit}) for n, limit in zip(NODES, storage.limits, strict=True)),
        *(
            volume(
                f"v{i}",
                size=f"{size}Gi",
                on={HOSTNAME: nodes} if nodes else None,
                access_modes=both,
            )
            for i, (size, nodes) in enumerate(storage.volumes)
        ),
        *(
            claim(name, size=f"{size}Gi", access_modes=modes[alone])
            for name, (size, alone) in zip(CLAIMS, storage.claims, strict=True)
        ),
    )


def arriving(world: World, name: str, claims: frozenset[str], *, scratch: bool) -> Pod:
    """Return a pod, sometimes with an ephemeral volume whose claim exists by then."""
    extra = (ephemeral(size="1Gi"),) if scratch else ()
    new = pod(name, *map(mount, sorted(claims)), *extra)
    if scratch:
        world.put(owned(claim(f"{name}-scratch", size="1Gi"), new))
    return new


def place(world: World, pod: Pod, preferred: int) -> bool:
    """Place the pod on the first node from the preferred one on that passes all filters."""
    if any(world.refusal(p, pod) for p in (RESTRICTIONS, BINDING)):
        return False
    rejected = set().union(*(world.reasons(plugin, pod) for plugin in PLUGINS))
    for step in range(len(NODES)):
        node = NODES[(preferred + step) % len(NODES)]
        if node not in rejected:
            world.schedule(BINDING, pod, node)
            return True
    return False


def check(world: World, storage: Storage) -> None:
    """Check every reservation against the objects alone."""
    objects, placed = world.state.objects, world.snapshot.pods.values()
    names = world.snapshot.node_names
    claims = {item.metadata.name: item for item in objects.all(PersistentVolumeClaim)}
    users: defaultdict[str, list[str]] = defaultdict(list)
    for item in placed:
        for mounted in item.pod.spec.volumes:
            users[claim_name(item.pod.metadata.name, mounted)].append(names[item.row])
    owners = {item.metadata.name: owner_of(item, claims) for item in objects.all(PersistentVolume)}
    taken = [owner for owner in owners.values() if owner is not None]
    assert len(taken) == len(set(taken))
    for index, (size, nodes) in enumerate(storage.volumes):
        owner = owners[f"v{index}"]
        assert owner is None or requested(claims[owner]).value() <= size << 30
        assert owner is None or not nodes or set(users[owner]) <= nodes
    alone = {name for name, (_, one) in zip(CLAIMS, storage.claims, strict=True) if one}
    for name, one_claim in claims.items():
        assert len(users[name]) <= 1 or (name in CLAIMS and name not in alone)
        selected = one_claim.metadata.annotations.get(SELECTED_NODE)
        assert selected is None or name not in taken
        assert selected is None or set(users[name]) <= {selected}
    for node, limit in zip(NODES, storage.limits, strict=True):
        assert sum(node in nodes for nodes in users.values()) <= limit


def owner_of(item: PersistentVolume, claims: dict[str, PersistentVolumeClaim]) -> str | None:
    assert capacity(item).value() > 0
    return next((name for name, one in claims.items() if is_meant_for(item, one)), None)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(storage=storages())
def test_filters_keep_all_storage_limits(storage: Storage) -> None:
    """No volume has two claims, no node too many volumes, no exclusive claim two pods.

    No claim has a volume that is too small or out of reach of one of its pods.
    """
    world = build(storage)
    for number, (names, preferred, leaves, scratch) in enumerate(storage.pods):
        pod = arriving(world, f"p{number}", names, scratch=scratch)
        if place(world, pod, preferred):
            check(world, storage)
            if leaves:
                world.stop(pod)
    check(world, storage)


def search(storage: Storage, names: list[str], node: str) -> dict[str, str]:
    """Return the volume of each claim on one node by a sequential search."""
    sizes = dict(zip(CLAIMS, (size for size, _ in storage.claims), strict=True))
    chosen: dict[str, str] = {}
    for name in sorted(names, key=lambda name: sizes[name]):
        best: tuple[int, int] | None = None
        for index, (size, nodes) in enumerate(storage.volumes):
            usable = size >= sizes[name] and (not nodes or node in nodes)
            if usable and f"v{index}" not in chosen.values():
                best = min(best or (size, index), (size, index))
        if best is not None:
            chosen[name] = f"v{best[1]}"
    return chosen


@given(storage=storages(), names=st.lists(st.sampled_from(CLAIMS), unique=True, min_size=1))
def test_array_search_equals_the_search_by_node(storage: Storage, names: list[str]) -> None:
    """The array search gives every claim the volume that a search on that node would give it."""
    whole = build(storage).snapshot
    claims = [
        item for item in whole.objects.all(PersistentVolumeClaim) if item.metadata.name in names
    ]
    matches = match_volumes(whole.objects, claims, reach(whole))

    for row, node in enumerate(whole.node_names):
        result = {claim.metadata.name: item.metadata.name for claim, item in matches.on(row)}
        assert result == search(storage, [item.metadata.name for item in claims], node)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(storage=storages())
def test_cached_results_equal_results_from_scratch(storage: Storage) -> None:
    """Results do not depend on earlier calls, nor on transactions that were rolled back."""
    world = build(storage)
    for number, (names, preferred, leaves, scratch) in enumerate(storage.pods):
        pod = arriving(world, f"p{number}", names, scratch=scratch)
        pod_class, key = world.pod_class(pod), f"trial of p{number}"
        with Transaction(world.state) as trial:
            trial.place(key, pod, pod_class, preferred)
            allocation = BINDING.reserve(world.snapshot[np.array([preferred])], pod_class, None)
            for item in allocation.objects if isinstance(allocation, AllocationResult) else ():
                trial.put_object(item)
            _ = [world.reasons(plugin, pod) for plugin in PLUGINS]
        kept = [world.reasons(plugin, pod) for plugin in PLUGINS]
        world.state.memory.clear()
        assert kept == [world.reasons(plugin, pod) for plugin in PLUGINS]
        if place(world, pod, preferred) and leaves:
            world.stop(pod)
