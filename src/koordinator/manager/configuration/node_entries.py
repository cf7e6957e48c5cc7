"""Entries of a list of node strategies: the entry of a node, overlapping entries, and refusals.

Source: koordinator pkg/webhook/cm/plugins/sloconfig/checker.go, selector.go, result.go;
pkg/webhook/util/err/json_error.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.selector_validation import check_label_selector
from koordinator.api.selectors import matches
from koordinator.foundation.errors import InputError

PARSE: Final = "ParseConfigFail"
INVALID: Final = "ConfigParamInvalid"
OVERLAP: Final = "NodeStrategiesOverlap"
NODE_CONFLICT: Final = "ExistNodeConfict"  # so spelt on the wire

Message = str | Mapping[str, str | Sequence[str]]


def refused(reason: str, message: Message) -> InputError:
    """Return the error whose text is ``___{"reason": …, "message": …}___``."""
    text = msgspec.json.encode({"reason": reason, "message": message}).decode()
    return InputError(f"___{text}___")


_MAX_SAMPLES = 4096  # label sets generated per selector: bounds the work one text can cause


class NodeEntry(Protocol):
    """An entry of a list of strategies."""

    @property
    def name(self) -> str: ...

    @property
    def node_selector(self) -> LabelSelector | None: ...


EntryT = TypeVar("EntryT", bound=NodeEntry)


def entry_for(entries: Iterable[EntryT], labels: Mapping[str, str]) -> EntryT | None:
    """Return the first entry that selects these labels; an invalid selector selects nothing."""
    return next((entry for entry in entries if _picks(entry, labels)), None)


def check_entries(entries: Sequence[NodeEntry], key: str, *, needs_names: bool) -> None:
    """Raise InputError for a selector that is missing, invalid, or overlaps another one.

    ``needs_names`` is the flag node-strategy-name-need-check.
    """
    for entry in entries:
        selector = entry.node_selector
        if selector is None or not (selector.match_labels or selector.match_expressions):
            raise refused(
                INVALID,
                "nodeConfigs NodeSelector must not empty error! "
                f"configType: {key},nodeConfig name:{entry.name}",
            )
        try:
            check_label_selector(selector, "nodeSelector")
        except InputError as error:
            raise refused(
                INVALID,
                f"failed to parse node selector,configType: {key},"
                f"nodeConfig name:{entry.name}, err: {error}",
            ) from None
    if needs_names:
        _check_names(entries, key)
    for entry in entries:
        for labels in _samples(entry.node_selector):
            _check_single([e.name for e in entries if _picks(e, labels)], key)


def check_nodes(entries: Sequence[NodeEntry], key: str, nodes: Iterable[Node]) -> None:
    """Raise InputError if two entries select the same node."""
    if len(entries) < 2:  # noqa: PLR2004 -- two make a conflict
        return
    for node in nodes:
        names = [entry.name for entry in entries if _picks(entry, node.metadata.labels)]
        _check_single(names, key, node.metadata.name)


def _check_single(names: list[str], key: str, node: str = "") -> None:
    if len(names) > 1:
        message: dict[str, str | Sequence[str]] = {"config": key, "strategies": names}
        if node:
            raise refused(NODE_CONFLICT, {**message, "exampleNodes": [node]})
        raise refused(OVERLAP, message)


def _check_names(entries: Sequence[NodeEntry], key: str) -> None:
    seen: set[str] = set()
    for entry in entries:
        if not entry.name:
            raise refused(INVALID, f"nodeConfig Name need! configType:{key}")
        if entry.name in seen:
            raise refused(
                INVALID,
                f"nodeConfig Name confilict, configType:{key},nodeConfig Name:{entry.name}! ",
            )
        seen.add(entry.name)


def _picks(entry: NodeEntry, labels: Mapping[str, str]) -> bool:
    try:
        return matches(entry.node_selector, labels)
    except InputError:
        return False


def _samples(selector: LabelSelector | None) -> Iterable[Mapping[str, str]]:
    """Yield labels that a selector matches; as in the original, not every combination."""
    if selector is None:
        return
    count = 1
    for requirement in selector.match_expressions:
        count = min(count * max(len(requirement.values), 1), _MAX_SAMPLES)
    for index in range(count):
        labels = dict(selector.match_labels)
        for requirement in selector.match_expressions:
            if requirement.values:
                labels[requirement.key] = requirement.values[index % len(requirement.values)]
        yield labels
