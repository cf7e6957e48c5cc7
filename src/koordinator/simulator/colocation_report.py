"""Report on services, batch pods and YARN that share nodes: columns and totals.

Times are virtual; CPU is in shares of the cluster or in core hours.
"""

import msgspec

from koordinator.simulator.job_metrics import WaitingTimes


class ColocationColumns(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Columns with the mean since the previous sample; shares are 0..1."""

    services_cpu: tuple[float, ...]  # used by pods that are not best effort, of all CPUs
    best_effort_cpu: tuple[float, ...]
    batch_cpu: tuple[float, ...]  # published as batch-cpu, of all CPUs
    mid_cpu: tuple[float, ...]
    at_risk: tuple[float, ...]  # time above the safe level, of the nodes that have services
    suppressed: tuple[float, ...]  # part of the best-effort CPU demand that was not granted


class ColocationTotals(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Totals of a run."""

    used_cpu: float  # share of all CPUs, mean
    services_cpu: float
    best_effort_cpu: float
    best_effort_core_hours: float  # worked
    lost_core_hours: float  # part of the work, by pods that were evicted or lost before their end
    finished: int  # best-effort pods
    evicted: int  # by the node agent
    at_risk: float  # share of time, see ``ColocationColumns``
    at_risk_hours: float  # summed over nodes
    suppressed: float


class YarnColumns(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry per sample of the run; shares are 0..1 of all CPUs."""

    limit_cpu: tuple[float, ...]  # limit of YARN's vcores at the sample
    used_cpu: tuple[float, ...]  # by containers, mean since the previous sample
    waiting: tuple[int, ...]  # containers


class YarnQueueTotals(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Outcomes of the containers of a queue; a container that ends early is restarted."""

    queue: str
    applications: int
    applications_finished: int
    containers: int  # requested by applications
    started: int  # including restarts
    finished: int
    preempted: int  # above a reduced limit
    evicted: int  # by the node agent
    lost: int  # with their node
    waiting: WaitingTimes | None  # None if no container was started


class YarnReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Report on YARN; other figures count its containers as best effort."""

    samples: YarnColumns
    queues: tuple[YarnQueueTotals, ...]
    limit_cpu: float  # share of all CPUs, mean
    used_cpu: float
    core_hours: float  # worked
    lost_core_hours: float  # part of the work, by containers that ended early


class ColocationReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Report on colocation; services are at risk above ``safe_percent`` of a node's CPUs."""

    is_on: bool  # batch resources were published
    safe_percent: int
    samples: ColocationColumns
    totals: ColocationTotals
    yarn: YarnReport | None = None  # None without YARN queues
