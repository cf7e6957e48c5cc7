"""Elastic quotas: admission of pods, and preemption inside a quota.

Usage follows from the cluster state (``ledger``), so the plugin reserves and releases nothing.

Source: koordinator pkg/scheduler/plugins/elasticquota (plugin.go, preempt.go).
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from koordinator.api.annotations.reservation import RESERVE_POD
from koordinator.api.kubescheduler import ElasticQuotaArgs, FeatureGates
from koordinator.api.kubescheduler.gates import POD_DISRUPTION_BUDGET, STRICT_TENANCY
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.policy import PodDisruptionBudget
from koordinator.api.syntax import invalid_value
from koordinator.domain.quota import (
    AdmissionRules,
    HookFactory,
    QuotaHooks,
    QuotaPod,
    QuotaRules,
    QuotaTrees,
    headroom_for,
    how_many,
    is_allowed_victim,
    raised_limits,
    what_helps,
    why_not,
)
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.entry_points import entry_points
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import (
    Action,
    EventHint,
    PluginHints,
    PluginSpec,
    Refusal,
)
from koordinator.scheduler.diagnosis import did_you_mean
from koordinator.scheduler.plugins.elastic_quota.ledger import (
    JobInQuotas,
    QuotaLedger,
    as_quota_pod,
)
from koordinator.scheduler.post_filter import Attempt, PostFilterResult, Shortfall
from koordinator.scheduler.preemption.single_node import (
    NOT_HELPFUL,
    PreemptionCandidate,
    cheapest,
    headroom_for_job,
    minimal,
    not_eligible,
    summary,
)
from koordinator.scheduler.snapshot import PlacedPod, PodClass, ResourceAxis, Snapshot

ENTRY_POINTS = "koordinator.scheduler.quota_hooks"
NO_HEADROOM = "Insufficient quotas even without victims"


@dataclass(frozen=True, slots=True, eq=False)
class ElasticQuotaPlugin:
    """PreFilter and PostFilter by quota."""

    args: ElasticQuotaArgs
    quotas: QuotaRules
    admission: AdmissionRules
    hooks: tuple[tuple[str, str, HookFactory], ...] = ()  # key, arguments, factory
    spares_budgets: bool = True  # respect PodDisruptionBudgets in preemption

    def with_gates(self, gates: FeatureGates) -> "ElasticQuotaPlugin":
        """Return the plugin with the rules of the feature gates."""
        return replace(
            self,
            quotas=QuotaRules.of(self.args, gates),
            admission=replace(self.admission, is_strict=STRICT_TENANCY in gates),
            spares_budgets=POD_DISRUPTION_BUDGET in gates,
        )

    def ledger(self, snapshot: Snapshot) -> QuotaLedger:
        """Return the current ledger of all quotas."""
        return snapshot.ledger(self, lambda: QuotaLedger(self.quotas, self._make_hooks))

    def _make_hooks(self, trees: QuotaTrees) -> QuotaHooks:
        return QuotaHooks([(key, make(key, args, trees)) for key, args, make in self.hooks])

    @property
    def hints(self) -> PluginHints:
        return PluginHints(key=self._key, version=self._version, limits_sums=not self.hooks)

    def _version(self, snapshot: Snapshot) -> Hashable:
        """Return a number that grows when a refused pod may fit."""
        return self.ledger(snapshot).version

    def _key(self, pod: PodClass) -> Hashable:
        """Return the key of pods that, with equal requests, get the same verdict and message."""
        if self.hooks:  # hooks may read any field
            return pod.id
        own = as_quota_pod(pod)
        return own.quota_label, own.namespace, own.is_preemptible

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        """Refuse a pod that would exceed a limit of its quota.

        A reservation does not count in a quota; the pods that use it do.
        """
        if RESERVE_POD in pod.annotations:
            return None
        ledger = self.ledger(snapshot)
        place = ledger.place_of(pod)
        if place is None:
            return None
        own, name, tree = place
        reason = why_not(tree, name, own, self.admission)
        if reason:
            return Refusal(reason, resolvable=True)
        hook_reason = ledger.hooks.why_not(name, own) if self.hooks else ""
        return Refusal(hook_reason) if hook_reason else None  # evictions cannot help against hooks

    def remedy(self, snapshot: Snapshot, pod: PodClass) -> tuple[str, bool]:
        """Return the raise of its quota, or the label, that admits the pod."""
        ledger = self.ledger(snapshot)
        trees, own = ledger.trees, ledger.quota_pod(pod)
        name, similar = trees.quota_for(own), _similar_name(trees, own)
        if name is None:
            return "", False
        if similar and self._admits(trees, replace(own, quota_label=similar), similar):
            return f"set its label {QUOTA_NAME} to {similar} instead of {own.quota_label}", True
        tree = trees.tree_of(name)
        node = tree.node(name)
        assumed = [
            node.pods[key].requests for key in node.assigned if snapshot.is_only_assumed(key)
        ]
        return what_helps(tree, name, own, self.admission, assumed)

    def _admits(self, trees: QuotaTrees, own: QuotaPod, name: str) -> bool:
        """Return whether a quota would admit the pod."""
        trial = replace(own, key=f"\0trial/{own.key}")
        trees.put_pod(trial)
        try:
            return not why_not(trees.tree_of(name), name, trial, self.admission)
        finally:
            trees.remove_pod(trial.key)

    def refusal_detail(self, snapshot: Snapshot, pod: PodClass) -> str:
        """Return that the quota of its label does not exist, with a similar name."""
        ledger = self.ledger(snapshot)
        trees, own = ledger.trees, ledger.quota_pod(pod)
        if not own.quota_label or own.quota_label in trees:
            return ""
        similar = _similar_name(trees, own)
        hint = f": did you mean {similar}?" if similar else ""
        return f"its label names quota {own.quota_label}, which does not exist{hint}"

    def limit_keys(self, snapshot: Snapshot, pod: PodClass) -> Sequence[Hashable]:
        """Return the quota of the pod, and its minimum, which counts non-preemptible pods."""
        ledger = self.ledger(snapshot)
        own = ledger.quota_pod(pod)
        name = ledger.trees.quota_for(own)
        return [name] if own.is_preemptible else [name, (name, "min")]

    @contextmanager
    def relaxed_limits(self, snapshot: Snapshot, pod: PodClass) -> Iterator[str]:
        """Raise the limits of its quota within the context; yield the remedy."""
        ledger = self.ledger(snapshot)
        trees, own = ledger.trees, ledger.quota_pod(pod)
        name = trees.quota_for(own)
        if name is None:
            yield ""
            return
        with raised_limits(trees.tree_of(name), name, own, self.admission) as text:
            yield text

    def admits_with_node(
        self, snapshot: Snapshot, pod: PodClass, amounts: Mapping[str, int]
    ) -> bool | None:
        """Return whether the pod is admitted once the nodes have these amounts more.

        None: its tree has a total of its own, which not every node raises.
        """
        ledger = self.ledger(snapshot)
        place = ledger.place_of(pod)
        if place is not None and not ledger.trees.has_total_of_nodes(place[1]):
            return None
        with ledger.trees.added_to_total(amounts):
            return self.prefilter(snapshot, pod) is None

    def run_limit(self, snapshot: Snapshot, pod: PodClass, most: int) -> int:
        """Return how many such pods are admitted in a row, at most ``most``."""
        ledger = self.ledger(snapshot)
        own = ledger.quota_pod(pod)
        name = ledger.trees.quota_for(own)
        if name is None:
            return most
        most = min(how_many(ledger.trees.tree_of(name), name, own, self.admission), most)
        return ledger.hooks.how_many(name, own, most) if self.hooks else most

    def shortfall(self, snapshot: Snapshot, pods: Sequence[PodClass]) -> Shortfall | Refusal | None:
        """Return the shortfall in the quotas before all these pods are admitted."""
        return self._in_quotas(self.ledger(snapshot), pods).shortfall()

    def postfilter(self, attempt: Attempt) -> PostFilterResult:
        """Preempt less important pods of the same quota."""
        ledger = self.ledger(attempt.what_if.snapshot)
        trees = ledger.trees
        if attempt.members:
            return self._headroom_for_job(attempt, ledger)
        own = ledger.quota_pod(attempt.pod_class, attempt.key)
        quota = trees.quota_for(own)
        if quota is None or RESERVE_POD in attempt.pod_class.annotations:
            return PostFilterResult()
        refused = not_eligible(
            attempt,
            lambda placed: (
                placed.pod.metadata.deletion_timestamp is not None
                and trees.quota_of(placed.key) == quota
            ),
        )
        if refused:
            return PostFilterResult(f"preemption: {refused}", keeps_nomination=True)
        search = _Search(attempt, trees, quota, own, self)
        candidates, reasons = search.candidates()
        if not candidates:
            return PostFilterResult(f"preemption: {summary(len(attempt.rejected), reasons)}")
        job = self._in_quotas(ledger, [attempt.pod_class])
        return cheapest(attempt, candidates, job.allows)

    def _headroom_for_job(self, attempt: Attempt, ledger: QuotaLedger) -> PostFilterResult:
        job = self._in_quotas(ledger, [pod_class for _, pod_class in attempt.members])
        if not job.names:
            return PostFilterResult()
        return headroom_for_job(attempt, attempt.members, job.allows)

    def _in_quotas(self, ledger: QuotaLedger, pods: Sequence[PodClass]) -> JobInQuotas:
        spares = self.args.disable_default_quota_preemption
        return JobInQuotas(ledger, pods, self.admission, spares_default_quota=spares)


class _Search:
    """Search for the node and the victims."""

    def __init__(
        self,
        attempt: Attempt,
        trees: QuotaTrees,
        quota: str,
        own: QuotaPod,
        plugin: ElasticQuotaPlugin,
    ) -> None:
        self._attempt = attempt
        self._preemptor = own
        self._quota = quota
        self._spares_budgets = plugin.spares_budgets
        self._spares_default_quota = plugin.args.disable_default_quota_preemption
        self._pods = trees.tree_of(quota).node(quota).pods
        self._assigned = trees.tree_of(quota).node(quota).assigned
        self._headroom = headroom_for(trees.tree_of(quota), quota, own, plugin.admission)

    def candidates(self) -> tuple[list[PreemptionCandidate], Counter[str]]:
        """Return preemption candidates, and the reasons why other nodes are none."""
        attempt, snapshot = self._attempt, self._attempt.what_if.snapshot
        resolvable = attempt.rejected[attempt.resolvable]
        reasons = Counter({NOT_HELPFUL: len(attempt.rejected) - len(resolvable)})
        by_row = self._evictable(snapshot, resolvable)
        none = f"No victims found for preemptor pod {attempt.pod.metadata.name}"
        reasons[none] = len(resolvable) - len(by_row)
        every = snapshot.objects.all(PodDisruptionBudget)
        budgets = list(every) if self._spares_budgets else []
        candidates = []
        for row, pods in sorted(by_row.items()):
            if not self._has_headroom(pods):
                reasons[NO_HEADROOM] += 1
            elif why := attempt.what_if.why_not(attempt.pod_class, row, pods):
                reasons.update(set(why))
            else:
                candidate = minimal(
                    snapshot.node_names[row],
                    pods,
                    budgets,
                    lambda without, row=row: self._fits(row, without),  # type: ignore[misc]
                )
                if candidate.victims:
                    candidates.append(candidate)
        return candidates, reasons

    def _evictable(self, snapshot: Snapshot, rows: IntArray) -> dict[int, list[PlacedPod]]:
        """Return the pods that may be evicted, by row."""
        by_row: dict[int, list[PlacedPod]] = {}
        if not len(rows) or snapshot.lowest_priority[rows].min() >= self._preemptor.priority:
            return by_row  # shortcut for long queues of pods with equal priority
        wanted = frozenset(rows.tolist())
        for key in self._assigned:
            placed = snapshot.pods.get(key)
            if (
                placed is not None
                and placed.row in wanted
                and is_allowed_victim(
                    self._pods[key],
                    self._quota,
                    self._preemptor,
                    self._quota,
                    spares_default_quota=self._spares_default_quota,
                )
            ):
                by_row.setdefault(placed.row, []).append(placed)
        return by_row

    def _fits(self, row: int, without: Sequence[PlacedPod]) -> bool:
        attempt = self._attempt
        return self._has_headroom(without) and not attempt.what_if.why_not(
            attempt.pod_class, row, without
        )

    def _has_headroom(self, without: Sequence[PlacedPod]) -> bool:
        return self._headroom.fits_without(self._pods[placed.key] for placed in without)


def _similar_name(trees: QuotaTrees, pod: QuotaPod) -> str:
    """Return a quota with a name similar to a label that names none; else empty."""
    if not pod.quota_label or pod.quota_label in trees:
        return ""
    return did_you_mean(pod.quota_label, trees.names)


def plugin_spec(factories: Mapping[str, HookFactory] | None = None) -> PluginSpec[ElasticQuotaArgs]:
    """Return the plugin spec with hook factories; by default those installed."""

    def build(args: ElasticQuotaArgs, _axis: ResourceAxis) -> ElasticQuotaPlugin:
        known = factories if factories is not None or not args.hook_plugins else installed_hooks()
        return ElasticQuotaPlugin(
            args,
            QuotaRules.of(args),
            AdmissionRules(
                uses_runtime=args.enable_runtime_quota,
                checks_parents=args.enable_check_parent_quota,
            ),
            hooks=_hooks(args, known or {}),
        )

    return PluginSpec(
        "ElasticQuota",
        ElasticQuotaArgs,
        build,
        # The version covers quota changes: they are checked once for all events.
        events=(EventHint("Pod", Action.UPDATE),),
    )


def installed_hooks() -> dict[str, HookFactory]:
    """Return the hook factories installed in this Python environment, by factory key."""
    return {point.name: point.load() for point in entry_points(ENTRY_POINTS)}


def _hooks(
    args: ElasticQuotaArgs, known: Mapping[str, HookFactory]
) -> tuple[tuple[str, str, HookFactory], ...]:
    """Return key, arguments and factory of each hook; raise InputError for unknown keys."""
    for index, conf in enumerate(args.hook_plugins):
        if conf.factory_key not in known:
            accepted = (
                f"one of {', '.join(sorted(known))}" if known else "empty: no hook is installed"
            )
            raise invalid_value(f"hookPlugins[{index}].factoryKey", conf.factory_key, accepted)
    return tuple((c.key, c.factory_args, known[c.factory_key]) for c in args.hook_plugins)


PLUGIN = plugin_spec()
