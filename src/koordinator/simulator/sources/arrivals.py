"""Protocol of arrivals: pods come one after another, never leave, and don't wait."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from koordinator.foundation.errors import InputError
from koordinator.simulator.generation import SimulationPlan
from koordinator.simulator.sources.source import Source
from koordinator.simulator.stages import PodLife
from koordinator.simulator.world import Submission

#: Life of a pod that comes once, and stays if it is placed.
ARRIVING = PodLife(resubmissions=0, gives_up=True)
_SAMPLES = 100  # of a run


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
