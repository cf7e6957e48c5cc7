"""Ledger of quotas, and quota of jobs.

Requests count all existing pods of any scheduler; usage counts the pods with a node, assumed or
bound.

Victims are of the same quota and less important than every member, as for a single pod.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from koordinator.api.annotations.reservation import RESERVE_POD
from koordinator.api.codec import subject_of
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.labels import QUOTA_NAME, is_quota_preemptible
from koordinator.domain.amounts import Amounts, add, exceeded, multiple, named_by, plus, to_text
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.quota import (
    AdmissionRules,
    QuotaHooks,
    QuotaPod,
    QuotaRules,
    QuotaSpec,
    QuotaTree,
    QuotaTrees,
    QuotaWarnings,
    is_allowed_victim,
    limit_of,
)
from koordinator.foundation.errors import InputError
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import Refusal
from koordinator.scheduler.post_filter import Shortfall
from koordinator.scheduler.snapshot import ClusterState, LedgerChanges, PlacedPod, PodClass

_MANY = 16  # changed pods that are sorted by their classes
_SPARE = 16  # touched quotas that may be deleted ones
_QUOTA_POD: Memo[QuotaPod] = Memo()
_QUOTA_POD_WITHOUT_OVERHEAD: Memo[QuotaPod] = Memo()

PROTECTED = "Insufficient non-preemptible quotas even without victims"


class QuotaLedger:
    """Quota trees and the record of their changes.

    A quota is identified by its name: of several objects with one name the first by namespace
    counts.
    """

    kinds = (ElasticQuota,)

    def __init__(
        self, rules: QuotaRules, make_hooks: Callable[[QuotaTrees], QuotaHooks] | None = None
    ) -> None:
        self.trees = QuotaTrees(rules)
        self.hooks = QuotaHooks() if make_hooks is None else make_hooks(self.trees)
        self._has_hooks = bool(self.hooks)
        self._counts_overhead = rules.counts_overhead
        self._excluded: set[str] = set()  # existing pods that do not count
        self.guarantees_usage = rules.guarantees_usage
        self.version = 0  # grows when a refused pod may fit now
        self.changes = 0  # grows with every change of a figure
        self.spec_changes = 0  # grows with every change of a spec
        self.objects: dict[str, ElasticQuota] = {}  # objects in effect, by name
        self.warnings: dict[str, str] = {}  # problems by key of the object
        self.rules_broken = QuotaWarnings()
        self._hooks_at = 0  # spec changes that the hooks know
        self._notices: list[tuple[ElasticQuota, str]] = []
        self._by_name: defaultdict[str, dict[str, ElasticQuota]] = defaultdict(dict)
        self._names: dict[str, str] = {}  # of objects by key
        self._pods: dict[str, tuple[PodClass, bool]] = {}  # class and whether it has a node
        self._nodes: tuple[int, int] | None = None
        self._touched: set[str] = set()
        #: quota view, quota and tree of a pod class, valid for one value of ``spec_changes``
        self._places: Memo[tuple[QuotaPod, str, QuotaTree] | None] = Memo()

    def catch_up(self, state: ClusterState, changed: LedgerChanges) -> None:
        """Apply the changes since the last call."""
        nodes = (state.layout, state.node_log.position)
        if nodes != self._nodes:
            self._nodes = nodes
            self.trees.set_total(_total(state))
            self.version += 1
            self.changes += 1
        if changed.objects:
            for _, key in sorted(changed.objects, key=lambda item: item[1]):
                self._take_in_quota(key, state.objects.get(ElasticQuota, key))
        if len(changed.pods) < _MANY:
            for key in changed.pods:
                self._take_in_pod(key, state.find_pod(key))
        else:
            self._take_in_pods(state, changed.pods)
        if self._has_hooks:
            specs, self._hooks_at = self._hooks_at, self.spec_changes
            moved = self._pods if specs != self.spec_changes else changed.pods
            self._notify_hooks({*moved, *changed.pods})

    def _notify_hooks(self, keys: Iterable[str]) -> None:
        for key in sorted(keys):
            pod_class, has_node = self._pods.get(key, (None, False))
            if pod_class is None or not has_node:
                self.hooks.pod_is(key, None, None)
            else:
                self.hooks.pod_is(key, self.trees.quota_of(key), self.quota_pod(pod_class, key))

    def quota_pod(self, pod_class: PodClass, key: str = "") -> QuotaPod:
        """Return the quota view of a pod of a class."""
        return as_quota_pod(pod_class, key, overhead=self._counts_overhead)

    def place_of(self, pod_class: PodClass) -> tuple[QuotaPod, str, QuotaTree] | None:
        """Return the quota view of a class, its quota and the tree; None if no quota limits it."""
        return self._places.as_of(pod_class, self.spec_changes, self._find_place, pod_class)

    def _find_place(self, pod_class: PodClass) -> tuple[QuotaPod, str, QuotaTree] | None:
        own = self.quota_pod(pod_class)
        name = self.trees.quota_for(own)
        return None if name is None else (own, name, self.trees.tree_of(name))

    def leave_out(self, key: str, state: ClusterState, *, out: bool) -> None:
        """Exclude an existing pod from its quota, or (not ``out``) include it again."""
        (self._excluded.add if out else self._excluded.discard)(key)
        self._take_in_pod(key, state.find_pod(key))
        if self._has_hooks:
            self._notify_hooks((key,))

    def take_touched(self) -> set[str]:
        """Return the quotas whose pods or object changed since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def forget_touched(self) -> None:
        """Drop deleted quotas from the touched ones once they may be the majority."""
        if len(self._touched) > 2 * len(self.objects) + _SPARE:
            self._touched.intersection_update(self.objects)

    def _take_in_quota(self, key: str, quota: ElasticQuota | None) -> None:
        name = self._names.pop(key, None) if quota is None else quota.metadata.name
        if name is None:
            return
        same_name = self._by_name[name]
        if quota is None:
            del same_name[key]
            if not same_name:
                del self._by_name[name]
            self.warnings.pop(key, None)
        else:
            self._names[key] = name
            same_name[key] = quota
        before, now = self.objects.get(name), same_name[min(same_name)] if same_name else None
        self.version += self.hooks.quota_changed(before, now)
        if now is before:
            self._warn_of_duplicates(same_name)
            return
        if before is not None and now is not None and QuotaSpec.of(before) == QuotaSpec.of(now):
            self.rules_broken.put(now)
            self.objects[name] = now  # e.g. our own status update
            self._touched.add(name)
            return
        if before is not None:
            self._note_change(before, now)
        if before is not None and (now is None or now.key != before.key):
            self.rules_broken.remove(before)
            self.trees.remove(before)
            del self.objects[name]
        if now is not None:
            self.objects[name] = now
            self.warnings.pop(now.key, None)
            self.rules_broken.put(now)
            try:
                self.trees.put(now)
            except InputError as error:
                self.warnings[now.key] = str(error)
        self._warn_of_duplicates(same_name)
        self._touched.add(name)
        self.spec_changes += 1
        self.version += 1
        self.changes += 1

    def take_notices(self) -> list[tuple[ElasticQuota, str]]:
        """Return and clear the notices about quotas that were deleted or moved."""
        notices, self._notices = self._notices, []
        return notices

    def _note_change(self, before: ElasticQuota, now: ElasticQuota | None) -> None:
        name = before.metadata.name
        if name not in self.trees:
            return
        tree = self.trees.tree_of(name)
        node = tree.node(name)
        if now is None:
            affected = [
                f"{len(changed)} {kind}"
                for changed, kind in (
                    (node.children, "child quotas, which keep their minimum until it is recreated"),
                    (node.pods, "pods, which now count in other quotas"),
                )
                if changed
            ]
            if affected:
                self._notices.append((before, f"deleted while it had {' and '.join(affected)}"))
        elif now.parent != before.parent and now.parent in tree:
            parent = tree.node(now.parent)
            over = exceeded(plus(parent.used, node.used), parent.max)
            if over and any(node.used.get(resource) for resource in over):
                used = to_text(named_by(node.used, dict.fromkeys(over, 0)))
                text = f"moved to parent {now.parent}, which has no room for its usage: {used}"
                self._notices.append((now, text))

    def _warn_of_duplicates(self, same_name: dict[str, ElasticQuota]) -> None:
        first = min(same_name, default="")
        for key, quota in same_name.items():
            if key != first:
                self.warnings[key] = (
                    f"{subject_of(quota)}: metadata.name: must be unique across namespaces, "
                    f"got the name of {first}: the quota is ignored"
                )

    def _take_in_pod(self, key: str, current: tuple[PodClass, bool] | None) -> None:
        if current is not None and RESERVE_POD in current[0].annotations:
            current = None  # the pods that use a reservation count, not the reservation itself
        known = self._pods.get(key)
        if key in self._excluded:
            current = None
        if current == known:
            return
        self.changes += 1
        trees = self.trees
        if known is not None:
            self._touch(trees.quota_of(key))
        if current is None:
            del self._pods[key]
            trees.remove_pod(key)
            self.version += 1
            return
        self._pods[key] = current
        pod_class, has_node = current
        had_node = known is not None and known[1]
        if known is None or known[0] is not pod_class:
            self._touch(trees.put_pod(self.quota_pod(pod_class, key)))
            self.version += 1
        if has_node and not had_node:
            trees.assign(key)
            self.version += self.guarantees_usage
        elif had_node and not has_node:
            trees.unassign(key)
            self.version += 1

    def _take_in_pods(self, state: ClusterState, keys: Iterable[str]) -> None:
        """Apply changes of pods, with one sum for all pods of a class that are new or get a node.

        A sum does not depend on the order of its parts, so the result is that of one by one.
        """
        alike: defaultdict[tuple[PodClass, bool, bool], list[str]] = defaultdict(list)
        kept, excluded = self._pods, self._excluded
        for key, current in state.find_pods(keys):
            known = kept.get(key)
            if (
                current is None
                or (known is not None and (known[0] is not current[0] or known[1]))
                or key in excluded
                or RESERVE_POD in current[0].annotations
            ):
                self._take_in_pod(key, current)
            elif known is None or current[1]:
                alike[current[0], current[1], known is None].append(key)
        for (pod_class, has_node, are_new), group in alike.items():
            self.changes += 1
            self._pods |= dict.fromkeys(group, (pod_class, has_node))
            if are_new:
                pods = [self.quota_pod(pod_class, key) for key in group]
                self._touch(self.trees.add_alike(pods))
                self.version += 1
            else:
                self._touch(self.trees.quota_of(group[0]))
            if has_node:
                self.trees.assign_alike(group)
                self.version += self.guarantees_usage

    def _touch(self, name: str | None) -> None:
        if name is not None:
            self._touched.add(name)


def as_quota_pod(pod_class: PodClass, key: str = "", *, overhead: bool = True) -> QuotaPod:
    """Return the quota view of a pod of a class, without its start time.

    ``overhead`` includes the overhead of the pod's runtime class.
    """
    memo = _QUOTA_POD if overhead else _QUOTA_POD_WITHOUT_OVERHEAD
    known = memo.of(pod_class, _as_quota_pod, pod_class, overhead)
    if not key:
        return known
    return QuotaPod(  # ``replace`` takes three times as long
        key,
        known.namespace,
        known.requests,
        known.quota_label,
        known.is_preemptible,
        known.priority,
        known.labels,
    )


def _as_quota_pod(pod_class: PodClass, overhead: bool) -> QuotaPod:
    labels = pod_class.labels
    return QuotaPod(
        key="",
        namespace=pod_class.namespace,
        requests=pod_requests(pod_class.spec, overhead=overhead),
        quota_label=labels.get(QUOTA_NAME, ""),
        is_preemptible=is_quota_preemptible(labels),
        priority=pod_class.spec.priority or 0,
        labels=labels,
    )


def _total(state: ClusterState) -> Amounts:
    """Return the summed allocatable of the cluster."""
    nodes = state.nodes
    amounts = nodes.allocatable[:, nodes.alive].sum(axis=1).tolist()
    return {name: amount for name, amount in zip(state.axis.names, amounts, strict=False) if amount}


class JobInQuotas:
    """Pods that must be admitted together."""

    def __init__(
        self,
        ledger: QuotaLedger,
        pods: Iterable[PodClass],
        rules: AdmissionRules,
        *,
        spares_default_quota: bool,
    ) -> None:
        self._trees, self._rules = ledger.trees, rules
        self._spares_default_quota = spares_default_quota
        self._requested: dict[str, dict[str, int]] = {}  # by quota
        self._protected: dict[str, dict[str, int]] = {}  # requests of non-preemptible members
        self._least: dict[str, QuotaPod] = {}  # least important member by quota
        for pod_class, count in Counter(pods).items():
            self._add_members(ledger.quota_pod(pod_class), count)

    def _add_members(self, member: QuotaPod, count: int) -> None:
        name = self._trees.quota_for(member)
        if name is None:
            return
        request = multiple(self._trees.tree_of(name).node(name).counted(member), count)
        add(self._requested.setdefault(name, {}), request)
        if not member.is_preemptible:
            add(self._protected.setdefault(name, {}), request)
        least = self._least.get(name)
        if least is None or member.priority < least.priority:
            self._least[name] = member

    @property
    def names(self) -> frozenset[str]:
        """Quotas of the members."""
        return frozenset(self._requested)

    def shortfall(self) -> Shortfall | Refusal | None:
        """Return the shortfall of the quotas and, if checked, of their ancestors."""
        missing: dict[str, int] = {}
        short_quotas: set[str] = set()
        for name in self._requested:
            node = self._trees.tree_of(name).node(name)
            protected = dict(node.non_preemptible_used)
            add(protected, self._protected.get(name, {}))
            if name in self._protected and exceeded(protected, node.min):
                return Refusal(PROTECTED)
            missing_here = self._missing(name)
            if missing_here:
                short_quotas.add(name)
                missing |= missing_here
        if not missing:
            return None

        def allows(placed: PlacedPod) -> bool:
            return self._trees.quota_of(placed.key) in short_quotas and self.allows(placed)

        return Shortfall(missing, allows, self._frees)

    def allows(self, placed: PlacedPod) -> bool:
        """Return whether a pod may be evicted for the members of its quota."""
        name = self._trees.quota_of(placed.key)
        if name is None or name not in self._least:
            return False
        return is_allowed_victim(
            self._trees.tree_of(name).node(name).pods[placed.key],
            name,
            self._least[name],
            name,
            spares_default_quota=self._spares_default_quota,
        )

    def _missing(self, name: str) -> dict[str, int]:
        """Return the shortfall by level and resource, counting all members under a level."""
        tree, missing = self._trees.tree_of(name), {}
        for level in self._levels(name):
            wanted: dict[str, int] = {}
            for other, request in self._requested.items():
                if level in self._levels(other):
                    add(wanted, request)
            used = tree.node(level).used
            total = {
                resource: used.get(resource, 0) + wanted.get(resource, 0)
                for resource in (used.keys() | wanted.keys() if level == name else wanted)
            }
            limit = limit_of(tree, level, self._rules)
            for resource in exceeded(total, limit):
                missing[_key(level, resource)] = total[resource] - limit[resource]
        return missing

    def _frees(self, placed: PlacedPod) -> Mapping[str, int]:
        name = self._trees.quota_of(placed.key)
        if name is None:
            return {}
        requests = self._trees.tree_of(name).node(name).pods[placed.key].requests
        return {
            _key(level, resource): amount
            for level in self._levels(name)
            for resource, amount in requests.items()
        }

    def _levels(self, name: str) -> tuple[str, ...]:
        tree = self._trees.tree_of(name)
        return tuple(tree.path(name)) if self._rules.checks_parents else (name,)


def _key(level: str, resource: str) -> str:
    return f"{level}: {resource}"
