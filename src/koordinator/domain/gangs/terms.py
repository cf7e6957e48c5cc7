"""Requirements of a gang, parsed from a Workload, a PodGroup, annotations or labels.

Invalid values count as missing, as they do upstream; unlike upstream, a warning reports them.

Source: koordinator pkg/scheduler/plugins/coscheduling/core/gang.go ``tryInitByPodConfig``,
``tryInitByPodGroup``; pkg/scheduler/plugins/coscheduling/util; kubernetes
pkg/scheduler/framework/plugins/gangscheduling.
"""

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Final

from koordinator.api.annotations import gang as keys
from koordinator.api.annotations.gang import GangMatchPolicy, GangMode
from koordinator.api.kube_version import V1_36, V1_37, KubeVersion
from koordinator.api.labels import (
    LIGHTWEIGHT_MIN_AVAILABLE,
    LIGHTWEIGHT_POD_GROUP,
    POD_GROUP,
    parse_int32,
)
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import Pod, PodSpec, SchedulingGroup, WorkloadReference
from koordinator.api.pod_groups import (
    CompositePodGroup,
    PodGroup,
    PodGroupPolicy,
    SchedulingPodGroup,
    SchedulingPodGroupV1Alpha2,
    SchedulingWorkload,
)
from koordinator.domain.gangs.trees import POD_GROUP_SEGMENT, GroupTree, id_of_pod_group
from koordinator.domain.network import warnings_about
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

#: Values of the gang labels and annotations of a pod, None for each missing one.
GangTexts = tuple[str | None, ...]

_TERMS = (
    keys.MIN_AVAILABLE,
    keys.TOTAL_NUMBER,
    keys.MODE,
    keys.MATCH_POLICY,
    keys.MATCH_POLICY_ALIAS,
    keys.WAITING_TIME,
    keys.GROUPS.key,
    keys.NETWORK_TOPOLOGY_SPEC.key,
)
#: Kinds of scheduling.k8s.io that define pod groups.
GROUP_KINDS: Final = (SchedulingWorkload, SchedulingPodGroup, CompositePodGroup)
#: A pod's reference to a group of scheduling.k8s.io: of a Workload (1.35), or a PodGroup.
GroupReference = WorkloadReference | SchedulingGroup


class WorkloadRefs(StrEnum):
    """Meaning of ``spec.workloadRef`` and ``spec.schedulingGroup`` of pods."""

    IGNORED = "ignored"  # nothing
    FIRST = "first"  # a reference takes precedence over labels and annotations
    ONLY = "only"  # labels and annotations don't define gangs


@dataclass(frozen=True, slots=True)
class GangDefaults:
    """Defaults of gangs and compatibility settings; the values of CoschedulingArgs."""

    wait_s: float = 600.0
    match_policy: str = GangMatchPolicy.ONCE_SATISFIED
    gathers: bool = False  # network topology requirements apply
    refs: WorkloadRefs = WorkloadRefs.IGNORED
    level: KubeVersion | None = None  # None: groups of all releases apply
    trees: bool = False  # PodGroups below one CompositePodGroup start together
    notifies_all_members: bool = True  # members that fit learn why their gang has no nodes

    def reads(self, kind: type[KubeObject]) -> bool:
        """Return whether objects of a kind apply at the compatibility level."""
        level = self.level
        if kind is CompositePodGroup:
            return self.trees and self.refs is not WorkloadRefs.IGNORED
        if self.refs is WorkloadRefs.IGNORED or level is None:
            return self.refs is not WorkloadRefs.IGNORED
        if kind is SchedulingWorkload:
            return level < V1_36
        return level >= V1_36 and (kind is SchedulingPodGroupV1Alpha2) == (level < V1_37)

    def group_named_by(self, spec: PodSpec) -> GroupReference | None:
        """Return a pod's group reference if it applies at the compatibility level."""
        if self.refs is WorkloadRefs.IGNORED:
            return None
        if self.level is None:
            return group_reference(spec)
        return spec.workload_ref if self.level < V1_36 else spec.scheduling_group


@dataclass(frozen=True, slots=True)
class PodGroupTerms:
    """Requirements that only a PodGroup of scheduling.k8s.io can state."""

    uid: str
    priority: int
    topology_key: str  # node label whose value members must share; empty: none
    goes_as_whole: bool  # preempting one member preempts all
    preemption_policy: str = ""  # empty: PreemptLowerPriority
    has_fixed_minimum: bool = False  # the API server refuses to change it (1.36)


@dataclass(frozen=True, slots=True)
class GangTerms:
    """Number of members that start together, and behaviour while there are fewer."""

    id: str  # namespace/name
    min_member: int  # at least 1; 0 for the basic policy: independent members
    total: int  # expected number of members, informational
    mode: GangMode
    match_policy: str  # a GangMatchPolicy; unknown values count as once-satisfied
    wait_s: float  # time that a placed member waits for the others
    group: tuple[str, ...]  # ids of gangs that start together, with its own, sorted
    has_object: bool = False  # a PodGroup exists
    workload: str = ""  # namespace/name of the defining Workload
    pod_group: PodGroupTerms | None = None  # of a PodGroup of scheduling.k8s.io
    tree: GroupTree | None = None  # the PodGroups that start with it
    problem: str = ""  # why it cannot start, whatever members it has
    network: keys.NetworkTopologySpec | None = None  # topology requirement
    warnings: tuple[str, ...] = ()  # ignored values and the reasons

    @property
    def unit(self) -> tuple[str, ...]:
        """Ids of the gangs that are preempted with it."""
        return self.group if self.tree is None else self.tree.units[self.id]

    @property
    def group_id(self) -> str:
        """The id of the gang group."""
        return ",".join(self.group) if self.tree is None else self.tree.group_id


def gang_id(
    meta: ObjectMeta,
    ref: GroupReference | None = None,
    refs: WorkloadRefs = WorkloadRefs.FIRST,
) -> str:
    """Return ``namespace/name`` of the gang of a pod; empty if it has none.

    ``ref`` is the pod's reference to a group of scheduling.k8s.io. The gang of a Workload is
    ``namespace/workload/group``, followed by the replica key if there is one; the gang of a
    PodGroup is ``namespace/podGroup/name``.
    """
    if isinstance(ref, SchedulingGroup) and refs is not WorkloadRefs.IGNORED:
        return f"{meta.namespace}/{POD_GROUP_SEGMENT}/{ref.pod_group_name}"
    if (
        ref is not None
        and not isinstance(ref, SchedulingGroup)
        and refs is not WorkloadRefs.IGNORED
    ):
        parts = (meta.namespace, ref.name, ref.pod_group, ref.pod_group_replica_key)
        return "/".join(filter(None, parts))
    name = "" if refs is WorkloadRefs.ONLY else keys.gang_name(meta)
    if refs is not WorkloadRefs.IGNORED:
        name = name.replace("/", "%2F")  # from an annotation; must not collide with a Workload's
    return f"{meta.namespace}/{name}" if name else ""


def group_reference(spec: PodSpec) -> GroupReference | None:
    """Return a pod's reference to a group of scheduling.k8s.io of any release."""
    return spec.scheduling_group or spec.workload_ref


def pod_group_key(meta: ObjectMeta, ref: SchedulingGroup) -> str:
    """Return ``namespace/name`` of the PodGroup of scheduling.k8s.io that a pod references."""
    return f"{meta.namespace}/{ref.pod_group_name}"


def needs_object(meta: ObjectMeta) -> bool:
    """Return whether the pod's gang is a PodGroup, which may not exist yet."""
    return bool(meta.labels.get(POD_GROUP))


def workload_key(meta: ObjectMeta, ref: WorkloadReference) -> str:
    """Return ``namespace/name`` of the Workload that a pod references."""
    return f"{meta.namespace}/{ref.name}"


def terms_of_workload(
    workload: SchedulingWorkload | None, own_id: str, group: str, defaults: GangDefaults
) -> GangTerms | None:
    """Return the terms of a gang of a Workload; None if the Workload or the group is missing.

    Annotations of the Workload apply like annotations of a PodGroup. Terminated members don't
    count, and members don't start alone after others have started, unless an annotation requests
    it.
    """
    policy = workload.policy_of(group) if workload is not None else None
    if workload is None or policy is None:
        return None
    path = f"spec.podGroups[{group}].policy.gang.minCount"
    terms = _terms_of_policy(workload.metadata, own_id, policy, path, defaults)
    return replace(terms, workload=workload.key)


def terms_of_pod_group(pod_group: SchedulingPodGroup, defaults: GangDefaults) -> GangTerms:
    """Return the terms of a PodGroup of scheduling.k8s.io.

    Its annotations apply like annotations of Koordinator's PodGroup.
    """
    terms = _terms_of_policy(
        pod_group.metadata,
        id_of_pod_group(pod_group),
        pod_group.spec.scheduling_policy,
        "spec.schedulingPolicy.gang.minCount",
        defaults,
    )
    spec = pod_group.spec
    group_terms = PodGroupTerms(
        uid=pod_group.metadata.uid,
        priority=spec.priority or 0,
        topology_key=spec.topology_key,
        goes_as_whole=spec.is_disrupted_as_whole,
        preemption_policy=spec.preemption_policy or "",
        has_fixed_minimum=isinstance(pod_group, SchedulingPodGroupV1Alpha2),
    )
    return replace(terms, pod_group=group_terms)


def with_tree(terms: GangTerms, tree: GroupTree | str | None) -> GangTerms:
    """Return the terms of a PodGroup in a tree, or with the reason why it is in none."""
    if tree is None or terms.pod_group is None:
        return terms
    if isinstance(tree, str):
        return replace(terms, problem=tree)
    group_terms = replace(
        terms.pod_group,
        priority=tree.priority,
        goes_as_whole=terms.id in tree.whole,
        preemption_policy=tree.preemption_policy,
    )
    return replace(terms, group=tree.leaf_ids, tree=tree, pod_group=group_terms)


def _terms_of_policy(
    meta: ObjectMeta, own_id: str, policy: PodGroupPolicy, path: str, defaults: GangDefaults
) -> GangTerms:
    """Return the terms of a scheduling policy; ``path`` is the path of its minimum count."""
    least, warnings = 0, list(_warnings(meta))
    if policy.gang is not None:
        least = max(policy.gang.min_count, 1)
        if policy.gang.min_count < 1:
            warnings.append(f"{path}: must be at least 1, got {policy.gang.min_count}")
    return _terms(
        meta,
        own_id,
        least,
        wait_s=defaults.wait_s,
        defaults=replace(defaults, match_policy=GangMatchPolicy.WAITING_AND_RUNNING),
        warnings=warnings,
        has_object=False,
    )


def terms_of_object(pod_group: PodGroup, defaults: GangDefaults) -> GangTerms:
    """Return the terms of a PodGroup."""
    meta, spec = pod_group.metadata, pod_group.spec
    warnings = list(_warnings(meta))
    if spec.min_member < 1:
        warnings.append(f"spec.minMember: must be at least 1, got {spec.min_member}")
    seconds = spec.schedule_timeout_seconds
    if seconds is not None and seconds < 1:
        warnings.append(f"spec.scheduleTimeoutSeconds: must be at least 1, got {seconds}")
    wait_s = float(seconds) if seconds is not None and seconds > 0 else defaults.wait_s
    least = max(spec.min_member, 1)
    return _terms(
        meta,
        pod_group.key,
        least,
        wait_s=wait_s,
        defaults=defaults,
        warnings=warnings,
        has_object=True,
    )


def terms_of_texts(own_id: str, stated: GangTexts, defaults: GangDefaults) -> GangTerms | None:
    """Return the terms in the texts of a member; None unless the minimum is an integer.

    A minimum below 1 is legal upstream; it means that every member may start alone.
    """
    least_label, *texts = stated
    pairs = zip(_TERMS, texts, strict=True)
    labels = {} if least_label is None else {LIGHTWEIGHT_MIN_AVAILABLE: least_label}
    meta = ObjectMeta(labels=labels, annotations={k: text for k, text in pairs if text is not None})
    least = keys.min_available(meta)
    if least is None:
        return None
    warnings = list(_warnings(meta))
    if least < 1:
        warnings.append(f"{keys.MIN_AVAILABLE}: must be at least 1, got {least}")
    duration = keys.waiting_time(meta)
    wait_s = defaults.wait_s if duration is None else duration.total_seconds()
    return _terms(
        meta,
        own_id,
        max(least, 1),
        wait_s=wait_s,
        defaults=defaults,
        warnings=warnings,
        has_object=False,
    )


def gang_texts_of(meta: ObjectMeta) -> GangTexts:
    """Return a pod's texts for ``terms_of_texts``; empty without a minimum."""
    if keys.min_available(meta) is None:
        return ()
    annotations = meta.annotations
    texts = (annotations.get(key) for key in _TERMS)
    return (meta.labels.get(LIGHTWEIGHT_MIN_AVAILABLE), *texts)


def contradictions(pod: Pod, refs: WorkloadRefs = WorkloadRefs.IGNORED) -> tuple[str, ...]:
    """Return warnings about settings that a pod states twice with different values."""
    meta, ref = pod.metadata, group_reference(pod.spec)
    name = keys.gang_name(meta) if ref is not None and refs is WorkloadRefs.FIRST else ""
    if isinstance(ref, SchedulingGroup) and name:
        stated_by = f"spec.schedulingGroup says {ref.pod_group_name} and counts"
        return (f"{stated_by}; it is said to be in gang {name!r}, too",)
    if isinstance(ref, WorkloadReference) and name:
        stated_by = f"{ref.name}, podGroup {ref.pod_group}"
        return (
            f"spec.workloadRef says {stated_by} and counts; it is said to be in gang {name!r}, too",
        )
    problems = (
        _twice(
            {
                f"label {POD_GROUP}": meta.labels.get(POD_GROUP, ""),
                f"label {LIGHTWEIGHT_POD_GROUP}": meta.labels.get(LIGHTWEIGHT_POD_GROUP, ""),
                f"annotation {keys.NAME}": meta.annotations.get(keys.NAME, ""),
            }
        ),
        _twice(
            {
                f"label {LIGHTWEIGHT_MIN_AVAILABLE}": meta.labels.get(
                    LIGHTWEIGHT_MIN_AVAILABLE, ""
                ),
                f"annotation {keys.MIN_AVAILABLE}": meta.annotations.get(keys.MIN_AVAILABLE, ""),
            }
        ),
    )
    return tuple(text for text in problems if text)


def _terms(
    meta: ObjectMeta,
    own_id: str,
    least: int,
    *,
    wait_s: float,
    defaults: GangDefaults,
    warnings: list[str],
    has_object: bool,
) -> GangTerms:
    total = keys.total_number(meta)
    if total is not None and total < least:
        warnings.append(
            f"{keys.TOTAL_NUMBER}: must be at least the minimum number, {least}, got {total}"
        )
    try:
        group = set(keys.GROUPS.read(meta) or ())
    except InputError as error:
        warnings.append(str(error))
        group = set()
    try:
        network = keys.NETWORK_TOPOLOGY_SPEC.read(meta)
    except InputError as error:
        warnings.append(str(error))
        network = None
    if network is not None:
        warnings += warnings_about(network)
    if group and own_id not in group:
        warnings.append(f"{keys.GROUPS.key}: the gang itself, {own_id}, is not named; it counts")
    return GangTerms(
        id=own_id,
        min_member=least,
        total=max(total or least, least),
        mode=keys.mode(meta),
        match_policy=keys.match_policy(meta) or defaults.match_policy,
        wait_s=wait_s,
        group=tuple(sorted(group | {own_id})),
        has_object=has_object,
        network=network,
        warnings=tuple(warnings),
    )


def _warnings(meta: ObjectMeta) -> Iterator[str]:
    """Yield warnings about annotations with invalid values."""
    annotations = meta.annotations
    total = annotations.get(keys.TOTAL_NUMBER, "")
    if total and parse_int32(total) is None:
        yield f"{keys.TOTAL_NUMBER}: must be an integer, got {total!r}"
    mode = annotations.get(keys.MODE, "")
    if mode and mode not in tuple(GangMode):
        yield f"{keys.MODE}: must be Strict or NonStrict, got {mode!r}. Strict is used"
    policy = annotations.get(keys.MATCH_POLICY) or annotations.get(keys.MATCH_POLICY_ALIAS, "")
    if policy and policy not in tuple(GangMatchPolicy):
        accepted = ", ".join(GangMatchPolicy)
        yield f"{keys.MATCH_POLICY}: must be one of {accepted}, got {policy!r}"
    if annotations.get(keys.WAITING_TIME) and keys.waiting_time(meta) is None:
        text = annotations[keys.WAITING_TIME]
        yield f"{keys.WAITING_TIME}: must be a duration above 0, such as 90s, got {text!r}"
    both = _twice(
        {
            f"annotation {keys.MATCH_POLICY}": annotations.get(keys.MATCH_POLICY, ""),
            f"annotation {keys.MATCH_POLICY_ALIAS}": annotations.get(keys.MATCH_POLICY_ALIAS, ""),
        }
    )
    if both:
        yield both


def _twice(spellings: dict[str, str]) -> str:
    """Return a warning if one setting has different values; empty if it has not."""
    spelled = {place: text for place, text in spellings.items() if text}
    if len(set(spelled.values())) <= 1:
        return ""
    first, *others = spelled.items()
    return "; ".join(
        [f"{first[0]} says {first[1]!r} and counts"]
        + [f"{place} says {text!r}" for place, text in others if text != first[1]]
    )
