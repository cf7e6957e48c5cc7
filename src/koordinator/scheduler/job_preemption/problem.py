"""The input of job preemption: kinds of members, nodes, shortfall of their quota."""

from dataclasses import dataclass

from koordinator.api.pod import Pod
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.job_preemption.victims import VictimTable
from koordinator.scheduler.snapshot import PodClass

NO_LIMIT = 1 << 40


@dataclass(frozen=True, slots=True)
class Shape:
    """Members with equal requests, each with a need for a place."""

    pod: Pod  # one of them
    pod_class: PodClass
    count: int
    amounts: IntArray  # (n_columns,) of each member, in the columns of the problem
    most: IntArray  # (n_rows,) how many the row takes at most, whatever its room; 0: it never does


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """What victims have to free besides room on nodes: what the quota of the job lacks."""

    missing: IntArray  # (n_missing,) > 0, by resource
    frees: IntArray  # (n_victims, n_missing)


@dataclass(frozen=True, slots=True)
class PreemptionProblem:
    """A job and the nodes that it may use."""

    rows: IntArray  # (n_rows,) numbers of the rows in the cluster, ascending
    free: IntArray  # (n_rows, n_columns) what no pod has taken; negative where there is too little
    shapes: tuple[Shape, ...]  # largest requests first
    victims: VictimTable
    shortage: QuotaShortage | None = None
