"""What a simulation saw of services, batch pods and YARN that share nodes: columns and totals.

No clock in here; times are virtual, CPU is in shares of the cluster or in core hours.
"""

import msgspec

from koordinator.simulator.waiting_times import WaitingTimes


class ColocationColumns(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry per sample of the run, each the mean since the sample before; shares are 0..1."""

    services_cpu: tuple[float, ...]  # used by pods that are not best effort, of all CPUs
    best_effort_cpu: tuple[float, ...]
    batch_cpu: tuple[float, ...]  # published as batch-cpu, of all CPUs
    mid_cpu: tuple[float, ...]
    at_risk: tuple[float, ...]  # time above the safe level, of the nodes that have services
    suppressed: tuple[float, ...]  # CPU that best-effort pods wanted and did not get, of what
    # they wanted


class ColocationTotals(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole run in numbers."""

    used_cpu: float  # share of all CPUs, mean
    services_cpu: float
    best_effort_cpu: float
    best_effort_core_hours: float  # worked
    lost_core_hours: float  # of these, by pods that were evicted or lost before they were done
    finished: int  # best-effort pods
    evicted: int  # by the node agent
    at_risk: float  # share of time, see ``ColocationColumns``
    at_risk_hours: float  # summed over nodes
    suppressed: float


class YarnColumns(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry per sample of the run; shares are 0..1 of all CPUs."""

    limit_cpu: tuple[float, ...]  # vcores that YARN may hand out, at the sample
    used_cpu: tuple[float, ...]  # by containers, mean since the sample before
    waiting: tuple[int, ...]  # containers


class YarnQueueTotals(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of the containers of one queue; one that ends too early is begun anew."""

    queue: str
    applications: int
    applications_finished: int
    containers: int  # that applications asked for
    started: int  # those begun anew included
    finished: int
    preempted: int  # beyond a limit that fell
    evicted: int  # by the node agent
    lost: int  # with their node
    waiting: WaitingTimes | None  # None if none was started


class YarnReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """YARN beside pods; what its containers use is best effort in all other figures."""

    samples: YarnColumns
    queues: tuple[YarnQueueTotals, ...]
    limit_cpu: float  # share of all CPUs, mean
    used_cpu: float
    core_hours: float  # worked
    lost_core_hours: float  # of these, by containers that ended before they were done


class ColocationReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``safe_percent`` of a node's CPUs is the level above which its services are at risk."""

    is_on: bool  # batch resources were given away
    safe_percent: int
    samples: ColocationColumns
    totals: ColocationTotals
    yarn: YarnReport | None = None  # None where no queue was described
