"""Preemption for bound pods whose resize is deferred: their nodes have too little room.

A node's requested amounts include what such a pod requests, so no pending pod takes that room.  If
they exceed what the node has, less important pods of the node are evicted; the kubelet grants the
resize.  kube-scheduler puts these pods into its queue; here a change of the pod, its node or
another pod that is on the node or nominated to it has it looked at again.

Source: kubernetes pkg/scheduler: eventhandlers.go, framework/plugins/deferredpodscheduling,
framework/plugins/noderesources/fit.go ``adjustDeltasToAccomodateCacheDiscrepancy``.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from math import inf

import numpy as np

from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.policy import PodDisruptionBudget
from koordinator.cluster.port import WatchEvent
from koordinator.domain.gangs import GangCache
from koordinator.domain.resized_pods import is_deferred
from koordinator.foundation.errors import ExtenderError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import Profile
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.cycle.evaluation import nominated_pods_with_priority
from koordinator.scheduler.loop.feature import CallInLoop, Feature, StatePage
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.plugins.deferred_pod_scheduling import FITS, DeferredPodScheduling
from koordinator.scheduler.plugins.node_resources_fit import NodeResourcesFit
from koordinator.scheduler.post_filter import ProposedVictims
from koordinator.scheduler.preemption import broken_gangs
from koordinator.scheduler.preemption.single_node import (
    NEVER,
    NO_VICTIMS,
    PREEMPT_NEVER,
    WAITING,
    PreemptionCandidate,
    minimal,
)
from koordinator.scheduler.snapshot import PlacedPod, Snapshot
from koordinator.scheduler.transaction import Transaction

log = logging.getLogger(__name__)

RETRY_S = 1.0  # after a victim that could not be deleted


@dataclass(slots=True)
class _DeferredResize:
    """A pod whose resize is deferred."""

    node: str
    result: str = ""  # of the last look at it


@dataclass(frozen=True, slots=True)
class _ResizePreemption:
    """Parts of a profile that preempts for deferred resizes."""

    cycle: SchedulingCycle
    plugin: DeferredPodScheduling
    fit: NodeResourcesFit | None  # None: amounts are not checked

    @classmethod
    def of(cls, profile: Profile, cycle: SchedulingCycle) -> "_ResizePreemption | None":
        """Return the parts of a profile; None if it does not preempt for them."""
        plugins = [active.plugin for active in profile.permit]
        plugin = next((one for one in plugins if isinstance(one, DeferredPodScheduling)), None)
        if plugin is None or all(each.name != "DefaultPreemption" for each in profile.post_filter):
            return None
        filters = [active.plugin for active in profile.filter]
        fit = next((one for one in filters if isinstance(one, NodeResourcesFit)), None)
        return cls(cycle, plugin, fit)


@dataclass(slots=True)
class _DuePods:
    """Pods to look at, and when: at once, or after an error."""

    keys: set[str] = field(default_factory=set)
    at_s: float = -inf


class DeferredResizeFeature(Feature):
    """Keeps the pods with deferred resizes, and preempts for them."""

    def __init__(
        self, handle: SchedulerHandle, profiles: Sequence[Profile], caches: Sequence[GangCache]
    ) -> None:
        """Create the feature; ``profiles`` have the plugins themselves, without their metrics."""
        self._handle, self._caches, self._state = handle, caches, handle.state
        names = [profile.scheduler_name for profile in profiles]
        rules_of_profiles = (
            _ResizePreemption.of(it, handle.cycles[it.scheduler_name]) for it in profiles
        )
        known = dict(zip(names, rules_of_profiles, strict=True))
        self._rules = {name: rules for name, rules in known.items() if rules is not None}
        self._waiting: dict[str, _DeferredResize] = {}  # by key of the pod
        self._on_node: dict[str, set[str]] = {}  # keys by node
        self._due = _DuePods()
        self.is_idle = True  # until the first deferred resize

    @property
    def is_needed(self) -> bool:
        """Whether a profile has the plugin."""
        return bool(self._rules)

    # -- events --------------------------------------------------------------------------------

    def on_pod_event(self, pod: Pod, previous: Pod | None, *, deleted: bool) -> Sequence[str]:
        """Keep or forget a pod; look again at the deferred pods of its nodes."""
        key, node = pod.key, pod.spec.node_name
        waits = (
            bool(node)
            and pod.spec.scheduler_name in self._rules
            and not deleted
            and not is_terminal(pod)
            and pod.metadata.deletion_timestamp is None
            and is_deferred(pod)
        )
        known = self._waiting.get(key)
        if known is not None and (not waits or known.node != node):
            self._forget(key, known.node)
        if waits and key not in self._waiting:
            self._waiting[key] = _DeferredResize(node)
            self._on_node.setdefault(node, set()).add(key)
            if self.is_idle:
                self.is_idle = False
                self._handle.hooks.refresh()
        if self._on_node:
            versions = (pod,) if previous is None else (pod, previous)
            self._recheck_nodes(
                {
                    name
                    for one in versions
                    for name in (one.spec.node_name, one.status.nominated_node_name)
                }
            )
        return ()

    def on_object_event(self, event: WatchEvent) -> None:
        """Look again at the deferred pods of a node that changed."""
        if isinstance(event.object, Node):
            self._recheck_nodes((event.object.metadata.name,))

    def _forget(self, key: str, node: str) -> None:
        del self._waiting[key]
        self._due.keys.discard(key)
        keys = self._on_node[node]
        keys.discard(key)
        if not keys:
            del self._on_node[node]

    def _recheck_nodes(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._due.keys |= self._on_node.get(node, set())

    # -- work ----------------------------------------------------------------------------------

    def work(self, now_s: float) -> bool:
        """Preempt for the due pods, the most important first; return whether a pod was evicted."""
        if now_s < self._due.at_s or not self._due.keys:
            return False
        due = [self._state.pods.by_key.get(key) for key in self._due.keys]
        self._due = _DuePods()
        evicts = False
        for placed in sorted(filter(None, due), key=lambda one: (-one.priority, one.key)):
            waiting = self._waiting.get(placed.key)
            if waiting is None or placed.row < 0 or self._state.nodes.objects[placed.row] is None:
                continue  # its node is looked at when it appears
            known = self._state.pods.by_key.get(placed.key)
            if known is not placed or _is_leaving(placed):
                continue  # it was a victim of one before it
            result, victims = self._decide(placed)
            waiting.result = result
            if not victims:
                continue
            evicts = True
            log.info("pods make room for a resize", extra={"pod": placed.key, "result": result})
            error = self._handle.evictions.preempt_in_place(placed, victims)
            if error is not None:
                waiting.result = f"preemption failed: {error}"
                self._due.keys.add(placed.key)
                self._due.at_s = now_s + RETRY_S
        return evicts

    def next_wakeup_s(self, *, synced: bool) -> float | None:
        """Return when a failed preemption is tried again."""
        return self._due.at_s if synced and self._due.keys and self._due.at_s > -inf else None

    def _decide(self, placed: PlacedPod) -> tuple[str, Sequence[PlacedPod]]:
        """Return the outcome for a pod, and the victims."""
        rules = self._rules[placed.pod.spec.scheduler_name]
        node = self._state.nodes.objects[placed.row]
        disabled = rules.plugin.why_disabled(node) if node is not None else ""
        if disabled:
            return disabled, ()
        if self._fits_without(rules, placed, ()):
            return FITS, ()
        if placed.pod.spec.preemption_policy == PREEMPT_NEVER:
            return f"preemption: {NEVER}", ()
        others = self._state.pods.on_row[placed.row].values()
        leaving = [other for other in others if _is_leaving(other)]
        if self._fits_without(rules, placed, leaving):
            return f"preemption: {WAITING}", ()
        lower = [one for one in others if one.priority < placed.priority and not _is_leaving(one)]
        return self._choose(rules, placed, leaving, lower)

    def _choose(
        self,
        rules: _ResizePreemption,
        placed: PlacedPod,
        leaving: Sequence[PlacedPod],
        evictable: Sequence[PlacedPod],
    ) -> tuple[str, Sequence[PlacedPod]]:
        """Return the cheapest victims; a gang that would have too few members goes as a whole.

        Pods of a gang with a member that is as important as the pod are spared then.
        """
        name = self._state.nodes.names[placed.row]
        budgets = sorted(self._state.objects.all(PodDisruptionBudget), key=lambda one: one.key)

        def fits_without(victims: Sequence[PlacedPod]) -> bool:
            return self._fits_without(rules, placed, (*leaving, *victims))

        while fits_without(evictable):
            chosen = minimal(name, evictable, budgets, fits_without, to_first_exhausted=True)
            gangs = [*broken_gangs(self._state, self._caches, chosen.victims)]
            spared = [
                member.key
                for gang in gangs
                if any(member.priority >= placed.priority for member in gang)
                for member in gang
            ]
            if spared:
                evictable = [one for one in evictable if one.key not in spared]
                continue
            return self._approved(rules, placed, chosen, gangs)
        return f"preemption: {NO_VICTIMS}", ()

    def _approved(
        self,
        rules: _ResizePreemption,
        placed: PlacedPod,
        chosen: PreemptionCandidate,
        gangs: Sequence[Sequence[PlacedPod]],
    ) -> tuple[str, Sequence[PlacedPod]]:
        """Return the victims, with other members of their gangs, unless an extender spares some."""
        victims = {one.key: one for one in (*chosen.victims, *(m for gang in gangs for m in gang))}
        extenders = rules.cycle.extenders
        if not gangs:
            pods = tuple(victim.pod for victim in chosen.victims)
            try:
                left = extenders.approved(
                    placed.pod, {chosen.node: ProposedVictims(pods, chosen.violations)}
                )
            except ExtenderError as error:
                return f"preemption: {error}", ()
            agreed = {pod.key for each in left.values() for pod in each.pods}
            if not agreed:
                return "preemption: an extender agrees to no node", ()
            victims = {key: one for key, one in victims.items() if key in agreed}
        return f"preemption: preempting {len(victims)} victims", list(victims.values())

    def _fits_without(
        self, rules: _ResizePreemption, placed: PlacedPod, without: Sequence[PlacedPod]
    ) -> bool:
        """Return whether the node has room for the resize without some of its pods.

        Pods nominated to the node with at least the pod's priority are included.
        """
        if rules.fit is None:
            return True
        name = self._state.nodes.names[placed.row]
        every_node = self._handle.nominations.by_node()
        nominated = nominated_pods_with_priority(placed.pod, every_node).get(name, ())
        with Transaction(self._state) as transaction:
            for other in without:
                transaction.displace(other)
            for pod, pod_class in nominated:
                transaction.place(f"nominated:{pod.key}", pod, pod_class, placed.row)
            view = Snapshot(self._state)[np.array([placed.row])]
            return not rules.fit.is_overcommitted(view, placed.pod_class)

    # -- to be looked at -------------------------------------------------------------------------

    def pages(self, in_loop: CallInLoop) -> Mapping[str, StatePage]:
        """Return the page of the deferred resizes."""
        return {
            "/plugins/DeferredPodScheduling/pods": lambda _: in_loop(partial(_page, self._waiting))
        }


def _is_leaving(placed: PlacedPod) -> bool:
    return placed.pod.metadata.deletion_timestamp is not None


def _page(waiting: Mapping[str, _DeferredResize]) -> list[dict[str, str]]:
    return [
        {"pod": key, "node": waiting[key].node, "message": waiting[key].result}
        for key in sorted(waiting)
    ]
