"""Fixtures and settings of all tests."""

import gc
import importlib
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

# The same code draws the same examples, so that a test fails by a change and never by chance, and
# a failure prints how to repeat it. An example may take any time: other programs share the machine.
settings.register_profile(
    "koordinator", deadline=None, derandomize=True, print_blob=True, max_examples=10
)
# New examples at each run: make fuzz and make soak (--hypothesis-profile=explore).
settings.register_profile(
    "explore", settings.get_profile("koordinator"), derandomize=False, max_examples=500
)
settings.load_profile("koordinator")


#: Objects made and kept before the next search for garbage.  Nearly all that a test makes is freed
#: by its reference counts, and with Python's 700 the searches take a tenth of the time.
GARBAGE_THRESHOLDS = (50_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems() -> None:
    """Keep constants of imported modules out of the examples, unless new ones are explored.

    Hypothesis draws some of its values from the source of all modules that are imported.  A test
    would draw other examples alone than in the suite, and parsing them takes seconds per worker.
    """
    if settings().derandomize:
        none = Constants()
        providers._get_local_constants = lambda: none


# Modules and tests stay until the end: searching them for garbage takes a third of the collection.
gc.disable()


def pytest_collection_finish() -> None:
    """Exclude what has been collected from the searches for garbage during the tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    gc.enable()


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Import test modules in another order in each worker, before the first one is collected.

    pytest rewrites the asserts of a module at its first import and caches the result.  On a new
    checkout that is more than half of the time of the collection, and workers that import the same
    modules at the same time all do all of it.
    """
    worker = getattr(collector.config, "workerinput", None)
    if worker is None or not isinstance(collector, pytest.Session):
        return
    number, root = int(worker["workerid"].removeprefix("gw")), collector.config.rootpath
    folders = [path for path in map(Path, collector.config.args) if path.is_dir()]
    files = sorted(file for folder in folders for file in folder.resolve().rglob("test_*.py"))
    for file in files[number :: worker["workercount"]]:
        with suppress(Exception, pytest.skip.Exception):  # the collection reports it
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


@pytest.fixture(autouse=True)
def _logs_as_found() -> Iterator[None]:
    """Whatever a command that runs in a test does to logging, the next test begins as always."""
    root, ours = logging.getLogger(), logging.getLogger("koordinator")
    before = root.level, ours.level
    yield
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler:  # pytest's own are others
            root.removeHandler(handler)
    root.setLevel(before[0])
    ours.setLevel(before[1])
