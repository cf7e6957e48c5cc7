"""Utilization of the NUMA nodes of one allocation, to which scores of rows are compared.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/scoring.go,
``calculateAllocatableAndRequested``.
"""

from koordinator.api.resource_names import CPU
from koordinator.domain.amounts import amplified, total
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.numa.node import MILLI
from koordinator.scheduler.rules.numa.trial import NumaTrial
from koordinator.scheduler.rules.numa.zone_scorer import ZoneScorer


def bound_cpu_milli(trial: NumaTrial, allocation: NumaAllocation) -> int:
    """Return the amplified milli-CPU of CPUs bound by other pods.

    The unused part of the pod's reservation counts as free.
    """
    node = trial.node
    given_back = trial.reusable.preferred_cpus & ~allocation.cpus
    bound = node.ledger.cpus.in_use_without(given_back).bit_count()
    return amplified(bound * MILLI, node.cpu_ratio)


def score_allocation(trial: NumaTrial, allocation: NumaAllocation, scorer: ZoneScorer) -> int:
    """Return how full the NUMA nodes of an allocation would be.

    With CPUs of its own, all CPUs bound on the whole node count as the CPU used.
    """
    node = trial.node
    used = node.used(trial.reusable.zones)
    requested = total(used[zone] for zone in allocation.zones if zone in used)
    allocatable = total(node.zones[zone] for zone in allocation.zones if zone in node.zones)
    if allocation.cpus:
        requested[CPU] = bound_cpu_milli(trial, allocation)
    return scorer.score(requested, allocatable, trial.request.counted(node.cpu_ratio))
