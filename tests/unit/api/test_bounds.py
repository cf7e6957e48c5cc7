"""One set of bounds per field in CRD, decoding, webhook and agent."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nodes import LAYOUT, Tree, slo

from koordinator.api.annotations.node import ColocationStrategy
from koordinator.api.bounds import ANY, AcceptedValues, Bounds, accepted_by, bounded, json_name
from koordinator.api.codec import decode
from koordinator.api.core import ConfigMap
from koordinator.api.meta import ObjectMeta
from koordinator.api.node_slo import NodeSlo, NodeSloSpec
from koordinator.api.schema import object_schema
from koordinator.foundation.errors import BugError, InputError
from koordinator.koordlet.intents import SetFile
from koordinator.koordlet.qos.memory_qos import plan_system_config
from koordinator.koordlet.view.slo import effective_slo
from koordinator.manager.configuration.checks import check_config

#: Where a section of a NodeSLO comes from.
SECTIONS = {
    "resourceUsedThresholdWithBE": "resource-threshold-config",
    "resourceQOSStrategy": "resource-qos-config",
    "cpuBurstStrategy": "cpu-burst-config",
    "systemStrategy": "system-config",
}
WIDTH = (-(2**31), 2**31 - 1)  # of an int32, which a schema expresses by its format
Path = tuple[str, ...]


def fields(kind: Any, path: Path = ()) -> Iterator[tuple[Path, AcceptedValues]]:
    """Yield every field of a struct that has bounds, by its JSON path."""
    for attribute, accepted in accepted_by(kind).items():
        yield (*path, json_name(kind, attribute)), accepted
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined] # a struct
        for member in getattr(field.type, "types", (field.type,)):
            inner = getattr(member, "cls", None)
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                yield from fields(inner, (*path, field.encode_name))


#: One QoS class represents all: they have one type.
OF_NODE_SLO = [
    (path, accepted)
    for path, accepted in fields(NodeSloSpec)
    if not {"lsrClass", "beClass", "systemClass", "cgroupRoot"} & set(path)
]
OF_COLOCATION = list(fields(ColocationStrategy))
NUMBERS = [(path, each) for path, each in OF_NODE_SLO if not each.words]
#: A number that is less, or more, than another is refused for that, too.
PAIRED = {name for path, each in NUMBERS if each.exceeds for name in (path[-1], each.exceeds)}
WORDS = [(path, each) for path, each in OF_NODE_SLO if each.words]


def edges(*bounds: Bounds | None) -> list[int]:
    """Return the numbers at the bounds, and their neighbours."""
    limits = [
        int(limit)
        for each in bounds
        if each is not None
        for limit in (each.least, each.most, each.above)
        if limit is not None
    ]
    return sorted({limit + step for limit in (*limits, 0) for step in (-1, 0, 1)})


def nested(path: Path, value: object) -> dict[str, Any]:
    """Return the JSON that has a value at a path."""
    for name in reversed(path):
        value = {name: value}
    assert isinstance(value, dict)  # a path has a name at least
    return value


def schema_bounds(path: Path) -> Bounds:
    result = object_schema(NodeSlo)["properties"]["spec"]
    for name in path:
        result = result["properties"][name]
    if result.get("format") == "int32":
        return Bounds(*WIDTH)
    return Bounds(result.get("minimum"), result.get("maximum"))


def is_decoded(path: Path, value: int) -> bool:
    try:
        decode(nested(path, value), NodeSloSpec)
    except InputError:
        return False
    return True


def webhook_error(section: str, content: dict[str, Any]) -> str:
    """Return why the webhook refuses a section; empty if it doesn't.

    Types refuse some numbers first, as the original's decoding does.
    """
    meta = ObjectMeta(name="slo-controller-config", namespace="koordinator-system")
    try:
        check_config(
            ConfigMap(metadata=meta, data={"system-config": "{}", section: json.dumps(content)}),
            None,
            (),
        )
    except InputError as error:
        return str(error)
    return ""


def agent_error(path: Path, value: object) -> str:
    try:
        effective_slo(slo(**nested(path, value)), LAYOUT)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("path", "accepted"), NUMBERS, ids=lambda each: str(each)[:60])
def test_the_crd_and_decoding_have_the_bounds_of_the_type(
    path: Path, accepted: AcceptedValues
) -> None:
    """At each bound and beside it."""
    bounds = schema_bounds(path)

    for number in edges(bounds, accepted.configured, accepted.node):
        assert is_decoded(path, number) is (number in bounds), number


@pytest.mark.parametrize(("path", "accepted"), NUMBERS, ids=lambda each: str(each)[:60])
def test_the_webhook_has_the_bounds_of_the_type(path: Path, accepted: AcceptedValues) -> None:
    """A number beyond is refused, by its own name; one within isn't for its bounds."""
    section, inner = SECTIONS.get(path[0]), path[1:]
    if section is None or {"blkioQOS", "networkQOS"} & set(path):
        pytest.skip("nothing of the configuration is checked for bounds there")
    for number in edges(accepted.configured):
        error = webhook_error(section, {"clusterStrategy": nested(inner, number)})
        if number not in accepted.configured:
            assert error
        elif path[-1] not in PAIRED:
            assert not error
        if error:
            assert path[-1].lower() in error.lower()


@pytest.mark.parametrize(("path", "accepted"), OF_COLOCATION, ids=lambda each: str(each)[:60])
def test_the_webhook_has_the_bounds_of_a_colocation_strategy(
    path: Path, accepted: AcceptedValues
) -> None:
    """The annotation of a node takes anything; the ConfigMap doesn't."""
    for number in edges(accepted.configured):
        decode(nested(path, number), ColocationStrategy)
        error = webhook_error("colocation-config", nested(path, number))
        assert bool(error) is (number not in accepted.configured), error


@pytest.mark.parametrize(("path", "accepted"), NUMBERS, ids=lambda each: str(each)[:60])
def test_the_agent_has_the_bounds_of_the_type(path: Path, accepted: AcceptedValues) -> None:
    """Of what is decoded it refuses what no node can follow, and nothing else."""
    for number in edges(schema_bounds(path), accepted.configured, accepted.node):
        if not is_decoded(path, number):
            continue
        error = agent_error(path, number)
        followed = accepted.node is None or number in accepted.node
        if path[-1] == "catRangeEndPercent" and number == 0:
            followed = False  # its start has a default of 0
        if path[-1] == "catRangeStartPercent":
            followed, error = True, ""  # refused for its end, which is tested with the pair
        assert bool(error) is not followed, (number, error)
        if error:
            assert error.startswith(f"spec.{'.'.join(path)}: must be ")
            assert error.endswith(f", got {number}")


@pytest.mark.parametrize(
    ("path", "accepted"),
    [(path, each) for path, each in NUMBERS if each.written != ANY],
    ids=lambda each: str(each)[:60],
)
def test_agent_skips_values_out_of_bounds(path: Path, accepted: AcceptedValues) -> None:
    """The rest of the NodeSLO is followed."""
    for number in edges(accepted.written):
        spec = effective_slo(slo(**nested(path, number)), LAYOUT)
        wanted = {
            intent.value
            for intent in plan_system_config(Tree().view(slo=spec))
            if isinstance(intent, SetFile)
        }
        assert (str(number) in wanted) is (number in accepted.written), number


@pytest.mark.parametrize(("path", "accepted"), WORDS, ids=lambda each: str(each)[:60])
@given(word=st.text(max_size=8))
def test_agent_accepts_the_choices_of_the_type(
    path: Path, accepted: AcceptedValues, word: str
) -> None:
    """An unknown choice is refused, with the list of accepted choices."""
    for known in accepted.words:
        assert not agent_error(path, known)
    if word and word not in accepted.words:
        assert agent_error(path, word).endswith(
            f"must be one of {', '.join(accepted.words)}, got {word!r}"
        )


def test_every_reader_has_something_to_check() -> None:
    """The tests of readers above have at least one case each."""
    assert len(NUMBERS) > 35
    assert len(OF_COLOCATION) == 14
    assert len(WORDS) == 4
    assert sum(accepted.node is not None for _, accepted in NUMBERS) == 7


def test_a_crd_has_no_excluded_bounds() -> None:
    """CRDs cannot state an exclusive bound, which would be lost silently."""
    with pytest.raises(BugError):
        bounded(Bounds(above=0))
    bounded(Bounds(above=0), decoded=ANY)
