"""An error that a function raises from a variable ends with its last reader."""

import gc
import re
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

import koordinator
from koordinator.foundation.errors import ClusterError, fault_of, raise_fault

ROOT = Path(koordinator.__file__).parent
RAISES = re.compile(rb"\n( +)raise ([a-z_]+)\n")
#: It ends the watch of a process.
ALLOWED = {"cluster/kubernetes/watch.py"}


class BrokenError(Exception):
    """An error that can be referred to weakly."""


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """Leave cycles to the collector, and keep it away."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("kind", [ClusterError, BrokenError])
def test_error_of_a_fault_ends_with_its_reader(kind: type[Exception]) -> None:
    """The frames of its traceback do not refer to it."""

    def refuse() -> None:
        raise kind("away")

    def fail() -> None:
        try:
            refuse()
        except kind as error:
            raise_fault(fault_of("news", error))

    seen = None
    try:
        fail()
    except kind as error:
        seen = weakref.ref(error)
    assert seen is not None
    assert seen() is None


def is_dropped(before: str, after: str, indent: int, name: str) -> bool:
    """Return whether the variable that is raised does not outlive the statement."""
    for line in reversed(before.splitlines()):
        if not line.strip() or len(line) - len(line.lstrip()) >= indent:
            continue
        indent = len(line) - len(line.lstrip())
        if line.strip() == "try:":
            return f"del {name}" in after
        if line.endswith(f" as {name}:"):
            return True
        if line.lstrip().startswith(("def ", "async def ")):
            return False
    return False


def test_raised_variables_are_dropped() -> None:
    """A variable that is kept would refer to its own traceback, through the frame."""
    kept = []
    for path in sorted(ROOT.rglob("*.py")):
        text, name = path.read_bytes(), str(path.relative_to(ROOT))
        for match in RAISES.finditer(text) if name not in ALLOWED else ():
            before, after = text[: match.start()].decode(), text[match.end() :][:200].decode()
            if not is_dropped(before, after, len(match[1]), match[2].decode()):
                kept.append(f"{name}: raise {match[2].decode()}")
    assert not kept
