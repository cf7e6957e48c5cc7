"""Cluster and pods of a run, from whatever describes them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.simulator.configurations import PROFILE, default_profile
from koordinator.simulator.generation import SimulationPlan, generate, unsimulated
from koordinator.simulator.workload import Workload

#: Expected pods of policies that know the mix: arguments of the plugin's field ``expected``.
ExpectedMix = Callable[[SimulationPlan], list[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Cluster and pods of a run; ``generate`` draws them for a seed, up to a time."""

    title: str
    kind: str  # of source, for messages: workload, trace, manifests, recording
    generate: Callable[[int, float], SimulationPlan]
    horizon_s: float
    sample_every_s: float = 300.0
    seed: int = 0
    grace_period_s: float = 50.0
    toleration_s: float = 300.0
    configuration: Callable[[], KubeSchedulerConfiguration] = default_profile
    configuration_name: str = PROFILE
    expected: ExpectedMix | None = None  # None: the requests of the plan's pods
    workload: Workload | None = None  # for co-location and YARN
    #: Why the times of submission mean nothing; empty if they do.
    timeless: str = ""
    #: Why pods that end mean nothing; empty if they do.
    endless: str = ""
    #: Whether only requests and GPU models keep its pods from nodes.
    only_requests: bool = False
    notices: tuple[str, ...] = ()  # about objects that the run leaves out
    name: str = ""  # of the pods' list, for figures


def workload_source(workload: Workload) -> Source:
    """Return a workload as a source."""
    return Source(
        title=workload.title,
        kind="workload",
        generate=lambda seed, until_s: generate(workload, seed, until_s),
        horizon_s=workload.horizon.total_seconds(),
        sample_every_s=workload.sample_every.total_seconds(),
        seed=workload.seed,
        grace_period_s=workload.grace_period.total_seconds(),
        toleration_s=workload.toleration.total_seconds(),
        workload=workload,
        notices=tuple(unsimulated(workload)),
    )
