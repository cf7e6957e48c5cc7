"""Programs: the plugins of a profile that apply to a class of pods, resolved once."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

import numpy as np

from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import ActivePlugin, Arithmetic, Profile, Reads, Spread
from koordinator.scheduler.rules.usage_kernels import judgements
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot

JudgePlugin = Callable[[Snapshot, PodClass, int, BoolArray, IntArray], None]
RatePlugin = Callable[[Snapshot, PodClass, BoolArray], IntArray]


@dataclass(frozen=True, slots=True)
class PluginPart:
    """An active plugin and the part of the pod that it reads."""

    active: ActivePlugin
    key: Hashable


@dataclass(frozen=True, slots=True)
class Program:
    """The plugins that apply to a class of pods, resolved once per class and traits of the cluster.

    The node-local plugins are grouped by what makes their answers change.
    """

    profile: Profile  # of the plugins that apply to the class
    cluster_filters: tuple[ActivePlugin, ...]  # those with ``Reads.CLUSTER``
    cluster_scores: tuple[ActivePlugin, ...]
    pre_filter: tuple[ActivePlugin, ...]
    #: reserve plugins in running order; True: ``hints.filters`` has been evaluated and is true
    reserve: tuple[tuple[ActivePlugin, bool], ...]
    node_filters: tuple[PluginPart, ...]
    node_scores: tuple[PluginPart, ...]
    #: what the node filters and scores read of the pod
    node_key: Hashable
    usage_filters: tuple[PluginPart, ...]
    usage_scores: tuple[PluginPart, ...]
    arithmetic: Arithmetic  # the usage filters and scores that are plain arithmetic
    judge: Callable[[Arithmetic, Snapshot, BoolArray, IntArray], None] | None  # as ``Profile``'s
    joint: tuple[
        tuple[PluginPart, JudgePlugin], ...
    ]  # of plugins that filter and score in one call
    #: of plugins whose relative score comes with the filter, by index in ``relative``
    rated: tuple[tuple[int, RatePlugin], ...]
    other_filters: tuple[PluginPart, ...]  # those that are more
    other_scores: tuple[PluginPart, ...]
    relative: tuple[PluginPart, ...]  # scores to be normalised over the feasible nodes
    linear: bool  # amounts and pod counts are all that placing such a pod changes for these plugins
    #: index in ``relative`` of the plugin with ``hints.states``, if placing such a pod changes
    #: amounts, pod counts and these states alone
    stated: int | None
    spreads: tuple[bool, ...]  # of these, whether ``Spread`` scales them
    versions: tuple[Callable[[Snapshot], Hashable], ...]  # of the plugins that have one

    @property
    def is_arithmetic(self) -> bool:
        """Whether checks, formulas and ``NodeStates`` decide, beside facts of nodes."""
        return (
            (self.linear or self.stated is not None)
            and not self.other_filters
            and not self.other_scores
            and len(self.rated) == (self.stated is not None)
            and len(self.joint) <= 1
            and all(part.active.hints.columns is not None for part, _ in self.joint)
        )

    @property
    def own_raw(self) -> list[PluginPart]:
        """The relative plugins whose raw scores change with pods: each class has its own."""
        return [part for part in self.relative if part.active.plugin.reads is not Reads.NODE]

    @property
    def key(self) -> Hashable:
        """The part of the pod that the plugins read; equal for pods they cannot distinguish."""
        return tuple(
            (part.active.name, part.key)
            for parts in (
                self.node_filters,
                self.node_scores,
                self.usage_filters,
                self.usage_scores,
                self.relative,
            )
            for part in parts
        )


def compile_program(profile: Profile, snapshot: Snapshot, pod: PodClass) -> Program:
    """Resolve the plugins that apply to a class of pods.

    Hints may look at the pod, at the traits of the cluster and at whether the pod has restorable
    holds, so the program is valid as long as these are the same (``Evaluator.program``).  Plugins
    that read the whole cluster are listed, their hints are evaluated per pod.
    """
    profile = profile.applicable_plugins(pod)
    filters = [active for active in profile.filter if active.hints.concerns(snapshot, pod)]
    scorers = [active for active in profile.score if active.hints.concerns(snapshot, pod)]
    lists: dict[str, list[PluginPart]] = {
        name: [] for name in ("node_f", "node_s", "usage_f", "usage_s", "relative")
    }
    moving: set[str] = set()  # plugins for which a pod changes more than amounts and pod counts
    for active in filters:
        if active.plugin.reads is not Reads.CLUSTER and active.hints.filters(snapshot, pod):
            list_name = "node_f" if active.plugin.reads is Reads.NODE else "usage_f"
            lists[list_name].append(PluginPart(active, active.hints.key(pod)))
            if not active.changes_amounts_only(snapshot, pod):
                moving.add(active.name)
    for active in scorers:
        if active.plugin.reads is not Reads.CLUSTER and active.hints.scores(snapshot, pod):
            list_name = "node_s" if active.plugin.reads is Reads.NODE else "usage_s"
            if "normalize" in active.has:
                list_name = "relative"
            lists[list_name].append(PluginPart(active, active.hints.key(pod)))
            if (
                list_name == "relative" and active.plugin.reads is not Reads.NODE
            ) or not active.changes_amounts_only(snapshot, pod):
                moving.add(active.name)
    # A filter whose hints say which amounts it compares, and a score that is a formula of amounts,
    # run together in one kernel (``arithmetic``).  A plugin with a ``judge`` of its own filters and
    # scores in one pass (``joint``); what remains is called plugin by plugin.
    parts = [part for kind in lists.values() for part in kind]
    compared = [p for p in lists["usage_f"] if p.active.hints.compares is not None]
    more = [
        p for p in compared if (asks := p.active.hints.rejects_otherwise) is not None and asks(pod)
    ]
    scores = [(part, part.active.formula(snapshot, pod)) for part in lists["usage_s"]]
    formulas = [(part, formula) for part, formula in scores if formula is not None]
    filtering = {part.active.name for part in lists["usage_f"]}
    joint = {
        part.active.name: (part, judge)
        for part in lists["usage_s"]
        if (judge := part.active.hints.judge) is not None and part.active.name in filtering
    }
    rated = {
        part.active.name: (at, rate)
        for at, part in enumerate(lists["relative"])
        if (rate := part.active.hints.rate) is not None and part.active.name in filtering
    }
    others = [
        p for p in lists["usage_f"] if p.active.name not in joint and p.active.name not in rated
    ]
    return Program(
        profile=profile,
        cluster_filters=reading_cluster(filters),
        cluster_scores=reading_cluster(scorers),
        pre_filter=tuple(a for a in profile.pre_filter if a.hints.prefilters(snapshot, pod)),
        reserve=tuple(
            (active, active.plugin.reads is not Reads.CLUSTER)
            for active in profile.reserve
            if active.plugin.reads is Reads.CLUSTER or active.hints.filters(snapshot, pod)
        ),
        node_filters=tuple(lists["node_f"]),
        node_scores=tuple(lists["node_s"]),
        node_key=tuple(
            tuple((part.active.name, part.key) for part in lists[kind])
            for kind in ("node_f", "node_s")
        ),
        usage_filters=tuple(lists["usage_f"]),
        usage_scores=tuple(lists["usage_s"]),
        arithmetic=Arithmetic(
            judgements(
                [compares(pod) for part in compared if (compares := part.active.hints.compares)],
                [(formula, part.active.weight) for part, formula in formulas],
            ),
            tuple(part.active.name for part in compared),
            tuple(part.active.name for part, _ in formulas),
        ),
        judge=profile.judge,
        joint=tuple(joint.values()),
        rated=tuple(rated.values()),
        other_filters=tuple(part for part in others if part not in compared or part in more),
        other_scores=tuple(p for p, one in scores if one is None and p.active.name not in joint),
        relative=tuple(lists["relative"]),
        linear=not moving and not pod.host_ports,
        stated=_stated(profile, lists["relative"], rated, moving) if not pod.host_ports else None,
        spreads=tuple(part.active.hints.spread is not None for part in lists["relative"]),
        versions=tuple(  # a plugin that filters and scores has one version
            dict.fromkeys(
                version for part in parts if (version := part.active.hints.version) is not None
            )
        ),
    )


def _stated(
    profile: Profile,
    relative: Sequence[PluginPart],
    rated: Mapping[str, tuple[int, RatePlugin]],
    moving: Collection[str],
) -> int | None:
    """Return the index of the plugin with states if a pod changes nothing else for plugins."""
    if len(moving) != 1 or any("prefer_devices" in active.has for active in profile.score):
        return None
    at = next((at for name, (at, _) in rated.items() if name in moving), None)
    if at is None:
        return None
    hints = relative[at].active.hints
    return at if hints.states is not None and hints.spread is Spread.HIGHEST else None


def reading_cluster(actives: Sequence[ActivePlugin]) -> tuple[ActivePlugin, ...]:
    """Return the plugins that read the whole cluster."""
    return tuple(active for active in actives if active.plugin.reads is Reads.CLUSTER)


def compared(profile: Profile, state: ClusterState, pod: PodClass) -> IntArray:
    """Return ``(n_columns,)``: the amounts that filters compare with what is free; 0: not one."""
    amounts = np.zeros(len(state.axis), np.int64)
    for active in profile.filter:
        if active.hints.compares is not None:
            columns, requests = active.hints.compares(pod)
            amounts[columns] = requests
    return amounts
