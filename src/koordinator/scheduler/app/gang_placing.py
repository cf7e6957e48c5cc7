"""Places for the members of a gang group: enough of them, or none.

All happens in the state alone; nothing has been written when it turns out that there is not enough
room.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from koordinator.domain.gangs import GangAttempt
from koordinator.scheduler.app.binding import Assumed, Binder
from koordinator.scheduler.cycle import Choice, Cycle, Refused
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.queue import QueuedPod
from koordinator.scheduler.snapshot import PodClass

Verdict = Diagnosis | Refused
Wanted = tuple[QueuedPod, PodClass]


@dataclass(slots=True)
class GangDecision:
    """What became of the members; ``placed`` is empty if the attempt was lost."""

    placed: list[Assumed] = field(default_factory=list)
    failed: list[tuple[QueuedPod, PodClass, Verdict]] = field(default_factory=list)
    #: of a lost attempt: those who had a place, or were not tried any more
    others: list[QueuedPod] = field(default_factory=list)
    is_lost: bool = False
    had_place: int = 0


@dataclass(frozen=True, slots=True)
class GangPlacer:
    """Decides attempts of one scheduler."""

    binder: Binder
    choose: Callable[[Cycle, QueuedPod, PodClass], Choice | Verdict]
    diagnose: Callable[[Cycle, QueuedPod, PodClass], Diagnosis]

    def place(
        self, cycle: Cycle, attempt: GangAttempt, members: Sequence[Wanted], *, merges: bool
    ) -> GangDecision:
        """Assume the members on their nodes; ``merges`` allows runs to be decided at once.

        If too many find no place, those of the others are given back.
        """
        decision = GangDecision()
        here = {queued.key for queued, _ in members}
        lacking = [key for key in attempt.members if key not in here]
        decision.is_lost = attempt.is_lost(lacking)
        for run in () if decision.is_lost else _runs(cycle, members):
            self._place_run(cycle, run, decision, merges=merges)
            if decision.failed and attempt.is_lost(
                [*lacking, *(queued.key for queued, _, _ in decision.failed)]
            ):
                decision.is_lost = True
                break
        if decision.is_lost:
            self._give_back(decision, members)
        return decision

    def _place_run(
        self, cycle: Cycle, run: Sequence[Wanted], decision: GangDecision, *, merges: bool
    ) -> None:
        rows = cycle.choose_run([pod_class for _, pod_class in run]) if merges else None
        if rows is None:
            for queued, pod_class in run:
                choice = self.choose(cycle, queued, pod_class)
                if isinstance(choice, Choice):
                    decision.placed.append(self.binder.assume(queued, pod_class, choice))
                else:
                    decision.failed.append((queued, pod_class, choice))
            return
        done, left = run[: len(rows)], run[len(rows) :]
        queued_pods, classes = [q for q, _ in done], [c for _, c in done]
        decision.placed += self.binder.assume_run(queued_pods, classes, rows)
        if left:
            why = self.diagnose(cycle, *left[0])
            decision.failed += [(queued, pod_class, why) for queued, pod_class in left]

    def _give_back(self, decision: GangDecision, members: Sequence[Wanted]) -> None:
        for assumed in reversed(decision.placed):
            self.binder.forget(assumed)
        decision.had_place = len(decision.placed)
        decision.placed.clear()
        failed = {queued.key for queued, _, _ in decision.failed}
        decision.others = [queued for queued, _ in members if queued.key not in failed]


def _runs(cycle: Cycle, members: Sequence[Wanted]) -> Iterator[list[Wanted]]:
    """Yield neighbours that can be decided as one run."""

    def run_key(member: Wanted) -> Hashable:
        return cycle.run_key(member[1])

    return (list(run) for _, run in groupby(members, run_key))
