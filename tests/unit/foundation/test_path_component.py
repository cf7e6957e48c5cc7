"""Untrusted strings as single components of a path."""

import posixpath
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import koordinator
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import path_component, relative_path

_HOSTILE = st.text(alphabet=st.sampled_from("a./\\ \n\x00\x1b~$-_\u2028\udc80é"), max_size=12)


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a/b", "/", "a\0", "a\nb", "a\x1b[31m", "a\u2028", "\udc80", "é" * 128]
)
def test_invalid_name_is_rejected(text: str) -> None:
    """The field is named, and what it accepts."""
    with pytest.raises(InputError, match=r"metadata.uid: must be a name of 1 to 255"):
        path_component(text, path="metadata.uid")


@pytest.mark.parametrize("text", ["a", "...", ".x", "a b", "cciss!c0d0", "é" * 127, "a" * 255])
def test_valid_name_is_unchanged(text: str) -> None:
    """Kernels and people use more than letters."""
    assert path_component(text) == text


@given(text=_HOSTILE)
def test_a_component_stays_in_its_folder(text: str) -> None:
    """No path component leads out of its folder."""
    try:
        name = path_component(text)
    except InputError:
        return
    assert posixpath.normpath(f"/root/{name}") == f"/root/{text}"
    assert posixpath.dirname(f"/root/{name}") == "/root"


@given(text=_HOSTILE)
def test_a_relative_path_stays_below(text: str) -> None:
    """Slashes around and in a row count for nothing."""
    try:
        path = relative_path(text, path="cgroupPath")
    except InputError:
        return
    assert posixpath.normpath(f"/root/{path}").startswith("/root")
    assert not path.startswith("/")
    assert not path.endswith("/")


def test_path_components_are_created_by_the_check_only() -> None:
    """The type is a promise: only the function that checks may give it."""
    makers = [
        path.name
        for path in Path(koordinator.__path__[0]).rglob("*.py")
        if "PathComponent(" in path.read_text("utf-8")
    ]
    assert makers == ["files.py"]
