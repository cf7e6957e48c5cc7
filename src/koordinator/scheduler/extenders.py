"""Scheduler extenders: HTTP services that filter and score nodes, select victims and bind pods.

``koordinator.process.extender_transport`` is the HTTP transport.

After a timeout the extender is not called for a while, longer each time: pods for which it is
ignorable do not wait for it, and other pods fail immediately instead of after another timeout.

Requests and responses are JSON; invalid responses raise ExtenderError.  Keys are sent as
kube-scheduler sends them and matched case-insensitively, as its decoder does: extenders in other
languages rely on it.

Source: kubernetes pkg/scheduler/extender.go ``HTTPExtender``; k8s.io/kube-scheduler
extender/v1/types.go.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from koordinator.api.codec import encode
from koordinator.api.kubescheduler import Extender as ExtenderConfig
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodSpec
from koordinator.foundation.clock import Clock
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import ExtenderError, InputError, SilentExtenderError
from koordinator.foundation.text import one_line
from koordinator.scheduler.contract import ExtenderVerdict
from koordinator.scheduler.post_filter import ProposedVictims

MAX_RESPONSE_SCORE: Final = 10**9  # of either sign; the convention is 0..10
_SHOWN: Final = 200  # characters of quoted response values
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
            "filter", body, lambda answer: verdict_of(answer, names, by_names=by_names)
        )

    def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Mapping[str, int]:
        """Return scores by node.  Raises ExtenderError."""
        return self._ask("prioritize", self._nodes_args(pod, nodes)[1], scores_of)

    def preempt(
        self, pod: Pod, victims: Mapping[str, ProposedVictims]
    ) -> Mapping[str, ProposedVictims]:
        """Return the nodes and victims that the extender keeps.  Raises ExtenderError."""
        body = _preemption_args(pod, victims, meta=self._config.node_cache_capable)
        return self._ask("preempt", body, lambda answer: victims_of(answer, victims))

    def bind(self, pod: Pod, node: str) -> None:
        """Bind the pod through the extender.  Raises ExtenderError."""
        if not self._may_bind():
            raise ExtenderError(f"extender {self.name}: bind: another process leads")
        self._ask("bind", _bind_args(pod, node), _check_bound)

    def record_failure(self, error: Exception) -> None:
        """Report a failure that was ignored."""
        self._on_ignored(self.name, str(error))

    def _ask(self, verb: str, body: bytes, read: Callable[[bytes], AnswerT]) -> AnswerT:
        source, now_s = f"extender {self.name}: {verb}", self._clock.now_s()
        if now_s < self._silent_until_s:
            wait_s = self._silent_until_s - now_s
            raise ExtenderError(f"{source}: not called for {wait_s:.0f} s after: {self._silence}")
        try:
            answer = read(self._transport.post(self._verbs[verb], body))
        except SilentExtenderError as error:
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            self._silent_until_s = self._clock.now_s() + self._pause_s
            self._silence = str(error)
            raise SilentExtenderError(f"{source}: {error}") from None
        except ExtenderError as error:
            self._pause_s = 0.0
            raise ExtenderError(f"{source}: {error}") from None
        self._pause_s = 0.0
        return answer

    def _nodes_args(self, pod: Pod, nodes: Sequence[Node]) -> tuple[list[str], bytes]:
        names = [node.metadata.name for node in nodes]
        if self._config.node_cache_capable:
            return names, _filter_args(pod, None, names)
        if len(self._nodes) > 2 * len(nodes) + _SPARE:
            self._nodes.clear()
        return names, _filter_args(pod, [self._encoded(node) for node in nodes], None)

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


def _filter_args(pod: Pod, nodes: Sequence[bytes] | None, names: Sequence[str] | None) -> bytes:
    """Return ExtenderArgs with nodes as JSON, or their names alone."""
    items: dict[str, Any] | None = None
    if nodes is not None:
        items = {"metadata": {}, "items": [msgspec.Raw(node) for node in nodes]}
    return msgspec.json.encode(
        {"Pod": msgspec.Raw(encode(pod)), "Nodes": items, "NodeNames": names}
    )


def _preemption_args(pod: Pod, victims: Mapping[str, ProposedVictims], *, meta: bool) -> bytes:
    """Return ExtenderPreemptionArgs; ``meta`` identifies pods by their uids only."""
    by_node: dict[str, Any] = {}
    for node, proposed in victims.items():
        pods: list[Any] = [{"UID": it.metadata.uid} for it in proposed.pods]
        if not meta:
            pods = [msgspec.Raw(encode(it)) for it in proposed.pods]
        by_node[node] = {"Pods": pods, "NumPDBViolations": proposed.violations}
    whole, short = (None, by_node) if meta else (by_node, None)
    return msgspec.json.encode(
        {
            "Pod": msgspec.Raw(encode(pod)),
            "NodeNameToVictims": whole,
            "NodeNameToMetaVictims": short,
        }
    )


def _bind_args(pod: Pod, node: str) -> bytes:
    """Return ExtenderBindingArgs."""
    meta = pod.metadata
    return msgspec.json.encode(
        {
            "PodName": meta.name,
            "PodNamespace": meta.namespace,
            "PodUID": meta.uid,
            "Node": node,
        }
    )


def verdict_of(answer: bytes, names: Sequence[str], *, by_names: bool) -> ExtenderVerdict:
    """Return the verdict of an ExtenderFilterResult about the requested nodes."""
    result = _object(answer)
    _check_error(result)
    listed = result.get("nodenames") if by_names else None
    if listed is None and result.get("nodes") is not None:
        items = _table(result["nodes"], "Nodes").get("items") or []
        if not isinstance(items, list):
            raise _wrong("Nodes.items", items, "a list of nodes")
        listed = [_name_of(item) for item in items]
    accepted = _names(listed or [], "NodeNames")
    unknown = sorted(set(accepted) - set(names))
    if unknown:
        raise ExtenderError(f"accepted node {_shown(unknown[0])}, which was not in the request")
    failed = _reasons(result, "failednodes", "FailedNodes")
    hopeless = _reasons(result, "failedandunresolvablenodes", "FailedAndUnresolvableNodes")
    return ExtenderVerdict(frozenset(accepted), {**failed, **hopeless}, frozenset(hopeless))


def scores_of(answer: bytes) -> dict[str, int]:
    """Return the scores of a HostPriorityList; a repeated node gets the sum."""
    result = _decoded(answer)
    if not isinstance(result, list):
        raise _wrong("response", result, "a list of {Host, Score}")
    scores: dict[str, int] = {}
    for index, item in enumerate(result):
        entry = _table(item, f"[{index}]")
        host, score = entry.get("host", ""), entry.get("score", 0)
        if not isinstance(host, str):
            raise _wrong(f"[{index}].Host", host, "the name of a node")
        if not isinstance(score, int) or isinstance(score, bool) or abs(score) > MAX_RESPONSE_SCORE:
            raise _wrong(f"[{index}].Score", score, "an integer, 0 to 10")
        scores[host] = scores.get(host, 0) + score
    return {
        host: max(-MAX_RESPONSE_SCORE, min(it, MAX_RESPONSE_SCORE)) for host, it in scores.items()
    }


def victims_of(
    answer: bytes, proposed: Mapping[str, ProposedVictims]
) -> dict[str, ProposedVictims]:
    """Return the proposed victims that an ExtenderPreemptionResult keeps."""
    result = _object(answer).get("nodenametometavictims") or {}
    if not isinstance(result, dict):
        raise _wrong("NodeNameToMetaVictims", result, "an object with victims by node")
    # An extender is another program: it may drop nodes and victims, but an invented one would make
    # the scheduler evict pods that no plugin has chosen.
    left: dict[str, ProposedVictims] = {}
    for node, value in result.items():
        if node not in proposed:
            raise ExtenderError(
                f"selected victims on node {_shown(node)}, which was not in the request"
            )
        field = f"NodeNameToMetaVictims[{node}]"
        entry = {} if value is None else _table(value, field)
        pods = entry.get("pods") or []
        if not isinstance(pods, list):
            raise _wrong(f"{field}.Pods", pods, "a list of {UID}")
        by_uid = {pod.metadata.uid: pod for pod in proposed[node].pods}
        uids = [_table(pod, f"{field}.Pods").get("uid") for pod in pods if pod is not None]
        strangers = [uid for uid in uids if not isinstance(uid, str) or uid not in by_uid]
        if strangers:
            raise ExtenderError(
                f"selected the pod with uid {_shown(strangers[0])} on node {_shown(node)}, "
                "which was not proposed as a victim"
            )
        violations = entry.get("numpdbviolations", 0)
        if not isinstance(violations, int) or isinstance(violations, bool) or violations < 0:
            raise _wrong(f"{field}.NumPDBViolations", violations, "an integer of at least 0")
        kept = frozenset(uids)
        pods_left = tuple(pod for uid, pod in by_uid.items() if uid in kept)
        left[node] = ProposedVictims(pods_left, violations)
    return left


def _check_bound(answer: bytes) -> None:
    """Raise ExtenderError if the ExtenderBindingResult has an error."""
    _check_error(_object(answer))


def _decoded(answer: bytes) -> Any:
    try:
        return decode_json(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ExtenderError(f"response is not valid JSON: {error}") from None


def _object(answer: bytes) -> dict[str, Any]:
    return _table(_decoded(answer), "response")


def _table(value: Any, source: str) -> dict[str, Any]:
    """Return an object with its keys in lower case."""
    if not isinstance(value, dict):
        raise _wrong(source, value, "an object")
    return {key.lower(): item for key, item in value.items()}


def _check_error(result: Mapping[str, Any]) -> None:
    error = result.get("error")
    if error:
        raise ExtenderError(_shown(error))


def _name_of(item: Any) -> str:
    meta = _table(item, "Nodes.items").get("metadata")
    name = _table(meta, "Nodes.items.metadata").get("name")
    if not isinstance(name, str):
        raise _wrong("Nodes.items.metadata.name", name, "the name of a node")
    return name


def _names(value: Any, source: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _wrong(source, value, "a list of names")
    return value


def _reasons(result: Mapping[str, Any], key: str, source: str) -> dict[str, str]:
    reasons = result.get(key) or {}
    if not isinstance(reasons, dict) or not all(isinstance(it, str) for it in reasons.values()):
        raise _wrong(source, reasons, "an object with reasons by node")
    return {node: one_line(reason, _SHOWN) for node, reason in reasons.items()}


def _wrong(source: str, value: object, accepted: str) -> ExtenderError:
    return ExtenderError(f"invalid response: {source}: must be {accepted}, got {_shown(value)}")


def _shown(value: object) -> str:
    return one_line(value if isinstance(value, str) else repr(value), _SHOWN)
