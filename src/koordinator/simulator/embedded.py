"""Scheduler on an in-memory cluster with a virtual clock, without threads."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec.structs import replace

from koordinator.api.defaults import with_defaults
from koordinator.api.dynamic_resources import ClaimAllocation, ResourceClaim
from koordinator.api.kubescheduler import (
    DEFAULT_SCHEDULER_NAME,
    NO_GATES,
    FeatureGates,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
)
from koordinator.api.kubescheduler import Extender as ExtenderConfig
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod, PodSpec, is_terminal
from koordinator.api.reservation import Reservation
from koordinator.cluster.memory.admission import (
    Admission,
    WriteOperation,
    default_storage_class,
    prioritized_spec,
    resolve_priority,
)
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import Reader
from koordinator.domain.dynamic_resources.allocation import claim_names, sharing_groups
from koordinator.domain.reserve_pod import is_active, reserve_pod
from koordinator.foundation.clock import VirtualClock, to_epoch_s
from koordinator.foundation.errors import FaultHandler, FaultLog, InputError, raise_fault
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.extenders import Connect, build_extenders
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.loop import Bound, Evicted, Outcome, SchedulerOptions, Unschedulable
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.queue import QueueState
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator.device_claims import DeviceClaimController
from koordinator.simulator.volume_controller import VolumeController, create_ephemeral_claims

if TYPE_CHECKING:  # metrics are imported by the callers that use them
    from koordinator.scheduler.features.auditor import WorkloadAuditor
    from koordinator.scheduler.features.metrics import SchedulerMetrics

#: Rounds of retries without a placement or eviction before the fixed point is assumed.
FRUITLESS_ROUNDS = 8

CHUNK = 1 << 16  # pods loaded between two steps of the scheduler; bounds its event queue

STOCK = KubeSchedulerConfiguration(
    profiles=(KubeSchedulerProfile(scheduler_name=DEFAULT_SCHEDULER_NAME),)
)


def keep_or_resolve_priority(
    operation: WriteOperation, obj: KubeObject, cluster: Reader
) -> KubeObject:
    """Resolve the priority of a pod unless it is set, as in a manifest from a cluster."""
    if isinstance(obj, Pod) and obj.spec.priority is not None:
        return obj
    return resolve_priority(operation, obj, cluster)


#: Without defaulting and validation, which reading a manifest has done.
DEFAULT_ADMISSION: tuple[Admission, ...] = (keep_or_resolve_priority, default_storage_class)


def no_extender(_: ExtenderConfig) -> NoReturn:
    """Reject extenders in commands that send no requests.  Raises InputError."""
    raise InputError(
        "must be empty: extenders are not called here "
        "(koord schedule and koord scheduler call them)"
    )


def without_binding(configuration: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """Return a configuration for dry runs, whose extenders filter and score but do not bind."""
    extenders = tuple(replace(one, bind_verb="") for one in configuration.extenders)
    return replace(configuration, extenders=extenders)


class Embedded:
    """In-memory cluster with its scheduler."""

    def __init__(
        self,
        configuration: KubeSchedulerConfiguration = STOCK,
        *,
        now_s: float = 0.0,
        options: SchedulerOptions | None = None,
        admission: Sequence[Admission] = DEFAULT_ADMISSION,
        out_of_tree: Iterable[PluginSpec[Any]] = (),
        source: str = "",
        gates: FeatureGates = NO_GATES,
        metrics: "SchedulerMetrics | None" = None,
        audit: Audit | None = None,
        auditor: "WorkloadAuditor | None" = None,
        on_fault: FaultHandler = raise_fault,
        state: ClusterState | None = None,
        connect: Connect | None = None,
    ) -> None:
        """``state`` is an empty state with settings other than the defaults.

        ``connect`` connects to extenders.  Raises InputError for extenders without ``connect``.
        """
        self.clock = VirtualClock(now_s)
        self.cluster = MemoryCluster(self.clock, admission=admission)
        self.state = state or ClusterState()
        built = build_profiles(
            configuration, self.state.axis, out_of_tree=out_of_tree, source=source, gates=gates
        )
        extenders = build_extenders(
            configuration, self.clock, connect or no_extender, source=source
        )
        claims = DeviceClaimController(self.cluster, sharing_groups(gates))
        self._controllers = (VolumeController(self.cluster), claims)
        self._synced = False
        self._resolves_priorities = keep_or_resolve_priority in admission
        options = options or SchedulerOptions(
            initial_backoff_s=configuration.pod_initial_backoff_seconds,
            max_backoff_s=configuration.pod_max_backoff_seconds,
        )
        self.scheduler = build_scheduler(
            self.cluster,
            self.clock,
            built.profiles,
            self.state,
            WATCHED,
            options=options.with_gates(gates),
            metrics=metrics,
            audit=audit,
            auditor=auditor,
            on_fault=on_fault,
            extenders=extenders,
        )

    def load(self, objects: Iterable[KubeObject]) -> None:
        """Add objects; queue pending pods by creation time, then in the given order."""
        existing: list[KubeObject] = []
        pending: list[KubeObject] = []
        for obj in map(_defaulted, objects):
            (pending if _is_pending(obj) else existing).append(obj)
        pending.sort(key=lambda pod: to_epoch_s(pod.metadata.creation_timestamp))
        self.cluster.load(existing, admit=True)
        self.step_controllers()  # makes volumes from manifests available before pods need them
        if not self._synced:
            self.scheduler.sync()
            self._synced = True
        if self._resolves_priorities:
            pending = self._with_priorities(pending)
        for start in range(0, len(pending), CHUNK):
            self.cluster.load(pending[start : start + CHUNK], admit=True)
            self.scheduler.step(limit=0)
        for pod in pending:
            if isinstance(pod, Pod) and any(volume.ephemeral for volume in pod.spec.volumes):
                meta = pod.metadata
                stored = self.cluster.get(Pod, meta.name, meta.namespace)
                create_ephemeral_claims(self.cluster, stored)
        self.step_controllers()

    def _with_priorities(self, objects: Sequence[KubeObject]) -> list[KubeObject]:
        """Resolve the priorities of pods; those that share a spec share the one with priority.

        One spec for all pods of an owner is encoded and looked up faster than one for each.
        """
        resolved: dict[int, PodSpec] = {}
        completed: list[KubeObject] = []
        for obj in objects:
            if isinstance(obj, Pod) and obj.spec.priority is None:
                spec = resolved.get(id(obj.spec))
                if spec is None:
                    spec = resolved[id(obj.spec)] = prioritized_spec(obj, self.cluster)
                completed.append(replace(obj, spec=spec))
            else:
                completed.append(obj)
        return completed

    def step_controllers(self) -> bool:
        """Run the controllers of claims and volumes once; return whether there was work."""
        did = [controller.step() for controller in self._controllers]
        return any(did)

    def run_to_fixed_point(self) -> list[Outcome]:
        """Schedule to a fixed point, advancing the clock over backoffs; return all outcomes."""
        outcomes: list[Outcome] = []
        fruitless = 0
        while True:
            done = self.scheduler.step()
            outcomes += done
            if self.step_controllers() or any(
                not isinstance(outcome, Unschedulable) for outcome in done
            ):
                fruitless = 0
                continue  # another pod may fit the freed resources
            fruitless += 1
            counts = self.scheduler.queue.counts()
            wakeup_s = self.scheduler.next_wakeup_s()
            waits = counts[QueueState.BACKOFF] or counts[QueueState.IN_FLIGHT]
            if not waits or wakeup_s is None or fruitless >= FRUITLESS_ROUNDS:
                return outcomes
            self.clock.advance_to(wakeup_s)


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """Decisions of a scheduling run: placements, unschedulable pods, evictions."""

    placements: tuple[Bound, ...]
    unschedulable: tuple[Unschedulable, ...]
    evicted: tuple[Evicted, ...]
    reservations: tuple[Bound | Unschedulable, ...] = ()  # outcomes of pending reservations
    faults: FaultLog = field(default_factory=FaultLog)  # faults of plugins; call ``check``
    #: devices of the claims of placed pods, by pod and name of the claim
    allocations: Mapping[str, Mapping[str, ClaimAllocation]] = field(default_factory=dict)

    def about(
        self, pods: AbstractSet[str], reservations: AbstractSet[str] = frozenset()
    ) -> "ScheduleResult":
        """Return the decisions about these pods (``namespace/name``) and reservations."""
        return ScheduleResult(
            tuple(o for o in self.placements if o.pod in pods),
            tuple(o for o in self.unschedulable if o.pod in pods),
            tuple(o for o in self.evicted if o.pod in pods or o.by in pods),
            tuple(o for o in self.reservations if o.reservation in reservations),
            self.faults,
            {pod: claims for pod, claims in self.allocations.items() if pod in pods},
        )


def schedule(
    objects: Iterable[KubeObject],
    configuration: KubeSchedulerConfiguration = STOCK,
    *,
    now_s: float = 0.0,
    explain: bool = False,
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    source: str = "",
    gates: FeatureGates = NO_GATES,
    connect: Connect | None = None,
) -> ScheduleResult:
    """Schedule the pending pods among ``objects`` and return every decision.

    ``explain`` keeps each decision's scorecard.  ``source`` names the configuration in errors.
    A plugin's fault affects its pods only and is listed in ``faults`` of the result.
    Raises InputError, and InvalidError for an object that admission rejects.
    """
    faults = FaultLog()
    options = SchedulerOptions(
        initial_backoff_s=configuration.pod_initial_backoff_seconds,
        max_backoff_s=configuration.pod_max_backoff_seconds,
        report=False,
        explain=explain,
    )
    world = Embedded(
        configuration,
        now_s=now_s,
        options=options,
        out_of_tree=out_of_tree,
        source=source,
        gates=gates,
        on_fault=faults,
        connect=connect,
    )
    world.load(objects)
    outcomes = world.run_to_fixed_point()
    bound = {o.pod: o for o in outcomes if isinstance(o, Bound)}
    # A pod may have been refused before it was bound, so only its last outcome counts.
    refused = {o.pod: o for o in outcomes if isinstance(o, Unschedulable) and o.pod not in bound}
    for left in _never_tried(world):
        refused.setdefault(left.pod, left)
    last: list[Bound | Unschedulable] = [*bound.values(), *refused.values()]
    return ScheduleResult(
        tuple(o for o in bound.values() if not o.reservation),
        tuple(o for o in refused.values() if not o.reservation),
        tuple(o for o in outcomes if isinstance(o, Evicted)),
        tuple(o for o in last if o.reservation),
        faults,
        {pod: devices for pod in bound if (devices := _allocations(world, pod))}
        if any(world.state.objects.all(ResourceClaim))
        else {},
    )


def _allocations(world: Embedded, key: str) -> dict[str, ClaimAllocation]:
    """Return the allocations of a placed pod's claims."""
    placed = world.state.placed(key)
    if placed is None:
        return {}
    meta, spec, status = placed.pod.metadata, placed.pod.spec, placed.pod.status
    named = claim_names(spec.resource_claims, status.resource_claim_statuses)
    keys = [f"{meta.namespace}/{name}" for _, name in named if name]
    made = world.state.extended.claims.get(meta.uid)
    claims = (world.state.objects.get(ResourceClaim, key) for key in (*keys, made or ""))
    return {
        claim.metadata.name: claim.status.allocation
        for claim in claims
        if claim is not None and claim.status.allocation is not None
    }


def _never_tried(world: Embedded) -> Iterable[Unschedulable]:
    """Yield gated pods and pods of other schedulers, for which no attempt was made."""
    queue, names = world.scheduler.queue, sorted(world.scheduler.cycles)
    for reservation in filter(is_active, world.cluster.list(Reservation).items):
        pod, name = reserve_pod(reservation), reservation.metadata.name
        queued = queue.get(pod.key)
        if queued is not None and queued.gated_by:
            message = queued.message
            yield Unschedulable(pod.key, queued.gated_by, message, message, reservation=name)
        elif queued is None and pod.key not in world.state.pods.by_key:
            reason = (
                f"no profile schedules it: spec.template.spec.schedulerName is "
                f"{pod.spec.scheduler_name!r}, the profiles are {', '.join(names)}; the plugin "
                "Reservation has to be on"
            )
            yield Unschedulable(pod.key, "", reason, reason, reservation=name)
    for pod in world.cluster.list(Pod).items:
        if not _is_pending(pod):
            continue
        queued = queue.get(pod.key)
        if queued is not None and queued.gated_by:
            yield Unschedulable(pod.key, queued.gated_by, queued.message, queued.message)
        elif queued is None:
            reason = (
                f"no profile schedules it: spec.schedulerName is {pod.spec.scheduler_name!r}, "
                f"the profiles are {', '.join(names)}"
            )
            yield Unschedulable(pod.key, "", reason, reason)


def _defaulted(obj: KubeObject) -> KubeObject:
    """Apply the API server's defaults; a pod with a schedulerName has them already."""
    if isinstance(obj, Pod) and obj.spec.scheduler_name:
        return obj
    return with_defaults(obj)


def _is_pending(obj: KubeObject) -> bool:
    return isinstance(obj, Pod) and not obj.spec.node_name and not is_terminal(obj)
