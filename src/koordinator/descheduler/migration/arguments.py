"""Arguments of the MigrationController.

Source: koordinator pkg/descheduler/apis/config/v1alpha2: types_pluginargs.go, defaults.go;
validation/validation_pluginargs.go.
"""

import re
from enum import StrEnum
from typing import Final

from msgspec import field

from koordinator.api.annotations.scheduling import EvictionPolicy
from koordinator.api.kubescheduler.structs import ConfigStruct, fill
from koordinator.api.meta import LabelSelector
from koordinator.api.pod_migration_job import DeleteOptions, PodMigrationJobMode
from koordinator.api.selectors import parse_label_selector
from koordinator.api.syntax import join_path
from koordinator.descheduler.configuration import (
    DeschedulerPluginArgs,
    NamespaceLists,
    check_namespaces,
    check_selector,
    field_error,
)
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError

_PERCENTAGE = re.compile(r"[0-9]{1,9}%")
_MAX_INT32 = 2**31 - 1

_ARBITRATION_INTERVAL: Final = Duration(milliseconds=500)


class EvictionGate(StrEnum):
    """Name of a check that ``skipEvictionGates`` can disable."""

    MAX_UNAVAILABLE_PER_WORKLOAD = "MaxUnavailablePerWorkload"
    MAX_MIGRATING_PER_WORKLOAD = "MaxMigratingPerWorkload"
    MAX_MIGRATING_PER_NODE = "MaxMigratingPerNode"
    MAX_MIGRATING_PER_NAMESPACE = "MaxMigratingPerNamespace"
    MAX_MIGRATING_GLOBALLY = "MaxMigratingGlobally"
    EXPECTED_REPLICAS = "ExpectedReplicas"
    PVC = "PVC"
    BARE_PODS = "BarePods"
    LOCAL_STORAGE = "LocalStorage"
    SYSTEM_CRITICAL = "SystemCritical"
    PRIORITY_THRESHOLD = "PriorityThreshold"
    LABEL_SELECTOR = "LabelSelector"
    NAMESPACES = "Namespaces"
    NODE_FIT = "NodeFit"


class LimitedObject(StrEnum):
    """Kind of object whose evictions are rate-limited."""

    WORKLOAD = "workload"
    NAMESPACE = "namespace"


class MigrationPriorityThreshold(ConfigStruct, frozen=True, kw_only=True):
    """Priority from which on pods are not evicted; ``name`` is the name of a PriorityClass."""

    value: int | None = None  # priority
    name: str = ""  # name of a PriorityClass, in place of the value


class MigrationObjectLimiter(ConfigStruct, frozen=True, kw_only=True):
    """Limit of evictions within ``duration`` with a burst.

    A ``duration`` of 0 disables the limiter, a ``burst`` of 0 means 1.  The default of
    ``maxMigrating`` for a workload is ``maxMigratingPerWorkload``.
    """

    duration: Duration = Duration()  # time window; 0s means no limit
    #: largest number or percentage of moves within the window
    max_migrating: int | str | None = None
    burst: int = 0  # moves at once; 0 means 1


class ArbitrationArgs(ConfigStruct, frozen=True, kw_only=True):
    """Interval of arbitration; ``enabled`` has no effect, as in the original."""

    enabled: bool = True  # has no effect
    interval: Duration | None = None  # time between two arbitrations


_OBJECT_LIMITERS: Final = {
    LimitedObject.WORKLOAD.value: MigrationObjectLimiter(duration=Duration(minutes=5))
}


class MigrationControllerArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Eligible pods, limits of concurrent moves, and modes of moves.

    A value of 0 in ``maxMigrating{Globally,PerNode,PerNamespace}`` means no limit.  Limits per
    workload are numbers of pods or percentages of its replicas.
    """

    dry_run: bool = False
    #: has no effect: jobs are reconciled one at a time
    max_concurrent_reconciles: int = 1
    evict_failed_bare_pods: bool = False  # whether failed pods without owner may be evicted
    evict_all_bare_pods: bool = False  # whether all pods without owner may be evicted
    evict_local_storage_pods: bool = False  # whether pods with local storage may be evicted
    #: whether pods of system-critical priority may be evicted
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False  # whether pods with volume claims are not evicted
    priority_threshold: MigrationPriorityThreshold | None = None
    label_selector: LabelSelector | None = None
    namespaces: NamespaceLists | None = None
    node_fit: bool = False
    node_selector: str = ""
    skip_eviction_gates: tuple[str, ...] = ()  # checks to disable
    #: largest number of concurrent moves; 0 means no limit
    max_migrating_globally: int | None = None
    max_migrating_per_node: int = 2  # the same from one node; 0 means no limit
    max_migrating_per_namespace: int | None = None  # the same of one namespace; 0 means no limit
    #: the same of one workload, as a number or a percentage
    max_migrating_per_workload: int | str | None = None
    #: largest number or percentage of unavailable pods of a workload
    max_unavailable_per_workload: int | str | None = None
    #: whether workloads with a single replica may be moved
    skip_check_expected_replicas: bool = False
    #: moves within a time window, by kind of object: workload or namespace
    object_limiters: dict[str, MigrationObjectLimiter] = {}  # noqa: RUF012 -- msgspec copies it
    default_job_mode: str = ""  # mode of jobs: ReservationFirst or EvictDirectly
    #: time after which a job is given up
    default_job_ttl: Duration = field(name="defaultJobTTL", default=Duration(minutes=5))
    scheduler_names: tuple[str, ...] = ()  # schedulers that can use reservations
    evict_qps: float | str = field(name="evictQPS", default=10.0)  # evictions per second
    evict_burst: int = 1  # evictions that may exceed the rate at once
    eviction_policy: str = ""  # Eviction, Delete or SoftEviction
    default_delete_options: DeleteOptions | None = None  # options of deletions
    arbitration_args: ArbitrationArgs = ArbitrationArgs()  # arbitration between jobs

    def __post_init__(self) -> None:
        fill(
            self,
            object_limiters=self.object_limiters or dict(_OBJECT_LIMITERS),
            default_job_mode=self.default_job_mode or PodMigrationJobMode.RESERVATION_FIRST.value,
            scheduler_names=self.scheduler_names or ("koord-scheduler",),
            eviction_policy=self.eviction_policy or EvictionPolicy.EVICTION.value,
        )

    def validate(self) -> None:
        for index, gate in enumerate(self.skip_eviction_gates):
            if gate not in frozenset(EvictionGate):
                problem = f"unknown eviction gate; must be one of {', '.join(EvictionGate)}"
                raise field_error(f"skipEvictionGates[{index}]", gate, problem)
        self._check_numbers()
        self._check_limiters()
        check_selector(self.label_selector, "labelSelector")
        try:
            parse_label_selector(self.node_selector)
        except InputError as error:
            raise error.within(path="nodeSelector") from None
        check_namespaces(self.namespaces, "namespaces")
        _check_choice(
            self.default_job_mode,
            tuple(PodMigrationJobMode),
            "defaultJobMode",
            "defaultJobMode must be ReservationFirst or EvictDirectly",
        )
        _check_choice(
            self.eviction_policy,
            tuple(EvictionPolicy),
            "evictionPolicy",
            f"must be one of {', '.join(EvictionPolicy)}",
        )
        if self.default_job_ttl < Duration():
            problem = "defaultJobTTL should be positive or zero"
            raise field_error("defaultJobTTL", str(self.default_job_ttl), problem)
        interval = self.arbitration_args.interval
        if interval is not None and interval < Duration():
            problem = "arbitrationArgs.interval should be positive or zero"
            raise field_error("arbitrationArgs.interval", str(interval), problem)

    @property
    def evictions_per_s(self) -> float:
        """Rate of evictions; 0 for a text that is not a number."""
        try:
            return float(self.evict_qps)
        except ValueError:
            return 0.0

    @property
    def arbitration_interval_s(self) -> float:
        """Time between two arbitrations."""
        interval = self.arbitration_args.interval
        return (_ARBITRATION_INTERVAL if interval is None else interval).total_seconds()

    def skips(self, gate: EvictionGate) -> bool:
        """Return whether a check is disabled."""
        return gate in self.skip_eviction_gates

    def _check_numbers(self) -> None:
        for path, limit in (
            ("maxMigratingGlobally", self.max_migrating_globally),
            ("maxMigratingPerNamespace", self.max_migrating_per_namespace),
            ("maxMigratingPerNode", self.max_migrating_per_node),
        ):
            if limit is not None and not 0 <= limit <= _MAX_INT32:
                raise field_error(path, limit, f"{path} should be greater or equal 0")
        for path, amount in (
            ("maxMigratingPerWorkload", self.max_migrating_per_workload),
            ("maxUnavailablePerWorkload", self.max_unavailable_per_workload),
        ):
            check_int_or_percent(amount, path)
        if not self.evictions_per_s > 0:
            raise field_error("evictQPS", self.evict_qps, "evictQPS must be greater than 0")
        if self.evict_burst <= 0:
            raise field_error("evictBurst", self.evict_burst, "evictBurst must be greater than 0")
        if self.max_concurrent_reconciles < 1:
            problem = "maxConcurrentReconciles should be greater than or equal to 1"
            raise field_error("maxConcurrentReconciles", self.max_concurrent_reconciles, problem)

    def _check_limiters(self) -> None:
        for name, limiter in self.object_limiters.items():
            path = join_path("objectLimiters", name)
            if name not in frozenset(LimitedObject):
                keys = ", ".join(LimitedObject)
                raise InputError(f"unknown key; must be one of {keys}", path=path)
            check_int_or_percent(limiter.max_migrating, f"{path}.maxMigrating")
            if limiter.duration < Duration():
                problem = "must be a duration of at least 0s"
                raise field_error(f"{path}.duration", str(limiter.duration), problem)
            if limiter.burst < 0:
                raise field_error(f"{path}.burst", limiter.burst, "must be at least 0")


def check_int_or_percent(amount: int | str | None, path: str) -> None:
    """Raise InputError unless the amount is a number of pods or a percentage such as ``10%``."""
    if amount is None or (isinstance(amount, int) and 0 <= amount <= _MAX_INT32):
        return
    if isinstance(amount, str) and _PERCENTAGE.fullmatch(amount):
        return
    name = path.rpartition(".")[2]
    raise field_error(
        path, amount, f"{name} is invalid; must be a number or a percentage such as 10%"
    )


def _check_choice(value: str, choices: tuple[str, ...], path: str, problem: str) -> None:
    if value not in choices:
        raise field_error(path, value, problem)
