"""The pages for contributors: code that they show works, and files that they name are there."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs/how-to"
PAGES = ("add-a-strategy", "add-a-metric", "add-an-api-field", "declare-flags")
STRATEGY = "koordinator.koordlet.qos.dirty_pages"
#: What a page makes itself.
MADE = {
    "src/koordinator/koordlet/qos/dirty_pages.py",
    "tests/unit/koordlet/qos/test_dirty_pages.py",
    "src/koordinator/cli/sweeper/flags.py",
    "src/koordinator/cli/sweeper/command.py",
}


def text_of(page: str) -> str:
    return (HOW_TO / f"{page}.md").read_text("utf-8")


@pytest.fixture
def strategy() -> Iterator[ModuleType]:
    """Put the strategy of the page where it would be."""
    module, _ = re.findall(r"```python\n(.*?)```", text_of("add-a-strategy"), re.DOTALL)
    made = ModuleType(STRATEGY)
    exec(module, made.__dict__)  # noqa: S102 -- our own page
    sys.modules[STRATEGY] = made
    yield made
    del sys.modules[STRATEGY]


@pytest.mark.usefixtures("strategy")
def test_the_strategy_of_the_page_passes_the_test_of_the_page() -> None:
    """As a contributor would write both."""
    _, test = re.findall(r"```python\n(.*?)```", text_of("add-a-strategy"), re.DOTALL)
    written = ModuleType("written")
    exec(test, written.__dict__)  # noqa: S102 -- our own page

    written.test_best_effort_pods_lower_the_dirty_ratio()


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    """But for those that it makes."""
    named = set(re.findall(r"`((?:src|tests|charts|docs|deploy)/[\w./-]+\.\w+)`", text_of(page)))

    assert named
    assert [file for file in sorted(named - MADE) if not (ROOT / file).exists()] == []


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
    """Whoever follows the page finds where the line goes."""
    name = anchor.removesuffix(": Final").removesuffix("(").split()[-1]

    assert name in text_of(page)
    assert anchor in (ROOT / file).read_text("utf-8")
