"""Queries of pages, and answers to them.

The thread that owns the scheduler calls these functions; they change nothing.
"""

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import numpy as np

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kubescheduler import ElasticQuotaArgs
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.registry import KINDS
from koordinator.dashboard.access import PrivateNames, Redactor, ViewScope, visible_pods
from koordinator.dashboard.frames import NamedPod
from koordinator.dashboard.overview import ClusterOverview
from koordinator.domain.gangs import GangDefaults, GangSummary, gang_summaries
from koordinator.domain.quota import QuotaRules
from koordinator.domain.quota.figures import counted_quotas, quotas_as_data
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import NotFoundError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.explanations import Explanation
from koordinator.scheduler.features.explanations import explain
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.plugins.elastic_quota import ElasticQuotaPlugin

SCORED_NODES = 5
MAX_LISTED = 500  # pods or gangs in one answer
MAX_QUEUED = 100  # pods of the scheduling queue
MAX_MATCHES = 20  # pods by a part of their names

MIN_TTL_S = 1.0
TTL_FACTOR = 20  # multiple of the time an answer took; bounds the load to a twentieth of the time
MAX_ANSWERS = 256
MAX_KEYS = 2 * MAX_ANSWERS  # keys with a lock; includes keys whose answer raised


def objects_of(handle: SchedulerHandle) -> list[KubeObject]:
    """Return all objects of the scheduler's state: nodes first, pods last."""
    state = handle.state
    objects: list[KubeObject] = [node for node in state.nodes.objects if node is not None]
    for kind in KINDS:
        if kind not in (Node, Pod):
            objects += state.objects.all(kind)
    return objects + list(_pods(handle))


def _pods(handle: SchedulerHandle) -> Iterator[Pod]:
    """Yield bound and assumed pods with their nodes, then the pods without a node."""
    state = handle.state
    for placed in state.pods.by_key.values():
        pod = placed.pod
        if not pod.spec.node_name:
            name = state.nodes.names[placed.row]
            pod = msgspec.structs.replace(
                pod, spec=msgspec.structs.replace(pod.spec, node_name=name)
            )
        yield pod
    for key, (pod, _) in state.unbound.items():
        if key not in state.pods.by_key:
            yield pod


# -- pods ------------------------------------------------------------------------------------


def explanation(handle: SchedulerHandle, key: str, scope: ViewScope) -> dict[str, Any]:
    """Return the explanation of a pod, ``namespace/name``, without content outside the scope.

    ``scores`` are the scores of the best feasible nodes by plugin.
    Raises NotFoundError for a pod that does not exist or is outside the scope.
    """
    if not scope.includes_namespace(key.partition("/")[0]):
        raise NotFoundError(f"no pod {key} waits for a node, and none of that name has one")
    explained = explain(handle, key)
    if not scope.is_everything:
        explained = _restricted(explained, scope)
    data: dict[str, Any] = msgspec.to_builtins(explained)
    if scope.sees_nodes:
        data["scores"] = _scores(handle, key)
    redacted: dict[str, Any] = Redactor.of(handle.state, scope).data(data)
    return redacted


def _restricted(explained: Explanation, scope: ViewScope) -> Explanation:
    """Return the explanation without remedies, queue entries and nodes outside the scope."""
    replace = msgspec.structs.replace
    remedies = tuple(
        one
        for one in explained.remedies
        if all(scope.includes_namespace(pod.partition("/")[0]) for pod in one.pods)
        and (scope.sees_nodes or not one.nodes)
    )
    queue = explained.queue
    if queue is not None:
        ahead = tuple(key for key in queue.ahead if scope.includes_namespace(key.partition("/")[0]))
        queue = replace(queue, ahead=ahead)
    explained = replace(explained, remedies=remedies, queue=queue)
    if scope.sees_nodes:
        return explained
    causes = tuple(replace(cause, on=(), detail="") for cause in explained.causes)
    return replace(explained, causes=causes, nearest=(), node="", empty_cluster=None)


def _scores(handle: SchedulerHandle, key: str) -> list[dict[str, Any]]:
    waiting = handle.state.unbound.get(key)
    if waiting is None or key in handle.state.pods.by_key:
        return []
    pod, pod_class = waiting
    cycle = handle.cycles.get(pod.spec.scheduler_name)
    if cycle is None:
        return []
    card = cycle.scorecard(pod_class)
    best = np.argsort(-card.total, kind="stable")[:SCORED_NODES].tolist()
    return [
        {
            "node": card.names[card.feasible[place]],
            "total": int(card.total[place]),
            "plugins": {plugin: int(scores[place]) for plugin, scores in card.scores.items()},
        }
        for place in best
    ]


def waiting_pods(overview: ClusterOverview, redactor: Redactor, cause: str) -> list[NamedPod]:
    """Return up to ``MAX_LISTED`` pods that wait for one cause, the longest waiting first."""
    waiting = visible_pods(overview.waiting, redactor)
    places = waiting.by_cause.get(cause, ())
    return [NamedPod.of(waiting[place]) for place in places[:MAX_LISTED]]


def find(handle: SchedulerHandle, text: str, scope: ViewScope) -> dict[str, Any]:
    """Return the pods whose ``namespace/name`` contains ``text`` (lower case), with their nodes."""
    state = handle.state
    keys = (key for key in (*state.pods.by_key, *state.unbound) if text in key.lower())
    matching = dict.fromkeys(key for key in keys if scope.includes_namespace(key.partition("/")[0]))
    listed = sorted(matching)[:MAX_MATCHES]
    nodes = {
        key: state.nodes.names[placed.row]
        for key in listed
        if (placed := state.pods.by_key.get(key)) is not None and scope.sees_nodes
    }
    return {
        "pods": [{"pod": key, "node": nodes.get(key, "")} for key in listed],
        "count": len(matching),
    }


def queue(handle: SchedulerHandle, overview: ClusterOverview, scope: ViewScope) -> dict[str, Any]:
    """Return the scheduling queue in order; positions count the pods outside the scope, too."""
    waiting = visible_pods(overview.waiting, Redactor.of(handle.state, scope))
    order = np.argsort(waiting.positions, kind="stable")
    order = order[waiting.positions[order] > 0]
    listed = [
        {
            "pod": one.key,
            "sinceS": one.since_s,
            "position": one.position,
            "state": one.state,
            "priority": one.priority,
            "attempts": one.attempts,
            "gang": one.gang,
            "quota": _quota_of(handle, one.key),
            "cause": one.cause,
        }
        for one in (waiting[place] for place in order[:MAX_QUEUED].tolist())
    ]
    return {"pods": listed, "count": len(order)}


def _quota_of(handle: SchedulerHandle, key: str) -> str:
    plugin, waiting = _quota_plugin(handle), handle.state.unbound.get(key)
    if plugin is None or waiting is None:
        return ""
    meta = waiting[0].metadata
    own = handle.state.objects.get(ElasticQuota, f"{meta.namespace}/{meta.namespace}")
    return meta.labels.get(QUOTA_NAME, "") or (own.metadata.name if own is not None else "")


# -- shares ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QuotaReport:
    """The quota trees of ``koord quota tree``, computed once for all readers.

    A quota belongs to a namespace.  A quota outside a reader's scope keeps its place in the tree
    and its amounts, as the entitlements of the others follow from them; its name is redacted.
    """

    trees: Sequence[Mapping[str, Any]]
    warnings: Sequence[str]
    is_on: bool
    owners: Mapping[str, frozenset[str]]  # namespaces of quotas, by name

    def visible_to(self, scope: ViewScope) -> dict[str, Any]:
        """Return the report as JSON data, redacted for a scope."""
        trees, warnings = self.trees, self.warnings
        if scope.namespaces is not None:
            own = scope.namespaces
            hidden = {name for name, owners in self.owners.items() if not owners <= own}
            trees = [{**tree, "quotas": _without(tree["quotas"], hidden)} for tree in trees]
            warnings = ()
        return {"trees": trees, "warnings": warnings, "isOn": self.is_on}


def quota_report(handle: SchedulerHandle) -> QuotaReport:
    """Return the quota trees of all tenants."""
    plugin = _quota_plugin(handle)
    args = plugin.args if plugin is not None else ElasticQuotaArgs()
    trees, warnings = counted_quotas(objects_of(handle), quota_rules(handle))
    owners: dict[str, set[str]] = {}
    for quota in handle.state.objects.all(ElasticQuota):
        owners.setdefault(quota.metadata.name, set()).add(quota.metadata.namespace)
    return QuotaReport(
        quotas_as_data(trees, args)["trees"],
        warnings,
        plugin is not None,
        {name: frozenset(own) for name, own in owners.items()},
    )


def quota_rules(handle: SchedulerHandle) -> QuotaRules:
    """Return the quota rules of the ElasticQuota plugin; the default rules without the plugin."""
    plugin = _quota_plugin(handle)
    return plugin.quotas if plugin is not None else QuotaRules.of(ElasticQuotaArgs())


def _without(quotas: Sequence[Mapping[str, Any]], hidden: AbstractSet[str]) -> list[dict[str, Any]]:
    return [
        {
            **one,
            "name": _other(one["name"], hidden),
            "borrows": [{**loan, "from": _other(loan["from"], hidden)} for loan in one["borrows"]],
            "children": _without(one["children"], hidden),
        }
        for one in quotas
    ]


def _other(name: str, hidden: AbstractSet[str]) -> str:
    return "another tenant" if name in hidden else name


def _quota_plugin(handle: SchedulerHandle) -> ElasticQuotaPlugin | None:
    plugins: list[object] = [
        active.plugin for cycle in handle.cycles.values() for active in cycle.profile.pre_filter
    ]
    return next((one for one in plugins if isinstance(one, ElasticQuotaPlugin)), None)


@dataclass(frozen=True, slots=True)
class GangReport:
    """The gangs of ``koord gang``, computed once for all readers."""

    gangs: Sequence[GangSummary]  # pending gangs first
    names: PrivateNames

    def visible_to(self, scope: ViewScope) -> dict[str, Any]:
        """Return up to ``MAX_LISTED`` gangs as JSON data, redacted for a scope."""
        visible = [
            one for one in self.gangs if scope.includes_namespace(one.gang.partition("/")[0])
        ]
        listed = [msgspec.to_builtins(one) for one in visible[:MAX_LISTED]]
        if not scope.sees_nodes:
            for one in listed:
                one["network"] = []
                for member in one["members"]:
                    member["node"] = member["domain"] = ""
        redacted = Redactor(scope, self.names).data(listed)
        return {"gangs": redacted, "count": len(visible)}


def gang_report(handle: SchedulerHandle) -> GangReport:
    """Return the gangs of all tenants."""
    gangs = gang_summaries(objects_of(handle), GangDefaults())
    gangs.sort(key=lambda one: (not is_waiting(one), one.gang))
    return GangReport(gangs, PrivateNames.of(handle.state))


def is_waiting(gang: GangSummary) -> bool:
    """Return whether fewer members than the gang's minimum have a node."""
    return gang.bound < gang.min_member


class AnswerCache:
    """Thread-safe cache; of concurrent calls with one key, one computes and the others wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[Hashable, tuple[float, object]] = {}  # expiry, answer
        self._key_locks: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, compute: Callable[[], object]) -> object:
        """Return the cached answer, or compute and cache it.  Raises what ``compute`` raises."""
        with self._lock:
            if len(self._key_locks) >= MAX_KEYS:
                # A call in progress keeps its lock; a new call may compute the same answer twice.
                self._key_locks = {}
            key_lock = self._key_locks.setdefault(key, threading.Lock())
        with key_lock:
            cached = self._answers.get(key)
            began_s = self._clock.now_s()
            if cached is not None and began_s < cached[0]:
                return cached[1]
            answer = compute()
            took_s = self._clock.now_s() - began_s
            until_s = self._clock.now_s() + max(MIN_TTL_S, TTL_FACTOR * took_s)
            with self._lock:
                if len(self._answers) >= MAX_ANSWERS:
                    self._answers.clear()
                    self._key_locks = {key: key_lock}
                self._answers[key] = (until_s, answer)
            return answer
