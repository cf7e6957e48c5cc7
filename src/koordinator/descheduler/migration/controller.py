"""MigrationController plugin: creates a PodMigrationJob for each eviction.

Source: koordinator pkg/descheduler/controllers/migration: controller.go, evict.go.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from uuid import UUID, uuid5

from msgspec.structs import replace

from koordinator.api.annotations.scheduling import (
    EVICT_REASON,
    EVICT_TRIGGER,
    JOB_CREATED_BY,
    PROVEN_MOVE,
)
from koordinator.api.defaults import with_defaults
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.pod_migration_job import (
    PodMigrationJob,
    PodMigrationJobMode,
    PodMigrationJobSpec,
)
from koordinator.api.reservation import Reservation
from koordinator.api.selectors import parse_label_selector
from koordinator.descheduler.candidates import selected_nodes
from koordinator.descheduler.contract import (
    DeschedulerPluginSpec,
    EvictOptions,
    Handle,
)
from koordinator.descheduler.migration.arguments import EvictionGate, MigrationControllerArgs
from koordinator.descheduler.migration.decisions import (
    reference_to_pod,
)
from koordinator.descheduler.migration.job_work import NO_CLAIMS, JobWork
from koordinator.descheduler.migration.jobs import (
    mode_of,
    pod_key,
    reservation_ref,
)
from koordinator.descheduler.migration.reservation_template import (
    options_avoiding,
    reservation_for,
)
from koordinator.descheduler.migration.workloads import WORKLOAD_KINDS
from koordinator.descheduler.node_fit import fits_elsewhere, is_ready
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import (
    ClusterError,
    InputError,
)

log = logging.getLogger(__name__)

_NAMES = UUID("b0a3c1de-70a7-5b0f-9d52-3f8a4f3c9f55")


class MigrationController:
    """Evict and filter plugin that moves pods by PodMigrationJobs between cycles."""

    def __init__(self, args: MigrationControllerArgs, handle: Handle) -> None:
        self._args, self._handle = args, handle
        self._view, self._writer, self._clock = handle.view, handle.writer, handle.clock
        self._work = JobWork(args, handle)

    def filter(self, pod: Pod) -> bool:
        """Return whether a job may be created for the pod."""
        refusal = self._work.filter.refusal(pod)
        if refusal is not None:
            log.debug("pod rejected", extra={"pod": pod.key, "check": str(refusal)})
        return refusal is None

    def pre_eviction_filter(self, pod: Pod) -> bool:
        """Return whether the pod fits on another ready node; true without ``nodeFit``."""
        if not self._args.node_fit or self._args.skips(EvictionGate.NODE_FIT):
            return True
        nodes = selected_nodes(
            tuple(self._view.objects(Node).values()), parse_label_selector(self._args.node_selector)
        )
        return fits_elsewhere((node for node in nodes if is_ready(node)), pod, self._view)

    def evict(self, pod: Pod, options: EvictOptions) -> bool:
        """Create a job for the pod; return whether it was created."""
        extra = {"pod": pod.key, "plugin": options.plugin, "reason": options.reason}
        if self._args.dry_run:
            log.info("dry run: pod would be moved", extra=extra)
            return True
        now_s = self._clock.now_s()
        refusal = self._work.filter.refusal(pod)
        if refusal is not None:
            log.info("pod not moved", extra={**extra, "why": str(refusal)})
            return False
        next_s = self._work.limiters.next_eviction_s(pod, now_s)
        if next_s > now_s:
            log.info("pod not moved", extra={**extra, "why": "objectLimiters", "until_s": next_s})
            return False
        try:
            self._handle.announce(self._writer.create(self._job_for(pod, options, now_s)))
        except ClusterError as error:
            log.warning("job not created", extra={**extra, "error": str(error)})
            return False
        return True

    def evict_together(self, pods: Sequence[tuple[Pod, EvictOptions]]) -> bool:
        """Create jobs for all of the pods or for none; return whether they were created."""
        created: list[str] = []
        for pod, options in pods:
            if not self.evict(pod, options):
                for name in created:
                    self._delete_waiting_job(name)
                return False
            created += [job.metadata.name for job in self._work.jobs.live_about(pod)]
        return True

    def place_to_reserve(self, pod: Pod, avoided_nodes: tuple[str, ...] = ()) -> Reservation | None:
        """Return the reservation that a job for the pod would create; None without one.

        Raises InputError if it can't be created.
        """
        if self._args.default_job_mode != PodMigrationJobMode.RESERVATION_FIRST:
            return None
        now_s = self._clock.now_s()
        options = EvictOptions(plugin="", profile=self._handle.profile, avoided_nodes=avoided_nodes)
        job = self._job_for(pod, options, now_s)
        uid = job.metadata.name
        job = replace(job, metadata=replace(job.metadata, uid=uid))
        drops = NO_CLAIMS in self._handle.gates
        made = with_defaults(reservation_for(job, pod, now_s, drops_claims=drops))
        return replace(made, metadata=replace(made.metadata, uid=uid))

    def moves_under_way(self) -> Iterator[tuple[Pod, Reservation | None]]:
        """Yield the pods of live jobs without a scheduled reservation, the oldest job first."""
        pods, now_s = self._view.objects(Pod), self._clock.now_s()
        drops = NO_CLAIMS in self._handle.gates
        jobs = sorted(
            (to_epoch_s(job.metadata.creation_timestamp), job.metadata.name, job)
            for job in self._work.jobs.live()
            if self._work.is_own(job) and not job.spec.paused
        )
        for _, _, job in jobs:
            pod = pods.get(pod_key(job.spec.pod_ref))
            if (
                pod is None
                or pod.metadata.deletion_timestamp is not None
                or not pod.spec.node_name
                or job.spec.pod_ref.uid not in {"", pod.metadata.uid}
            ):
                continue
            if mode_of(job, self._args.default_job_mode) == PodMigrationJobMode.EVICT_DIRECTLY:
                yield pod, None
                continue
            reference = reservation_ref(job)
            reservation = (
                None if reference is None else self._work.known_reservation(reference.name)
            )
            if reservation is None:
                with suppress(InputError):
                    made = with_defaults(reservation_for(job, pod, now_s, drops_claims=drops))
                    yield pod, replace(made, metadata=replace(made.metadata, uid=job.metadata.uid))
            elif not reservation.status.node_name:
                yield pod, reservation

    def _delete_waiting_job(self, name: str) -> None:
        """Delete a job that arbitration has not admitted."""
        job = self._work.jobs.by_name.get(name)
        if job is None:
            return
        try:
            self._writer.delete(PodMigrationJob, name, uid=job.metadata.uid)
        except ClusterError as error:
            log.warning("job not deleted", extra={"job": name, "error": str(error)})
        else:
            self._handle.announce(job, deleted=True)

    def _job_for(self, pod: Pod, options: EvictOptions, now_s: float) -> PodMigrationJob:
        proven, mode = options.proven, self._args.default_job_mode
        # A gang is scheduled as a whole; reservations of single members don't help it.  A finished
        # pod has no replacement that would use a reservation.
        if is_terminal(pod) or (proven and proven.gang):
            mode = PodMigrationJobMode.EVICT_DIRECTLY
        return PodMigrationJob(
            metadata=ObjectMeta(
                name=str(uuid5(_NAMES, f"{pod.metadata.uid} {now_s}")),
                annotations={
                    EVICT_REASON: options.reason,
                    EVICT_TRIGGER: options.plugin,
                    JOB_CREATED_BY: self._handle.profile,
                    **(PROVEN_MOVE.entry(proven) if proven is not None else {}),
                },
            ),
            spec=PodMigrationJobSpec(
                pod_ref=reference_to_pod(pod),
                mode=mode,
                ttl=self._args.default_job_ttl,
                delete_options=options.delete_options or self._args.default_delete_options,
                reservation_options=options_avoiding(pod, options.avoided_nodes),
            ),
        )

    # -- between cycles ------------------------------------------------------------------------

    def observe(self, obj: KubeObject, *, deleted: bool) -> None:
        """Process an event, and requeue the jobs that it concerns."""
        self._work.observe(obj, deleted=deleted)

    def step(self) -> int:
        """Arbitrate waiting jobs and reconcile those that are due; return how many."""
        return self._work.step()

    def next_wakeup_s(self) -> float | None:
        """Return when a step is due without events; None if never."""
        return self._work.next_wakeup_s()


def build(args: MigrationControllerArgs, handle: Handle) -> MigrationController:
    """Return the controller of a profile."""
    return MigrationController(args, handle)


MIGRATION_CONTROLLER = DeschedulerPluginSpec(
    "MigrationController",
    MigrationControllerArgs,
    build,
    watches=(PodMigrationJob, Reservation, *WORKLOAD_KINDS),
)
