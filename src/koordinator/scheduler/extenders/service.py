"""Scheduler extenders, built from their configuration, and calls to them.

After a timeout the extender is not called for a while, longer each time: pods for which it is
ignorable do not wait for it, and other pods fail immediately instead of after another timeout.

Source: kubernetes pkg/scheduler/extender.go ``HTTPExtender``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from koordinator.api.codec import encode
from koordinator.api.kubescheduler import Extender as ExtenderConfig
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodSpec
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ExtenderError, InputError, SilentExtenderError
from koordinator.scheduler.contract import ExtenderVerdict
from koordinator.scheduler.extenders import messages
from koordinator.scheduler.post_filter import ProposedVictims

AnswerT = TypeVar("AnswerT")

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
_SPARE: Final = 64  # deleted nodes whose JSON may stay cached


class ExtenderTransport(Protocol):
    """Transport of requests to an extender."""

    def post(self, verb: str, body: bytes) -> bytes:
        """Return the response body.

        Raises ExtenderError, and SilentExtenderError without a response in time.
        """
        ...


class ExtenderService:
    """Extender client that implements ``contract.SchedulerExtender``."""

    def __init__(
        self,
        config: ExtenderConfig,
        transport: ExtenderTransport,
        clock: Clock,
        *,
        may_bind: Callable[[], bool] = lambda: True,
        on_ignored: Callable[[str, str], None] = lambda _name, _problem: None,
    ) -> None:
        """``may_bind`` returns whether this process leads.

        ``on_ignored`` receives failures of an ignorable extender: name and problem.
        """
        self._config, self._transport, self._clock = config, transport, clock
        self._may_bind, self._on_ignored = may_bind, on_ignored
        self._managed = frozenset(resource.name for resource in config.managed_resources)
        self._nodes: dict[str, tuple[Node, bytes]] = {}  # encoded nodes by name
        self._pause_s, self._silent_until_s, self._silence = 0.0, 0.0, ""
        self.name = config.url_prefix
        self.is_ignorable = config.ignorable
        self.weight = config.weight
        verbs = {
            "filter": config.filter_verb,
            "prioritize": config.prioritize_verb,
            "preempt": config.preempt_verb,
            "bind": config.bind_verb,
        }
        self._verbs: Mapping[str, str] = {verb: path for verb, path in verbs.items() if path}
        self.verbs = frozenset(self._verbs)

    def is_interested(self, spec: PodSpec) -> bool:
        """Return whether the extender manages a requested resource, or has no resource list.

        Source: ``HTTPExtender.IsInterested``.
        """
        if not self._managed:
            return True
        requests = [container.resources for container in (*spec.containers, *spec.init_containers)]
        return any(
            not self._managed.isdisjoint({*resources.requests, *resources.limits})
            for resources in requests
        )

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> ExtenderVerdict:
        """Return the nodes that the extender accepts.  Raises ExtenderError."""
        names, body = self._nodes_args(pod, nodes)
        by_names = self._config.node_cache_capable
        return self._ask(
            "filter", body, lambda answer: messages.verdict_of(answer, names, by_names=by_names)
        )

    def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Mapping[str, int]:
        """Return scores by node.  Raises ExtenderError."""
        return self._ask("prioritize", self._nodes_args(pod, nodes)[1], messages.scores_of)

    def preempt(
        self, pod: Pod, victims: Mapping[str, ProposedVictims]
    ) -> Mapping[str, ProposedVictims]:
        """Return the nodes and victims that the extender keeps.  Raises ExtenderError."""
        body = messages.preemption_args(pod, victims, meta=self._config.node_cache_capable)
        return self._ask("preempt", body, lambda answer: messages.victims_of(answer, victims))

    def bind(self, pod: Pod, node: str) -> None:
        """Bind the pod through the extender.  Raises ExtenderError."""
        if not self._may_bind():
            raise ExtenderError(f"extender {self.name}: bind: another process leads")
        self._ask("bind", messages.bind_args(pod, node), messages.check_bound)

    def record_failure(self, error: Exception) -> None:
        """Report a failure that was ignored."""
        self._on_ignored(self.name, str(error))

    def _ask(self, verb: str, body: bytes, read: Callable[[bytes], AnswerT]) -> AnswerT:
        where, now_s = f"extender {self.name}: {verb}", self._clock.now_s()
        if now_s < self._silent_until_s:
            wait_s = self._silent_until_s - now_s
            raise ExtenderError(f"{where}: not called for {wait_s:.0f} s after: {self._silence}")
        try:
            answer = read(self._transport.post(self._verbs[verb], body))
        except SilentExtenderError as error:
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            self._silent_until_s = self._clock.now_s() + self._pause_s
            self._silence = str(error)
            raise SilentExtenderError(f"{where}: {error}") from None
        except ExtenderError as error:
            self._pause_s = 0.0
            raise ExtenderError(f"{where}: {error}") from None
        self._pause_s = 0.0
        return answer

    def _nodes_args(self, pod: Pod, nodes: Sequence[Node]) -> tuple[list[str], bytes]:
        names = [node.metadata.name for node in nodes]
        if self._config.node_cache_capable:
            return names, messages.filter_args(pod, None, names)
        if len(self._nodes) > 2 * len(nodes) + _SPARE:
            self._nodes.clear()
        return names, messages.filter_args(pod, [self._encoded(node) for node in nodes], None)

    def _encoded(self, node: Node) -> bytes:
        name = node.metadata.name
        known = self._nodes.get(name)
        if known is None or known[0] is not node:
            known = self._nodes[name] = (node, encode(node))
        return known[1]


#: Factory of transports; raises InputError for invalid certificates.
Connect = Callable[[ExtenderConfig], ExtenderTransport]


def build_extenders(
    configuration: KubeSchedulerConfiguration,
    clock: Clock,
    connect: Connect,
    *,
    source: str = "",
    may_bind: Callable[[], bool] = lambda: True,
    on_ignored: Callable[[str, str], None] = lambda _name, _problem: None,
) -> tuple[ExtenderService, ...]:
    """Return the extenders of a configuration, in its order.

    ``may_bind`` returns whether this process leads; ``on_ignored`` receives failures of ignorable
    extenders: name and problem.
    Raises InputError with the path of an extender whose connection settings are invalid.
    """
    extenders = []
    for index, config in enumerate(configuration.extenders):
        try:
            transport = connect(config)
        except InputError as error:
            raise error.within(source=source, path=f"extenders[{index}]") from None
        extenders.append(
            ExtenderService(config, transport, clock, may_bind=may_bind, on_ignored=on_ignored)
        )
    return tuple(extenders)
