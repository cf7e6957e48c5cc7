"""Pages of event reasons and conditions: each has a meaning, and no reason is missing."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
from docs.generate.declarations import PACKAGE
from docs.generate.states import CONDITIONS, ENUMERATIONS, EVENTS, conditions, event_reasons

ROW = re.compile(r"^\| `([^`]+)` \|(.*)\|$", re.MULTILINE)
#: Modules that make events; one that is not here has no ``Event(`` of its own.
MAKERS = {
    "cluster/leader_election.py",
    "descheduler/migration/jobs.py",
    "descheduler/plugins/default_evictor.py",
    "koordlet/app/outbox.py",
    "manager/writes.py",
    "scheduler/loop/reporter.py",
    "yarn/app.py",
}


def test_every_reason_and_type_has_a_meaning() -> None:
    """The comment at the declaration."""
    for text in (event_reasons(), conditions()):
        rows = ROW.findall(text)
        assert rows
        for name, cells in rows:
            assert cells.split("|")[-1].strip(), name


def test_every_listed_constant_is_on_its_page() -> None:
    """With the value that the program writes."""
    events, states = event_reasons(), conditions()
    for constants in EVENTS:
        module = import_module(constants.module)
        for name in constants.names:
            value = getattr(module, name)
            assert f"`{value[1] if isinstance(value, tuple) else value}" in events
    for _, types, reasons in CONDITIONS:
        for constants in filter(None, (types, reasons)):
            module = import_module(constants.module)
            for name in constants.names:
                value = getattr(module, name)
                assert f"`{value[1] if isinstance(value, tuple) else value}" in states
    for _, *enumerations in ENUMERATIONS:
        for member in (member for each in enumerations for member in each):
            assert f"| `{member.value}` |" in states


def makes_events(path: Path) -> bool:
    """Return whether a module constructs events."""
    text = path.read_text("utf-8")
    if "Event(" not in text and "new_event(" not in text:  # parsing all modules takes seconds
        return False
    tree = ast.parse(text)
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return bool(called & {"Event", "new_event"})


def test_no_other_module_makes_events() -> None:
    """A new one fails here until its reasons are on the page."""
    makers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "api" not in path.parts and makes_events(path)
    }

    assert makers - MAKERS == set()


@pytest.mark.parametrize(
    "module", sorted({it.module for it in EVENTS if it.module.endswith(".events")})
)
def test_module_of_events_has_no_unlisted_reason(module: str) -> None:
    """Constants of a module of events that are text and start with a capital letter."""
    listed = {name for it in EVENTS if it.module == module for name in it.names}
    known = {
        name
        for name, value in vars(import_module(module)).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str)
    }

    assert known - listed <= {"COMPONENT", "ACTION"}
