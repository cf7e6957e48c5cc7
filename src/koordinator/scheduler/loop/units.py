"""Units of the plain loop: a single pod or a run of equal pods, from queue to binding."""

from collections.abc import Collection, Sequence

from koordinator.foundation.errors import ExtenderError
from koordinator.scheduler.binding import Assumed
from koordinator.scheduler.cycle import (
    NodeChoice,
    NominatedPods,
    ReserveRefusal,
    SchedulingCycle,
    Scorecard,
)
from koordinator.scheduler.diagnosis import Diagnosis, never_fits
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.loop.outcomes import PreemptionAttempt
from koordinator.scheduler.post_filter import PostFilterResult
from koordinator.scheduler.queue import QueuedPod
from koordinator.scheduler.snapshot import PodClass

#: Pods given to an attempt to decide several, after one that decided few; and how many times as
#: many as the last attempt decided.  Then all attempts together read a multiple of the pods.
_LEAST_WINDOW = 64
_WINDOW_GROWTH = 8


def _has_stated_claim(queued: QueuedPod) -> bool:
    """Return whether the status of a pod has to be corrected before it is bound."""
    status = queued.pod.status
    return bool(
        status.extended_resource_claim_status is not None
        or status.node_allocatable_resource_claim_statuses
    )


class PodRun:
    """Adjacent pods of the queue with one run key, or a single pod."""

    def __init__(
        self, handle: SchedulerHandle, cycle: SchedulingCycle, pods: Sequence[QueuedPod]
    ) -> None:
        self._handle, self._cycle, self._pods = handle, cycle, pods

    def decide(self) -> int:
        """Decide as many pods as possible in batches, the others one by one.

        After a pod without a place, batches are tried again ever more rarely: in a full cluster
        each pod would end one.  An attempt reads all pods of its window, which grows with the
        number of pods that the attempts before it decided.
        """
        pods = self._pods
        classes = [self._handle.intake.class_of(queued) for queued in pods]
        done, alone, window = 0, 0, len(pods)
        while done < len(pods):
            end = done + window
            count = self._decide_batch(pods[done:end], classes[done:end])
            window = max(_LEAST_WINDOW, _WINDOW_GROWTH * count, window // 2)
            alone = 1 if count else max(1, 2 * alone)
            done += count
            end = min(done + alone, len(pods))
            for queued, pod_class in zip(pods[done:end], classes[done:end], strict=True):
                self._decide_one(queued, pod_class)
            done = end
        return len(pods)

    def _decide_batch(self, pods: Sequence[QueuedPod], classes: Sequence[PodClass]) -> int:
        """Decide the first of these pods together; return how many."""
        if len(pods) <= 1 or not self._are_independent(pods, classes):
            return 0
        handle = self._handle
        batch = self._cycle.choose_batch(classes)
        count = len(batch.rows)
        if batch.results and any(map(_has_stated_claim, pods[:count])):
            count = 0
        if count:
            handle.attempts.note_node_chosen(classes[0])
            assumed = handle.binder.assume_run(
                pods[:count], classes[:count], batch.rows, batch.results
            )
            batch.confirm_placed()
        else:
            choices, assumed = self._cycle.choose_in_sequence(classes), list[Assumed]()
            for queued, pod_class, choice in zip(pods, classes, choices, strict=False):
                if handle.attempts.is_measured:
                    handle.attempts.note_node_chosen(pod_class)
                assumed.append(handle.binder.assume(queued, pod_class, choice))
            count = len(assumed)
        if count:
            handle.bindings.permit_all(assumed)
            for on_placed in handle.hooks.on_placed:
                on_placed(pods[:count])
        return count

    def _are_independent(self, pods: Sequence[QueuedPod], classes: Sequence[PodClass]) -> bool:
        """Return whether these pods are decided by amounts and limits alone.

        No plugin has to permit one, or records one by name, and no node is kept for others or
        avoided.
        """
        handle, cycle = self._handle, self._cycle
        if handle.nominations.by_node() or cycle.permits(classes):
            return False
        if any(map(handle.kubelet_rejections.avoided_rows, dict.fromkeys(classes))):
            return False
        return not cycle.distinguishes([queued.key for queued in pods])

    def _decide_one(self, queued: QueuedPod, pod_class: PodClass) -> None:
        handle, cycle = self._handle, self._cycle
        known = handle.diagnoses.known(cycle, pod_class) if handle.diagnoses.kept else None
        nominated, avoided = self._claimed_elsewhere(pod_class)
        choice: NodeChoice | ReserveRefusal | None = None
        try:
            if known is None:
                choice = cycle.choose(
                    queued.pod,
                    pod_class,
                    nominated,
                    nominated_node=handle.nominator.node_of(queued.key) if nominated else "",
                    first_attempt=queued.attempts <= 1,
                    avoided=avoided,
                )
        except ExtenderError as error:
            handle.attempts.fail(queued, str(error))
            return
        scorecard = cycle.scorecard(pod_class) if handle.options.explain else None
        if scorecard is not None:
            scorecard = cycle.extenders.shown_on(scorecard, queued.pod)
        if isinstance(choice, NodeChoice):
            if handle.attempts.is_measured:
                handle.attempts.note_node_chosen(pod_class)
            if handle.nominations.known:
                handle.nominations.forget(queued.pod, choice.node)  # not to count twice there
            assumed = handle.binder.assume(queued, pod_class, choice)
            assumed.scorecard = scorecard
            for on_placed in handle.hooks.on_placed:
                on_placed((queued,))
            handle.bindings.permit(assumed)
        elif isinstance(choice, ReserveRefusal):
            handle.nominations.end(queued.pod)
            main, plugins = (choice.plugin, choice.reason), frozenset((choice.plugin,))
            handle.attempts.reject(queued, main, plugins, choice.reason, scorecard)
        elif avoided:
            nodes = ", ".join(sorted(handle.state.nodes.names[row] for row in avoided))
            handle.attempts.fail(queued, f"refused a moment ago by the kubelet of {nodes}")
        else:
            diagnosis = known or handle.diagnoses.diagnose(cycle, queued.pod, pod_class, scorecard)
            self._find_no_node(queued, pod_class, diagnosis, scorecard)

    def _claimed_elsewhere(self, pod_class: PodClass) -> tuple[NominatedPods, Collection[int]]:
        """Return the nominated pods by node, and the rows whose kubelets refused such pods."""
        handle = self._handle
        has_nominations = handle.nominations.known or handle.options.tracks_other_schedulers
        nominated = handle.nominations.by_node() if has_nominations else {}
        if not handle.kubelet_rejections.by_likeness:
            return nominated, ()
        return nominated, handle.kubelet_rejections.avoided_rows(pod_class)

    def _find_no_node(
        self,
        queued: QueuedPod,
        pod_class: PodClass,
        diagnosis: Diagnosis,
        scorecard: Scorecard | None,
    ) -> None:
        """Run the PostFilter plugins, then reject the pod."""
        handle, nomination, messages = self._handle, PostFilterResult(), list[str]()
        keeps_nomination = False
        if diagnosis.node_count:
            nomination, keeps_nomination, messages = self._post_filter(queued, pod_class, diagnosis)
        if nomination.node:
            error = handle.evictions.preempt(queued.pod, nomination)
            if error is not None:
                handle.attempts.fail(queued, f"preemption failed: {error}")
                return
        elif not keeps_nomination:
            handle.nominations.end(queued.pod)
        plugin, reason = diagnosis.main
        never = never_fits(diagnosis, handle.state, pod_class)
        handle.attempts.reject(
            queued,
            (plugin, f"{reason}; {never}" if never else reason),
            diagnosis.plugins,
            diagnosis.message(", ".join(messages)),
            scorecard,
            nominated=nomination.node,
        )

    def _post_filter(
        self, queued: QueuedPod, pod_class: PodClass, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult, bool, list[str]]:
        """Run PostFilter; return its result, whether the nomination is kept, and the messages.

        Plugins after the first one that nominates a node are not called.
        """
        handle, cycle = self._handle, self._cycle
        nominated, own = handle.nominations.by_node(), handle.nominator.node_of(queued.key)
        attempt = cycle.attempt(queued.pod, pod_class, diagnosis, nominated, nominated_node=own)
        nomination, keeps_nomination, messages = PostFilterResult(), False, list[str]()
        began_s = handle.attempts.now_s()
        for active in cycle.profile.post_filter:
            result = active.plugin.postfilter(attempt)
            if result.node:
                nomination = result
                messages[:] = [result.message] if result.message else []
                break
            keeps_nomination |= result.keeps_nomination
            error = handle.evictions.change(result.changes)
            if error is not None:
                messages.append(f"{active.name}: {error}")
            elif result.message:
                messages.append(result.message)
        if cycle.profile.post_filter:
            took_s = handle.attempts.now_s() - began_s
            outcome = PreemptionAttempt(
                len(nomination.victims),
                took_s,
                bool(nomination.node),
                violations=nomination.violations,
            )
            handle.attempts.note(outcome)
        return nomination, keeps_nomination, messages
