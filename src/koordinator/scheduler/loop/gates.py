"""PreEnqueue gates of one scheduler: its plugins and features, and the delay after a fault."""

from collections.abc import Mapping, Sequence

from koordinator.api.codec import subject_of
from koordinator.api.pod import Pod
from koordinator.foundation.clock import Clock
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import ActivePlugin, QueueGate
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.isolation import PluginIsolation
from koordinator.scheduler.loop.hooks import Hooks
from koordinator.scheduler.loop.reporter import Reporter
from koordinator.scheduler.snapshot import ClusterState, PodClass


class Gates:
    """Gates of one scheduler.  A gate that fails is closed, and called again after a delay."""

    def __init__(
        self,
        clock: Clock,
        isolation: PluginIsolation,
        reporter: Reporter,
        cycles: Mapping[str, SchedulingCycle],
        hooks: Hooks,
        *,
        state: ClusterState,
        again_after_s: float,
    ) -> None:
        self._clock, self._isolation, self._reporter = clock, isolation, reporter
        self._cycles, self._hooks = cycles, hooks
        self._state = state
        self._plugins: Memo[tuple[ActivePlugin, ...]] = Memo()  # per pod class, which has a profile
        self._again_after_s = again_after_s
        self.retry_at_s: dict[str, float] = {}  # time of the next gate check, by key of the pod

    def check(self, pod: Pod) -> QueueGate | None:
        """Return what keeps a pod out of the queue; None: nothing does."""
        name, gate = "PreEnqueue", None
        try:
            plugins = self._cycles[pod.spec.scheduler_name].profile.pre_enqueue
            known = self._state.unbound.get(pod.key)
            if known is not None and known[0] is pod:
                plugins = self._plugins.of(known[1], _applicable, plugins, known[1])
            for active in plugins:
                name = active.name
                refusal = active.plugin.pre_enqueue(pod, self._state.objects)
                if refusal is not None:
                    gate = QueueGate(name, refusal.reason)
                    break
            for on_gate_result in self._hooks.on_gate_result:
                on_gate_result(pod, gate)
            for name, pre_enqueue in self._hooks.pre_enqueue if gate is None else ():
                refusal = pre_enqueue(pod)
                if refusal is not None:
                    return QueueGate(name, refusal.reason)
        except Exception as error:  # noqa: BLE001 -- reported
            fault = self._isolation.note("pre_enqueue", error, subject_of(pod))
            self.retry_at_s[pod.key] = self._clock.now_s() + self._again_after_s
            with self._isolation.barrier("report", pod):
                self._reporter.report_unschedulable(pod, fault.problem, "SchedulerError")
            return QueueGate(name, fault.problem)
        return gate

    def take_due(self) -> list[str]:
        """Return the pods whose failed gates are due to be checked again."""
        if not self.retry_at_s:
            return []
        now_s = self._clock.now_s()
        due = [key for key, due_s in self.retry_at_s.items() if due_s <= now_s]
        for key in due:
            del self.retry_at_s[key]
        return due

    def next_wakeup_s(self) -> float | None:
        """Return when the next failed gate is checked again."""
        return min(self.retry_at_s.values(), default=None)


def _applicable(plugins: Sequence[ActivePlugin], pod: PodClass) -> tuple[ActivePlugin, ...]:
    return tuple(active for active in plugins if active.applies(pod))
