"""Fixtures and settings of all tests."""

import gc
import importlib
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from koordinator.foundation.arrays import Kernel

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


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile kernels; exclude what has been collected from the searches for garbage."""
    _compile_share(session.config)
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
    share = _share(collector.config)
    if share is None or not isinstance(collector, pytest.Session):
        return
    root = collector.config.rootpath
    folders = [path for path in map(Path, collector.config.args) if path.is_dir()]
    files = sorted(file for folder in folders for file in folder.resolve().rglob("test_*.py"))
    for file in files[share]:
        with suppress(Exception, pytest.skip.Exception):  # the collection reports it
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


def _compile_share(config: pytest.Config) -> None:
    """Compile this worker's share of the kernels, so that the others load them from the cache.

    On a new checkout all of them take twenty seconds, and each worker would compile nearly all.
    """
    share = _share(config)
    if share is None:
        return
    modules = [module for name, module in sys.modules.items() if name.startswith("koordinator.")]
    kernels = {
        f"{kernel.reference.__module__}.{kernel.reference.__qualname__}": kernel
        for module in modules
        for kernel in vars(module).values()
        if isinstance(kernel, Kernel)
    }
    for name in sorted(kernels)[share]:
        _ = kernels[name].compiled
        del vars(kernels[name])["compiled"]  # tests begin with kernels that are not loaded


def _share(config: pytest.Config) -> slice | None:
    """Return the part of a list that this process of pytest-xdist takes; None in any other."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return None
    return slice(int(worker["workerid"].removeprefix("gw")), None, worker["workercount"])


@pytest.fixture(autouse=True)
def _logs_as_found() -> Iterator[None]:
    """Reset logging after each test, since commands change it."""
    root, ours = logging.getLogger(), logging.getLogger("koordinator")
    before = root.level, ours.level
    yield
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler:  # pytest's own are others
            root.removeHandler(handler)
    root.setLevel(before[0])
    ours.setLevel(before[1])
