"""Modules that are loaded at their first use."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordinator.foundation.lazy_module import lazy_module

NAME = "loaded_at_first_use"


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add a module to the import path."""
    (tmp_path / f"{NAME}.py").write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop(NAME, None)


def test_a_module_is_loaded_when_an_attribute_is_read() -> None:
    """The module is not loaded before an attribute is read."""
    lazy = lazy_module(NAME)
    assert NAME not in sys.modules

    assert lazy.ANSWER == 42
    assert NAME in sys.modules
    assert lazy.ANSWER is sys.modules[NAME].ANSWER


def test_a_missing_attribute_is_an_attribute_error() -> None:
    """As with an ordinary module."""
    with pytest.raises(AttributeError, match="QUESTION"):
        _ = lazy_module(NAME).QUESTION


def test_a_missing_module_is_named_at_the_first_use() -> None:
    """The declaration alone finds nothing wrong; tests that use the module do."""
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        _ = lazy_module("no_such_module").ANSWER
