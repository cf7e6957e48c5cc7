"""Cluster and pods of a run, from any description, and the protocol of arrivals."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.generation import SimulationPlan, generate, unsimulated
from koordinator.simulator.policies import PROFILE, default_profile
from koordinator.simulator.stages import PodLife
from koordinator.simulator.workload import Workload
from koordinator.simulator.world import Submission

#: Life of a pod that comes once, and stays if it is placed.
ARRIVING = PodLife(resubmissions=0, gives_up=True)
_SAMPLES = 100  # of a run
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


def as_arrivals(source: Source) -> Source:
    """Return a source whose pods arrive one per second, in their order, and never leave.

    Members of a gang arrive together.  Raises InputError for co-location and YARN, whose pods come
    and go.
    """
    workload = source.workload
    if workload is not None and (workload.colocation is not None or workload.yarn is not None):
        text = (
            "must be times for a workload with colocation or yarn: usage is measured over the "
            "life of pods, and with arrivals no pod ends"
        )
        raise InputError(text, source="--protocol")

    def plan(seed: int, until_s: float) -> SimulationPlan:
        drawn = source.generate(seed, until_s)
        submissions = tuple(_one_by_one(drawn.submissions))
        return arriving(replace(drawn, outages=(), changes=(), submissions=submissions))

    return replace(
        source,
        generate=plan,
        timeless="pods arrive one per second, in their order",
        endless="pods that arrive never leave",
    )


def arriving(plan: SimulationPlan) -> SimulationPlan:
    """Return a plan that ends with its last arrival."""
    last_s = max((each.at_s for each in plan.submissions), default=0.0)
    return replace(plan, ends_s=last_s, sample_every_s=max(1.0, round(last_s / _SAMPLES)))


def _one_by_one(submissions: Sequence[Submission]) -> Iterator[Submission]:
    number, last = -1, ""
    for submission in sorted(submissions, key=lambda each: each.at_s):
        group = submission.group.key if submission.group is not None else ""
        if not group or group != last:
            number += 1
        last = group
        is_bound = bool(submission.pod.spec.node_name)
        yield replace(submission, at_s=float(number), life=PodLife() if is_bound else ARRIVING)
