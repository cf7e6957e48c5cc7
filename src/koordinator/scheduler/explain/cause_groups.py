"""Groups of pending pods with the same cause, for ``koord explain pods`` and the dashboard."""

from collections.abc import Iterator, Sequence

from koordinator.scheduler.explain.explanation import CauseReport, Explanation

_NO_DEVICES = (
    "cpu",
    "memory",
    "ephemeral-storage",
    "pods",
    "hugepages-",
    "kubernetes.io/batch-",
    "kubernetes.io/mid-",
)


def by_cause(
    explained: Sequence[tuple[Explanation, Sequence[str]]],
) -> list[tuple[str, list[tuple[Explanation, Sequence[str]]]]]:
    """Return the causes as text, with the pods of each; most pods first."""
    causes: dict[str, list[tuple[Explanation, Sequence[str]]]] = {}
    for one, pods in explained:
        causes.setdefault(group_text(one), []).append((one, pods))
    return sorted(causes.items(), key=lambda item: -sum(len(pods) for _, pods in item[1]))


def group_text(one: Explanation) -> str:
    """Return the text of the cause by which pods are grouped.

    Pods that lack devices on some node are separate from pods that do not, since other nodes and
    other remedies help them.
    """
    return "; ".join((in_short(one), *_missing_devices(one)))


def in_short(one: Explanation) -> str:
    """Return why a pod waits in one line, without the nodes."""
    everywhere = [words_of(cause) for cause in one.causes if not cause.nodes]
    by_nodes: dict[object, list[str]] = {}  # causes on the same nodes apply together
    for cause in one.causes:
        if cause.nodes and cause.decisive:
            by_nodes.setdefault((cause.nodes, cause.on), []).append(words_of(cause))
    nodes = [" and ".join(dict.fromkeys(words)) for words in by_nodes.values()]
    parts = [*everywhere, *([" or ".join(dict.fromkeys(nodes))] if nodes else [])]
    return "; ".join(parts) or one.summary


def _missing_devices(one: Explanation) -> Iterator[str]:
    """Return the devices that are missing on nodes which reject the pod for other reasons too."""
    shortages = [
        words_of(cause)
        for cause in one.causes
        if cause.nodes and not cause.decisive and _is_device(cause.reason)
    ]
    if shortages:
        yield f"besides, on some nodes {' and '.join(dict.fromkeys(shortages))}"


def _is_device(reason: str) -> bool:
    """Return whether a reason is a shortage of devices, not of CPU, memory and the like."""
    _, short, resource = reason.partition("Insufficient ")
    return bool(short) and not resource.startswith(_NO_DEVICES)


def words_of(cause: CauseReport) -> str:
    """Return the sentence of a cause, or its reason without one."""
    return cause.sentence or cause.reason
