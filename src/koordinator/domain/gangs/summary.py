"""User-facing summary of gangs: members, minimum, and reasons for waiting."""

import dataclasses
import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from koordinator.api.annotations.gang import QUEUE_POSITION, QUEUE_REASON
from koordinator.api.cluster_network_topology import DEFAULT_NAME, ClusterNetworkTopology
from koordinator.api.conditions import find_condition
from koordinator.api.labels import parse_int32
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import (
    CompositePodGroup,
    PodGroup,
    PodGroupPhase,
    PodGroupSpec,
    SchedulingPodGroup,
    SchedulingWorkload,
)
from koordinator.domain.gangs.cache import GangCache
from koordinator.domain.gangs.gang import Gang, MemberState, status_of
from koordinator.domain.gangs.terms import GangDefaults, GangTerms, WorkloadRefs, contradictions
from koordinator.domain.network import OUTSIDE, NetworkTree, layers_of
from koordinator.foundation.errors import InputError

_SCHEDULED = "PodScheduled"
_EARLIEST = dt.datetime.fromtimestamp(0, dt.UTC)  # the start time is not part of the summary
_PHASES_ON_THE_WAY = (PodGroupPhase.PENDING, PodGroupPhase.PRE_SCHEDULING, PodGroupPhase.RUNNING)

Whereabouts = tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]  # layers; node -> its domains


class MemberSummary(msgspec.Struct, frozen=True, rename="camel"):
    """A member; ``why`` is the message of its PodScheduled condition."""

    pod: str
    state: str
    phase: str
    node: str = ""
    domain: str = ""  # network domain path, top first, slash-separated
    why: str = ""


class LayerSummary(msgspec.Struct, frozen=True, rename="camel"):
    """Location of a gang in a layer of the network, and its requirement for the layer."""

    layer: str
    strategy: str = ""  # MustGather or PreferGather
    pod_count_multiple: int = 0
    domains: dict[str, int] = {}  # name -> members


class GangSummary(msgspec.Struct, frozen=True, rename="camel"):
    """A gang; ``min_member`` is 0 while it is unknown."""

    gang: str
    phase: str  # of its PodGroup, or the computed one
    min_member: int
    total: int
    present: int  # members without scheduling gates
    bound: int
    running: int
    mode: str
    match_policy: str
    wait_seconds: float
    group: tuple[str, ...]
    why: str = ""  # reason why it has not started
    queue_position: int | None = None  # in its quota's queue, from the PodGroup's annotation
    queue_reason: str = ""
    warnings: tuple[str, ...] = msgspec.field(default=(), name="complaints")
    network: tuple[LayerSummary, ...] = ()  # top layer first
    members: tuple[MemberSummary, ...] = ()


def gang_summaries(objects: Iterable[KubeObject], defaults: GangDefaults) -> list[GangSummary]:
    """Return all gangs among pods and PodGroups, by name.

    Nodes and a ClusterNetworkTopology supply the network locations of members.
    """
    cache = GangCache(dataclasses.replace(defaults, refs=WorkloadRefs.FIRST, trees=True))
    pods: dict[str, Pod] = {}
    groups: dict[str, PodGroup] = {}
    nodes: list[Node] = []
    topology: ClusterNetworkTopology | None = None
    for obj in objects:
        if isinstance(obj, PodGroup):
            cache.put_group(obj)
            groups[obj.key] = obj
        elif isinstance(obj, SchedulingPodGroup):
            cache.put_pod_group(obj)
        elif isinstance(obj, CompositePodGroup):
            cache.put_composite(obj)
        elif isinstance(obj, SchedulingWorkload):
            cache.put_workload(obj)
        elif isinstance(obj, Pod):
            cache.put_pod(obj)
            pods[obj.key] = obj
        elif isinstance(obj, Node):
            nodes.append(obj)
        elif isinstance(obj, ClusterNetworkTopology) and obj.metadata.name == DEFAULT_NAME:
            topology = obj
    layers, paths = _network(topology, nodes)
    return [
        _summary(cache, gang, pods, groups.get(name), (layers, paths))
        for name, gang in sorted(cache.gangs.items())
        if gang.terms is None or gang.terms.min_member  # min_member 0: independent pods
    ]


def _network(topology: ClusterNetworkTopology | None, nodes: Iterable[Node]) -> Whereabouts:
    """Return the layers below the root, and the names of each node's domains."""
    try:
        layers = layers_of(topology) if topology is not None else ()
    except InputError:
        layers = ()  # the scheduler reports the error
    tree = NetworkTree(layers)
    paths: dict[str, tuple[str, ...]] = {}
    for row, node in enumerate(nodes if layers else ()):
        tree.put(row, node.metadata.name, node.metadata.labels)
        domains = tree.domains(row + 1)[:, row].tolist()
        if OUTSIDE not in domains:
            names = [tree.name(level, domain) for level, domain in enumerate(domains)]
            paths[node.metadata.name] = tuple(names[1:])
    return tuple(layer.name for layer in layers), paths


def _summary(
    cache: GangCache,
    gang: Gang,
    pods: dict[str, Pod],
    stored: PodGroup | None,
    network: Whereabouts,
) -> GangSummary:
    terms = gang.terms
    own = [pods[key] for key in sorted(gang.members)]
    reasons = [why for pod in own if (why := _why(gang, pod))]
    short = cache.shortage(own[0]) if own else "it has no members"
    noted = stored.metadata.annotations if stored else {}
    warnings = dict.fromkeys(terms.warnings if terms else ())
    for pod in own:
        warnings |= dict.fromkeys(
            f"pod {pod.key}: {text}" for text in contradictions(pod, cache.refs)
        )
    return GangSummary(
        gang=gang.id,
        phase=_phase(gang, stored),
        min_member=terms.min_member if terms else 0,
        total=terms.total if terms else 0,
        present=gang.present,
        bound=gang.bound,
        running=gang.phases["Running"],
        mode=terms.mode if terms else "",
        match_policy=terms.match_policy if terms else "",
        wait_seconds=terms.wait_s if terms else 0.0,
        group=terms.group if terms else (),
        why=short or next(iter(reasons), ""),
        queue_position=parse_int32(noted.get(QUEUE_POSITION, "")),
        queue_reason=noted.get(QUEUE_REASON, ""),
        warnings=tuple(warnings),
        network=tuple(_layers(terms, own, network)),
        members=tuple(
            MemberSummary(
                pod.key,
                gang.members[pod.key].state,
                pod.status.phase,
                pod.spec.node_name,
                "/".join(network[1].get(pod.spec.node_name, ())),
                _why(gang, pod),
            )
            for pod in own
        ),
    )


def _phase(gang: Gang, stored: PodGroup | None) -> str:
    """Return the phase of the PodGroup, or the phase it would have."""
    if stored is not None and stored.status.phase:
        return stored.status.phase
    if gang.terms is None:
        return ""
    group = stored or PodGroup(spec=PodGroupSpec(min_member=gang.terms.min_member))
    for _ in _PHASES_ON_THE_WAY:
        group = replace(group, status=status_of(group, gang, _EARLIEST))
    return group.status.phase


def _layers(
    terms: GangTerms | None, pods: Iterable[Pod], network: Whereabouts
) -> Iterator[LayerSummary]:
    """Yield every layer that exists or that the gang has a rule for."""
    layers, paths = network
    spec = terms.network if terms else None
    rules = {rule.layer: rule for rule in (spec.gather_strategy if spec else ())}
    places = [paths[pod.spec.node_name] for pod in pods if pod.spec.node_name in paths]
    for level, layer in enumerate(layers):
        rule = rules.pop(layer, None)
        names = Counter("/".join(path[: level + 1]) for path in places)
        if rule is not None or names:
            yield LayerSummary(
                layer,
                rule.strategy if rule else "",
                rule.pod_count_multiple if rule else 0,
                dict(sorted(names.items())),
            )
    for rule in rules.values():
        yield LayerSummary(rule.layer, rule.strategy, rule.pod_count_multiple)


def _why(gang: Gang, pod: Pod) -> str:
    """Return the message of the pod's PodScheduled condition, unless it has a node."""
    if gang.members[pod.key].state is MemberState.BOUND:
        return ""
    condition = find_condition(pod.status.conditions, _SCHEDULED)
    return condition.message if condition is not None and condition.status == "False" else ""
