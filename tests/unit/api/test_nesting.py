"""JSON that a tenant writes: nested too deep or too long it is refused, never a crash."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.annotations import numa, reservation
from koordinator.api.codec import decode, decode_object
from koordinator.api.colocation import ClusterColocationProfile
from koordinator.api.meta import ObjectMeta
from koordinator.api.nesting import (
    DEEPEST,
    LONGEST_ANNOTATION_BYTES,
    check_nesting,
    cut_nesting,
)
from koordinator.api.pod import Pod
from koordinator.foundation.errors import InputError

TEXTS = st.text('[]{}"\\ab', max_size=12)
TREES = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


def nested(tree: Any, levels: int) -> Any:
    """Wrap a tree into so many objects and lists."""
    for level in range(levels):
        tree = [tree] if level % 2 else {"]}": tree}
    return tree


def depth_of(tree: Any) -> int:
    """Count the levels by walking."""
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(TREES, st.integers(0, DEEPEST + 5))
def test_only_nesting_beyond_the_limit_is_refused(tree: Any, levels: int) -> None:
    """Brackets, quotes and backslashes in strings don't count."""
    whole = nested(tree, levels)
    try:
        check_nesting(json.dumps(whole).encode())
        is_refused = False
    except InputError:
        is_refused = True

    assert is_refused == (depth_of(whole) > DEEPEST)


@given(TREES, st.integers(DEEPEST - 4, DEEPEST + 5))
def test_cutting_leaves_all_that_is_not_too_deep(tree: Any, levels: int) -> None:
    """Parts that are too deep become null; the other bytes stay unchanged."""
    whole = {"first": nested(tree, levels), "last": "\\]"}
    text = json.dumps(whole).encode()

    cut = cut_nesting(text)

    check_nesting(cut)
    assert json.loads(cut)["last"] == "\\]"
    assert (cut == text) == (depth_of(whole) <= DEEPEST)


@given(st.binary(max_size=40).map(lambda part: part * 300) | st.text('[]{}"\\', max_size=400))
def test_invalid_json_passes_the_nesting_check(text: bytes | str) -> None:
    """For any bytes the check ends, and reports at most that they are nested too deep."""
    data = text.encode() if isinstance(text, str) else text

    cut_nesting(data)
    with contextlib.suppress(InputError):
        check_nesting(data)


@pytest.mark.parametrize("levels", [101, 400, 5_000, 50_000])
@pytest.mark.parametrize("shape", ['{"x":%s}', "%s"])
def test_an_annotation_that_is_nested_too_deep_is_named(levels: int, shape: str) -> None:
    """Typed or not, read or skipped."""
    text = shape % ("[" * levels + "]" * levels)
    for codec in (numa.RESOURCE_SPEC, reservation.AFFINITY):
        meta = ObjectMeta(name="a", annotations={codec.key: text})
        with pytest.raises(InputError, match="nested too deep") as refused:
            codec.read(meta)
        assert refused.value.path == f"metadata.annotations[{codec.key}]"


def test_an_annotation_that_is_too_long_is_named() -> None:
    """Kubernetes itself keeps all annotations of an object below this."""
    codec = numa.RESOURCE_SPEC
    text = '{"x":"' + "a" * LONGEST_ANNOTATION_BYTES + '"}'

    with pytest.raises(InputError, match=r"must be at most 262144 bytes \(256 KiB\), got 262\d+"):
        codec.read(ObjectMeta(name="a", annotations={codec.key: text}))


@pytest.mark.parametrize("levels", [600, 5_000])
def test_an_untyped_part_of_an_object_is_bounded(levels: int) -> None:
    """Walks over such a tree must not end the process."""
    patch = '{"a":' * levels + "1" + "}" * levels
    text = (
        '{"apiVersion":"config.koordinator.sh/v1alpha1","kind":"ClusterColocationProfile",'
        f'"metadata":{{"name":"p"}},"spec":{{"patch":{patch}}}}}'
    ).encode()

    with pytest.raises(InputError, match="nested too deep"):
        decode(text, ClusterColocationProfile)


def test_deeply_nested_unknown_field_does_not_crash() -> None:
    """Skipped, or refused where even skipping would go too deep."""

    def text(levels: int) -> bytes:
        field = "[" * levels + "]" * levels
        head = '"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[]}'
        return f'{{{head},"x":{field}}}'.encode()

    assert isinstance(decode_object(text(50)), Pod)
    with pytest.raises(InputError, match="nested too deep"):
        decode_object(text(50_000))


def test_a_decoded_tree_that_is_too_deep_is_refused() -> None:
    """The check is independent of the decoder."""
    tree: dict[str, Any] = {"metadata": None}
    for _ in range(5_000):
        tree = {"metadata": tree}

    with pytest.raises(InputError, match="nested too deep"):
        decode(tree, Pod)
