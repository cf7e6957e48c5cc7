"""Bounds and choices of fields, declared once in the type of the field.

    GroupIdentity = Annotated[int, bounded(Bounds(-1, 2), decoded=ANY, node=Bounds(-1, 2))]

All validation reads them: decoding and the CRD (``decoded``), the manager's webhook and
configuration (``configured``), and the node agent (``node``).  They are not always equal: the
originals of CRD, webhook and agent aren't.
Source: koordinator apis/slo/v1alpha1/nodeslo_types.go and
apis/configuration/slo_controller_config.go, the kubebuilder markers and the validate tags.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import Meta, inspect

from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass

_KEY: Final = "accepted"


@dataclass(frozen=True, slots=True)
class Bounds:
    """``least`` and ``most`` include, ``above`` excludes; None bounds nothing."""

    least: float | None = None
    most: float | None = None
    above: float | None = None

    def __contains__(self, number: float) -> bool:
        """Return whether the number is within the bounds."""
        return (
            (self.least is None or number >= self.least)
            and (self.above is None or number > self.above)
            and (self.most is None or number <= self.most)
        )

    def __str__(self) -> str:
        """Return the accepted range for messages: ``in 0..100``, or ``at least 0``."""
        if self.least is not None and self.most is not None:
            return f"in {self.least}..{self.most}"
        limits = (
            ("at least", self.least),
            ("more than", self.above),
            ("at most", self.most),
        )
        given = (f"{words} {limit}" for words, limit in limits if limit is not None)
        return " and ".join(given) or "any number"


ANY: Final = Bounds()
PERCENT: Final = Bounds(0, 100)
NOT_NEGATIVE: Final = Bounds(0)
FLAG: Final = Bounds(0, 1)


@dataclass(frozen=True, slots=True)
class AcceptedValues:
    """Accepted values of a field: a number within bounds, or one of some words.

    ``node`` is None where the agent follows whatever is decoded; a number beyond ``written`` it
    leaves out, and the machine as it is.  ``exceeds`` is the JSON name of a
    field beside this one that must be less, if both are given.
    """

    configured: Bounds = ANY
    node: Bounds | None = None
    written: Bounds = ANY
    exceeds: str = ""
    words: tuple[str, ...] = ()  # that the agent knows


def bounded(
    configured: Bounds,
    *,
    decoded: Bounds | None = None,
    node: Bounds | None = None,
    written: Bounds = ANY,
    exceeds: str = "",
) -> Meta:
    """Declare the bounds of a number; ``decoded`` defaults to ``configured``.

    Raises BugError if decoding has an exclusive bound: bounds of CRDs are inclusive.
    """
    schema = configured if decoded is None else decoded
    if schema.above is not None:
        raise BugError(f"a CRD cannot state an exclusive bound, got more than {schema.above}")
    return Meta(
        ge=schema.least,
        le=schema.most,
        extra={_KEY: AcceptedValues(configured, node, written, exceeds)},
    )


def one_of(*words: str) -> Meta:
    """Declare the words that the agent knows; decoding takes any."""
    return Meta(extra={_KEY: AcceptedValues(words=words)})


@cache
def accepted_by(kind: type[msgspec.Struct]) -> Mapping[str, AcceptedValues]:
    """Return the accepted values of the fields of a struct that declare them, by attribute."""
    return MappingProxyType(
        {field.name: accepted for field in _fields(kind) if (accepted := _accepted(field.type))}
    )


@cache
def json_name(kind: type[msgspec.Struct], attribute: str) -> str:
    """Return the name of an attribute in JSON."""
    return next(field.encode_name for field in _fields(kind) if field.name == attribute)


@cache
def attribute_of(kind: type[msgspec.Struct], name: str) -> str:
    """Return the attribute with a name in JSON."""
    return next(field.name for field in _fields(kind) if field.encode_name == name)


def accepted_within(
    kind: type[msgspec.Struct], skipped: AbstractSet[str] = frozenset()
) -> Iterator[tuple[str, AcceptedValues]]:
    """Yield the JSON name and accepted values of each field of a struct and of nested structs.

    Fields with a JSON name in ``skipped`` are omitted.
    """
    for field in _fields(kind):
        if field.encode_name in skipped:
            continue
        accepted = _accepted(field.type)
        if accepted is not None:
            yield field.encode_name, accepted
        for each in _plain(field.type):
            if isinstance(each, inspect.StructType):
                yield from accepted_within(each.cls, skipped)


def _fields(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(kind)
    return info.fields if isinstance(info, inspect.StructType) else ()


def _accepted(node: inspect.Type) -> AcceptedValues | None:
    for each in _members(node):
        if isinstance(each, inspect.Metadata) and each.extra and _KEY in each.extra:
            accepted: AcceptedValues = each.extra[_KEY]
            return accepted
    return None


def _members(node: inspect.Type) -> tuple[Any, ...]:
    return node.types if isinstance(node, inspect.UnionType) else (node,)


def _plain(node: inspect.Type) -> Iterator[Any]:
    for each in _members(node):
        yield each.type if isinstance(each, inspect.Metadata) else each
