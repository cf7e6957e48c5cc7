"""Pages for contributors: the code that they show works, and the files that they name exist."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.markdown import code_blocks
from tests.pages_check import CREATED

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs/how-to"
PAGES = ("add-a-strategy", "add-a-metric", "add-an-api-field", "declare-flags")
STRATEGY = "koordinator.koordlet.qos.dirty_pages"


def text_of(page: str) -> str:
    return (HOW_TO / f"{page}.md").read_text("utf-8")


@pytest.fixture
def strategy() -> Iterator[ModuleType]:
    """Import the strategy of the page under the name of its module."""
    code, _ = code_blocks(text_of("add-a-strategy"), "python")
    module = ModuleType(STRATEGY)
    exec(code, module.__dict__)  # noqa: S102 -- our own page
    sys.modules[STRATEGY] = module
    yield module
    del sys.modules[STRATEGY]


@pytest.mark.usefixtures("strategy")
def test_the_strategy_of_the_page_passes_the_test_of_the_page() -> None:
    """A contributor writes both files from the page alone."""
    _, test = code_blocks(text_of("add-a-strategy"), "python")
    written = ModuleType("written")
    exec(test, written.__dict__)  # noqa: S102 -- our own page

    (check,) = (member for name, member in vars(written).items() if name.startswith("test_"))
    check()


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    """Files that the reader of the page creates are left out."""
    named = set(re.findall(r"`((?:src|tests|charts|docs|deploy)/[\w./-]+\.\w+)`", text_of(page)))

    assert named
    assert [file for file in sorted(named - CREATED) if not (ROOT / file).exists()] == []


@pytest.mark.parametrize(
    ("page", "file", "anchor"),
    [
        ("add-a-strategy", "src/koordinator/koordlet/app/options.py", "OFF: Final"),
        ("add-a-strategy", "src/koordinator/koordlet/app/object_intents.py", "PLANS: Final"),
        ("add-a-strategy", "src/koordinator/koordlet/app/agent.py", "def _make_timers("),
        ("add-a-metric", "src/koordinator/koordlet/app/metrics.py", "class NodeGauges"),
        ("add-a-metric", "src/koordinator/koordlet/app/metrics.py", "def publish("),
        ("add-an-api-field", "src/koordinator/koordlet/qos/memory_qos.py", "_FILES: Final"),
        ("add-an-api-field", "src/koordinator/api/node_slo.py", "class SystemStrategy"),
    ],
)
def test_places_that_a_page_names_are_there(page: str, file: str, anchor: str) -> None:
    """A reader of the page finds the place of each line."""
    name = anchor.removesuffix(": Final").removesuffix("(").split()[-1]

    assert name in text_of(page)
    assert anchor in (ROOT / file).read_text("utf-8")
