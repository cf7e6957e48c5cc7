"""Filter of the MigrationController: reasons why a pod must not be moved.

A lasting refusal holds until the pod or the configuration changes; a job for such a pod fails.  A
passing refusal comes from a limit on concurrent moves; a job waits until it ends.
Source: koordinator pkg/descheduler/controllers/migration/arbitrator/filter.go,
pkg/descheduler/evictions/evictions.go; kubernetes-sigs/descheduler pkg/utils/pod.go.
"""

from collections.abc import Callable, Iterable

from koordinator.api.annotations.scheduling import NEVER_EVICT, eviction_cost
from koordinator.api.meta import OwnerReference
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobMode
from koordinator.api.selectors import matches
from koordinator.descheduler.candidates import (
    has_local_storage,
    has_volume_claim,
    is_always_evictable,
    is_mirror,
    is_of_daemon_set,
    is_static,
    is_system_critical,
    is_terminating,
)
from koordinator.descheduler.contract import ClusterView
from koordinator.descheduler.migration.arguments import EvictionGate, MigrationControllerArgs
from koordinator.descheduler.migration.jobs import JobIndex, has_passed, pod_key
from koordinator.descheduler.migration.workloads import (
    Workloads,
    WorkloadScale,
    resolved_limit,
)
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class MoveRefusal:
    """Check that a pod fails, with the value that fails it."""

    check: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.check}: {self.detail}" if self.detail else self.check


_Check = Callable[[Pod], MoveRefusal | None]


class MoveFilter:
    """Checks of pods against the arguments, the existing jobs and the workloads."""

    def __init__(
        self,
        args: MigrationControllerArgs,
        view: ClusterView,
        jobs: JobIndex,
        workloads: Workloads,
    ) -> None:
        self._args, self._view, self._jobs, self._workloads = args, view, jobs, workloads
        self._lasting: tuple[_Check, ...] = tuple(self._lasting_checks())

    def refusal(self, pod: Pod) -> MoveRefusal | None:
        """Return why no job may be created for a pod now, None if one may."""
        job = next(iter(self._jobs.live_about(pod)), None)
        if job is not None:
            return MoveRefusal("ExistingPodMigrationJob", job.metadata.name)
        args = self._args
        if (
            args.default_job_mode == PodMigrationJobMode.RESERVATION_FIRST
            and pod.spec.scheduler_name not in args.scheduler_names
        ):
            detail = f"spec.schedulerName {pod.spec.scheduler_name!r} cannot reserve"
            return MoveRefusal("SchedulerNames", detail)
        return self.lasting_refusal(pod) or self.passing_refusal(pod)

    def lasting_refusal(self, pod: Pod) -> MoveRefusal | None:
        """Return why a pod must not be moved until it or the configuration changes."""
        if is_always_evictable(pod):
            return None
        for check in self._lasting:
            refusal = check(pod)
            if refusal is not None:
                return refusal
        return None

    def passing_refusal(self, pod: Pod, *, arbitrating: bool = False) -> MoveRefusal | None:
        """Return the limit on concurrent moves that a move of the pod would exceed.

        When ``arbitrating``, only admitted jobs count.
        """
        if is_always_evictable(pod):
            return None
        return (
            self._globally(pod, arbitrating)
            or self._on_node(pod, arbitrating)
            or self._in_namespace(pod, arbitrating)
            or self._of_workload(pod, arbitrating)
        )

    # -- lasting ----------------------------------------------------------------------------

    def _lasting_checks(self) -> Iterable[_Check]:
        args = self._args
        if args.namespaces is not None and not args.skips(EvictionGate.NAMESPACES):
            yield self._namespace
        yield _never_evicted
        yield _belongs_to_node
        if not (args.evict_all_bare_pods or args.skips(EvictionGate.BARE_PODS)):
            yield self._bare
        if not (args.evict_system_critical_pods or args.skips(EvictionGate.SYSTEM_CRITICAL)):
            yield self._critical
            yield self._too_important
        if not (args.evict_local_storage_pods or args.skips(EvictionGate.LOCAL_STORAGE)):
            yield _local_storage
        if args.ignore_pvc_pods and not args.skips(EvictionGate.PVC):
            yield _claims
        if args.label_selector is not None and not args.skips(EvictionGate.LABEL_SELECTOR):
            yield self._labels
        if not args.skips(EvictionGate.EXPECTED_REPLICAS):
            yield self._expected_replicas

    def _namespace(self, pod: Pod) -> MoveRefusal | None:
        namespaces = self._args.namespaces
        if namespaces is None or namespaces.covers(pod.metadata.namespace):
            return None
        return MoveRefusal(EvictionGate.NAMESPACES, pod.metadata.namespace)

    def _bare(self, pod: Pod) -> MoveRefusal | None:
        if pod.metadata.owner_references:
            return None
        if self._args.evict_failed_bare_pods and pod.status.phase == "Failed":
            return None
        return MoveRefusal(EvictionGate.BARE_PODS, "the pod has no owner")

    def _critical(self, pod: Pod) -> MoveRefusal | None:
        if not is_system_critical(pod):
            return None
        return MoveRefusal(EvictionGate.SYSTEM_CRITICAL, f"priority {pod.spec.priority}")

    def _too_important(self, pod: Pod) -> MoveRefusal | None:
        threshold, priority = self._args.priority_threshold, pod.spec.priority
        if self._args.skips(EvictionGate.PRIORITY_THRESHOLD) or threshold is None:
            return None
        if threshold.value is None or priority is None or priority < threshold.value:
            return None
        return MoveRefusal(EvictionGate.PRIORITY_THRESHOLD, f"priority {priority}")

    def _labels(self, pod: Pod) -> MoveRefusal | None:
        selector = self._args.label_selector
        if selector is None or matches(selector, pod.metadata.labels):
            return None
        return MoveRefusal(EvictionGate.LABEL_SELECTOR)

    def _expected_replicas(self, pod: Pod) -> MoveRefusal | None:
        owner = pod.metadata.controller
        if owner is None or self._args.skip_check_expected_replicas:
            return None
        replicas = self._workloads.scale_of(owner, pod.metadata.namespace).replicas
        migrating = resolved_limit(replicas, self._args.max_migrating_per_workload)
        unavailable = resolved_limit(replicas, self._args.max_unavailable_per_workload)
        if replicas in {1, migrating, unavailable}:
            return MoveRefusal(
                EvictionGate.EXPECTED_REPLICAS, f"{replicas} of {owner.kind} {owner.name}"
            )
        return None

    # -- passing -----------------------------------------------------------------------------

    def _globally(self, pod: Pod, arbitrating: bool) -> MoveRefusal | None:
        most = self._args.max_migrating_globally
        if not most or self._args.skips(EvictionGate.MAX_MIGRATING_GLOBALLY):
            return None
        count = self._count(self._jobs.live(), pod, arbitrating)
        return _above(EvictionGate.MAX_MIGRATING_GLOBALLY, count, most)

    def _on_node(self, pod: Pod, arbitrating: bool) -> MoveRefusal | None:
        most, node = self._args.max_migrating_per_node, pod.spec.node_name
        if not (node and most) or self._args.skips(EvictionGate.MAX_MIGRATING_PER_NODE):
            return None
        count = sum(
            1
            for other in self._view.pods_on(node)
            if other.metadata.uid != pod.metadata.uid and self._is_migrating(other, arbitrating)
        )
        return _above(EvictionGate.MAX_MIGRATING_PER_NODE, count, most)

    def _in_namespace(self, pod: Pod, arbitrating: bool) -> MoveRefusal | None:
        most = self._args.max_migrating_per_namespace
        if not most or self._args.skips(EvictionGate.MAX_MIGRATING_PER_NAMESPACE):
            return None
        jobs = self._jobs.live_in(pod.metadata.namespace)
        count = self._count(jobs, pod, arbitrating)
        return _above(EvictionGate.MAX_MIGRATING_PER_NAMESPACE, count, most)

    def _of_workload(self, pod: Pod, arbitrating: bool) -> MoveRefusal | None:
        args, owner = self._args, pod.metadata.controller
        limits_moves = not args.skips(EvictionGate.MAX_MIGRATING_PER_WORKLOAD)
        limits_absence = not args.skips(EvictionGate.MAX_UNAVAILABLE_PER_WORKLOAD)
        if owner is None or not (limits_moves or limits_absence):
            return None
        scale = self._workloads.scale_of(owner, pod.metadata.namespace)
        migrating = self._migrating_of(owner, pod, arbitrating)
        if limits_moves and migrating:
            most = resolved_limit(scale.replicas, args.max_migrating_per_workload)
            if refusal := _above(EvictionGate.MAX_MIGRATING_PER_WORKLOAD, len(migrating), most):
                return refusal
        return self._too_few_available(scale, migrating) if limits_absence else None

    def _too_few_available(self, scale: WorkloadScale, migrating: set[str]) -> MoveRefusal | None:
        most = resolved_limit(scale.replicas, self._args.max_unavailable_per_workload)
        count = len(self._workloads.unavailable_pods(scale) | migrating)
        return _above(EvictionGate.MAX_UNAVAILABLE_PER_WORKLOAD, count, most)

    def _count(self, jobs: Iterable[PodMigrationJob], pod: Pod, arbitrating: bool) -> int:
        """Return how many of the jobs move other pods."""
        return sum(
            1
            for job in jobs
            if job.spec.pod_ref.uid != pod.metadata.uid and (not arbitrating or has_passed(job))
        )

    def _is_migrating(self, pod: Pod, arbitrating: bool) -> bool:
        jobs = self._jobs.live_about(pod)
        return any(not arbitrating or has_passed(job) for job in jobs)

    def _migrating_of(self, owner: OwnerReference, pod: Pod, arbitrating: bool) -> set[str]:
        """Return the other pods of a controller that are being moved, by ``namespace/name``."""
        pods = self._view.objects(Pod)
        migrating: set[str] = set()
        for job in self._jobs.live_in(pod.metadata.namespace):
            if job.spec.pod_ref.uid == pod.metadata.uid or (arbitrating and not has_passed(job)):
                continue
            other = pods.get(pod_key(job.spec.pod_ref))
            controller = None if other is None else other.metadata.controller
            if other is not None and controller is not None and controller.uid == owner.uid:
                migrating.add(other.key)
        return migrating


def _above(gate: EvictionGate, count: int, most: int) -> MoveRefusal | None:
    return MoveRefusal(gate, f"{count} of at most {most}") if count >= most else None


def _never_evicted(pod: Pod) -> MoveRefusal | None:
    if eviction_cost(pod.metadata) != NEVER_EVICT:
        return None
    return MoveRefusal("MaxEvictionCost", f"the eviction cost is {NEVER_EVICT}")


def _belongs_to_node(pod: Pod) -> MoveRefusal | None:
    """Refuse pods that return to the same node, and terminating ones."""
    for check, holds in (
        ("DaemonSet", is_of_daemon_set),
        ("MirrorPod", is_mirror),
        ("StaticPod", is_static),
        ("Terminating", is_terminating),
    ):
        if holds(pod):
            return MoveRefusal(check)
    return None


def _local_storage(pod: Pod) -> MoveRefusal | None:
    return MoveRefusal(EvictionGate.LOCAL_STORAGE) if has_local_storage(pod) else None


def _claims(pod: Pod) -> MoveRefusal | None:
    return MoveRefusal(EvictionGate.PVC) if has_volume_claim(pod) else None
