"""Hints, topology policies, and the one set of NUMA nodes for all resources of a pod.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/util.go, ``getNUMATopologyPolicy``,
``mergeTopologyPolicy``; plugin.go, ``Filter``; koordinator
pkg/scheduler/frameworkext/topologymanager: policy.go, policy_best_effort.go,
policy_restricted.go, policy_single_numa_node.go. The original tries every combination of one hint
per resource and keeps the best. Combinations that all resources prefer name one set throughout,
so they are found set by set here; others count under BestEffort only.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import reduce
from itertools import chain, product
from math import prod
from operator import and_
from typing import Final, NamedTuple

from msgspec import Struct

from koordinator.api.annotations.numa import (
    NUMA_TOPOLOGY_SPEC,
    NumaTopologyExclusive,
    NumaTopologyPolicy,
    NumaTopologySpec,
)
from koordinator.api.labels import NUMA_TOPOLOGY_POLICY
from koordinator.foundation.errors import InputError
from koordinator.foundation.masks import mask_of, mask_text, subsets, zones_of

POLICY_MISMATCH: Final = "node(s) NUMA Topology policy not match"

_POLICIES = {policy.value: policy for policy in NumaTopologyPolicy}

#: Maximum number of combinations tried under BestEffort (four NUMA nodes, three resources).
MAX_COMBINATIONS: Final = 15**3


class TopologyHint(NamedTuple):
    """A sufficient set of NUMA nodes for a resource; None accepts any set."""

    zones: int | None
    preferred: bool
    score: int = 0


#: Hints by resource.  None: any set is acceptable.  Empty: no set is sufficient.
ResourceHints = Mapping[str, Sequence[TopologyHint] | None]


class ZoneState(StrEnum):
    """Kind of pods with bound CPUs on a NUMA node."""

    IDLE = "idle"
    SINGLE = "single"  # only pods within this NUMA node
    SHARED = "shared"  # also pods that span several


class NumaMachine(Struct, frozen=True):
    """The NUMA nodes of a node, ascending, with the state of their bound CPUs."""

    states: Mapping[int, ZoneState]

    @property
    def zones(self) -> tuple[int, ...]:
        """The ids of the NUMA nodes."""
        return tuple(self.states)

    @property
    def all_zones(self) -> int:
        """The set of all NUMA nodes."""
        return mask_of(self.states)

    def accepts(self, zones: int, exclusive: str) -> bool:
        """Return whether a pod may use these NUMA nodes, given the pods on them.

        Only pods that require exclusiveness (NumaTopologyExclusive) are separated: a pod on several
        NUMA nodes from pods on one, and vice versa.
        """
        if exclusive != NumaTopologyExclusive.REQUIRED:
            return True
        bar = ZoneState.SINGLE if zones.bit_count() > 1 else ZoneState.SHARED
        return all(self.states.get(zone) is not bar for zone in zones_of(zones))


def pod_policy(spec: NumaTopologySpec) -> NumaTopologyPolicy:
    """Return the policy of a pod, NONE if it has none.

    Raises InputError for an unknown policy, on which the original panics.
    """
    policy = _POLICIES.get(spec.numa_topology_policy)
    if policy is None:
        accepted = ", ".join(policy for policy in _POLICIES if policy)
        raise InputError(
            f"must be one of {accepted}, got {spec.numa_topology_policy!r}",
            path=f"{NUMA_TOPOLOGY_SPEC.path}.numaTopologyPolicy",
        )
    return policy


def pod_exclusive(spec: NumaTopologySpec) -> str:
    """Return the NumaTopologyExclusive of a pod.

    The default is Required for a pod with a policy.
    """
    default = NumaTopologyExclusive.REQUIRED if spec.numa_topology_policy else ""
    return spec.single_numa_node_exclusive or default


def node_policy(labels: Mapping[str, str], reported: NumaTopologyPolicy) -> NumaTopologyPolicy:
    """Return the policy of a node: its label's, else the reported one.

    An unknown policy in the label counts as none.
    """
    label = labels.get(NUMA_TOPOLOGY_POLICY, "")
    return _POLICIES.get(label, NumaTopologyPolicy.NONE) if label else reported


def policy_on(node: NumaTopologyPolicy, pod: NumaTopologyPolicy) -> NumaTopologyPolicy | None:
    """Return the policy for a pod on a node; None if they conflict (POLICY_MISMATCH)."""
    none = NumaTopologyPolicy.NONE
    if node is not none and pod is not none and node is not pod:
        return None
    return node if pod is none else pod


class Alignment(Struct, frozen=True):
    """The result of a policy; ``zones`` is None if admitted without a set of NUMA nodes."""

    admitted: bool
    zones: int | None = None
    score: int = 0
    reasons: tuple[str, ...] = ()


def align(
    policy: NumaTopologyPolicy,
    providers: Sequence[ResourceHints],
    machine: NumaMachine,
    exclusive: str = "",
) -> Alignment:
    """Return the aligned set of NUMA nodes, or the reasons for a rejection.

    ``providers`` are the hints of each plugin; ``exclusive`` is a NumaTopologyExclusive.
    """
    if policy is NumaTopologyPolicy.NONE:
        return Alignment(admitted=True)
    opinions = [
        (resource, listed)
        for hints in providers
        for resource, listed in hints.items()
        if listed is not None
    ]
    lists = [listed for _, listed in opinions]
    unsatisfied = [name for name, listed in opinions if not listed]
    # BestEffort admits every pod, even if a resource has no hint: this comes before the rejection.
    if policy is NumaTopologyPolicy.BEST_EFFORT:
        return _best_preferred(lists, machine, exclusive) or _best_effort(lists, machine)
    if unsatisfied:
        reasons = tuple(f"Unsatisfied NUMA {resource}" for resource in unsatisfied)
        return Alignment(admitted=False, reasons=reasons)
    single = policy is NumaTopologyPolicy.SINGLE_NUMA_NODE
    if single:
        lists = [
            [hint for hint in hints if hint.zones is None or hint.zones.bit_count() == 1]
            for hints in lists
        ]
    best = _best_preferred(lists, machine, exclusive)
    if best is None:
        parts = sorted(_summary(name, listed) for name, listed in opinions)
        cause = ("," if single else " & ").join(parts)
        return Alignment(admitted=False, reasons=(f"Unaligned NUMA Hint cause {cause}",))
    # With one NUMA node, a set of all nodes is no restriction; the original reports none either.
    return Alignment(admitted=True) if single and best.zones == machine.all_zones else best


def _best_preferred(
    lists: Sequence[Sequence[TopologyHint]], machine: NumaMachine, exclusive: str
) -> Alignment | None:
    """Return the best of the sets that every resource prefers."""
    preferred = [{hint.zones: hint.score for hint in hints if hint.preferred} for hints in lists]
    strict = [scores.keys() for scores in preferred if None not in scores]
    named = (
        set(strict[0]).intersection(*strict)
        if strict
        else {*chain([machine.all_zones], *preferred)}
    )
    best, best_score = 0, 0
    for zones in subsets(machine.zones):
        if best and zones.bit_count() > best.bit_count():
            break  # subsets come by size, and a smaller set always wins
        if zones in named and machine.accepts(zones, exclusive):
            score = sum([scores.get(zones, 0) for scores in preferred])
            if not best or _is_better(zones, score, best, best_score):
                best, best_score = zones, score
    return Alignment(admitted=True, zones=best, score=best_score) if best else None


def _best_effort(lists: Sequence[Sequence[TopologyHint]], machine: NumaMachine) -> Alignment:
    """Return the best set named by all resources, though not preferred; else all NUMA nodes.

    A smaller intersection of hints beats a set that all resources name, as in the original.
    """
    best, best_score, agreed = machine.all_zones, 0, True
    if prod(map(len, lists)) > MAX_COMBINATIONS:
        return Alignment(admitted=True, zones=best)
    for combination in product(*lists):
        named = [hint.zones for hint in combination if hint.zones is not None]
        zones = reduce(and_, named, machine.all_zones)
        if zones and zones.bit_count() <= best.bit_count():
            score = sum(hint.score for hint in combination if hint.zones == zones)
            if _is_better(zones, score, best, best_score):
                best, best_score = zones, score
                agreed = all(other == zones for other in named)
    if agreed:
        return Alignment(admitted=True, zones=best, score=best_score)
    return Alignment(admitted=True, zones=machine.all_zones)


def _is_better(zones: int, score: int, best: int, best_score: int) -> bool:
    """Return whether a set replaces the best one so far: smaller, lower, or higher score."""
    if zones.bit_count() != best.bit_count():
        return zones.bit_count() < best.bit_count()
    return zones < best or score > best_score


def _summary(resource: str, hints: Sequence[TopologyHint]) -> str:
    among = " ".join(mask_text(hint.zones) for hint in hints)
    prefer = " ".join(mask_text(hint.zones) for hint in hints if hint.preferred)
    return f"{resource} prefer [{prefer}] among [{among}]"
