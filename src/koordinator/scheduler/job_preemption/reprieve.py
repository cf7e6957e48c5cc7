"""Reprieve of victims, the most important first, whole gangs before single pods.

The result is minimal: without any one of the single victims, or any one of the gangs, the job would
not fit.
"""

from collections.abc import Callable

import numpy as np

from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.job_preemption.victim_choice import VictimChoice
from koordinator.scheduler.job_preemption.victims import PreemptionProblem, VictimJob

#: ``(evicted, rows)``: rows that don't fit their members after those pods are evicted.
Rejects = Callable[[BoolArray, IntArray], IntArray]


def broken_jobs(problem: PreemptionProblem, evicted: BoolArray) -> list[int]:
    """Return the gang groups that lose more members than they can do without."""
    victims = problem.victims
    concerned = np.unique(victims.job[evicted & (victims.job >= 0)])
    return [job for job in concerned.tolist() if victims.jobs[job].is_broken(evicted)]


def close(problem: PreemptionProblem, evicted: BoolArray) -> BoolArray:
    """Return the victims with all pods that are evicted with them."""
    out = evicted.copy()
    for job in broken_jobs(problem, evicted):
        out[problem.victims.jobs[job].inside] = True
    return out


def spare(problem: PreemptionProblem, choice: VictimChoice, rejects: Rejects | None) -> None:
    """Put back who need not go; ``rejects`` is asked where arithmetic does not say it all."""
    sparing = _Sparing(problem, choice, rejects)
    victims = problem.victims
    broken = broken_jobs(problem, choice.evicted)
    broken.sort(key=lambda job: -int(victims.level[victims.jobs[job].inside].max()))
    final = np.zeros(len(victims.pods), bool)
    for job in broken:
        sparing.spare_job(victims.jobs[job])
        if victims.jobs[job].is_broken(choice.evicted):
            final[victims.jobs[job].inside] = True
    singles = np.flatnonzero(choice.evicted & ~victims.gone & ~final)
    sparing.spare_singles(singles[_by_importance(problem, singles)])


class _Sparing:
    def __init__(
        self, problem: PreemptionProblem, choice: VictimChoice, rejects: Rejects | None
    ) -> None:
        self._problem, self._choice, self._rejects = problem, choice, rejects
        lack = problem.shortage
        self._slack: IntArray | None = None
        if lack is not None:
            self._slack = lack.frees[choice.evicted].sum(axis=0) - lack.missing

    def spare_job(self, job: VictimJob) -> None:
        """Put back members one by one; if too few can stay, all go after all."""
        choice = self._choice
        members = job.inside[choice.evicted[job.inside]]
        for at in members[_by_importance(self._problem, members)].tolist():
            self._try(at)
        if job.is_broken(choice.evicted):
            for at in job.inside[~choice.evicted[job.inside]].tolist():
                self._evict(at)

    def spare_singles(self, positions: IntArray) -> None:
        """Put back pods that go alone, on all nodes at a time."""
        if self._rejects is None:
            for at in positions.tolist():
                self._try(at)
            return
        left = [at for at in positions.tolist() if self._fits(at)]
        while left:
            this_time: dict[int, int] = {}
            later = []
            for at in left:  # one per node
                row = int(self._problem.victims.row[at])
                if row in this_time or (self._slack is not None and this_time):
                    later.append(at)
                elif self._fits(at):
                    this_time[row] = at
            for at in this_time.values():
                self._put_back(at)
            if this_time:
                rows = np.array(sorted(this_time), np.int64)
                for row in self._rejects(self._choice.evicted, rows).tolist():
                    self._evict(this_time[row])
            left = later

    def _try(self, at: int) -> None:
        if not self._fits(at):
            return
        self._put_back(at)
        if self._rejects is not None:
            row = self._problem.victims.row[at : at + 1]
            if len(self._rejects(self._choice.evicted, row)):
                self._evict(at)

    def _fits(self, at: int) -> bool:
        victims, lack = self._problem.victims, self._problem.shortage
        row = victims.row[at]
        if (victims.amounts[at] > np.maximum(self._choice.free[row], 0)).any():
            return False
        return lack is None or self._slack is None or bool((lack.frees[at] <= self._slack).all())

    def _put_back(self, at: int) -> None:
        self._change(at, stays=True)

    def _evict(self, at: int) -> None:
        self._change(at, stays=False)

    def _change(self, at: int, *, stays: bool) -> None:
        victims, choice, lack = self._problem.victims, self._choice, self._problem.shortage
        sign = -1 if stays else 1
        choice.evicted[at] = not stays
        choice.free[victims.row[at]] += sign * victims.amounts[at]
        if lack is not None and self._slack is not None:
            self._slack += sign * lack.frees[at]


def _by_importance(problem: PreemptionProblem, positions: IntArray) -> IntArray:
    """Return the order of these victims, the most important first."""
    victims = problem.victims
    return np.lexsort(
        (
            victims.started_s[positions],
            -victims.priority[positions],
            ~victims.violating[positions],
        )
    )
