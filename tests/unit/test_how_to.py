"""What the documents show is run here, so that it stays true."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from koordinator.api.kubescheduler import decode_configuration
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeStatus
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.profile import build_profiles
from koordinator.scheduler.snapshot import ResourceAxis
from koordinator.simulator import schedule

HOW_TO = Path(__file__).parents[2] / "docs/how-to/add-a-plugin.md"


def blocks(language: str) -> list[str]:
    """Return the code blocks of the page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", HOW_TO.read_text("utf-8"), re.DOTALL)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Write the plugin and its test as a contributor would from the page."""
    plugin, test = blocks("python")[:2]
    (tmp_path / "cheap_nodes.py").write_text(plugin)
    file = tmp_path / "test_cheap_nodes.py"
    file.write_text(f"from cheap_nodes import PLUGIN, CheapNodesArgs\n{test}")
    return file


def test_the_plugin_of_the_page_passes_the_test_of_the_page(written: Path) -> None:
    """Nothing but the page is needed to write a plugin that works."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(written)]
    done = subprocess.run(command, cwd=written.parent, capture_output=True, text=True, check=False)

    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_configuration_of_the_page_switches_the_plugin_on() -> None:
    """Out of tree, by name, with weight and arguments: the cheaper node wins against a tie."""
    sys.modules["cheap_nodes"] = type(sys)("cheap_nodes")
    exec(blocks("python")[0], sys.modules["cheap_nodes"].__dict__)  # noqa: S102 (our own page)
    plugin = sys.modules.pop("cheap_nodes").PLUGIN
    configuration = decode_configuration(yaml.safe_load(blocks("yaml")[0]), "cheap.yaml")
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "9"}
    headroom = {name: Quantity.parse(text) for name, text in amounts.items()}
    nodes = [
        Node(
            metadata=ObjectMeta(name=name, labels={"example.com/price-per-hour": price}),
            status=NodeStatus(allocatable=headroom),
        )
        for name, price in (("dear", "2.00"), ("cheap", "0.50"))
    ]
    spec = PodSpec(containers=(Container(name="c"),), scheduler_name="default-scheduler")
    pod = Pod(metadata=ObjectMeta(name="p", namespace="default"), spec=spec)

    result = schedule([*nodes, pod], configuration, out_of_tree=[plugin])

    assert [(bound.pod, bound.node) for bound in result.placements] == [("default/p", "cheap")]


def test_the_configuration_of_the_page_about_load_is_accepted() -> None:
    """With every argument that the page names."""
    page = (HOW_TO.parent / "place-by-load.md").read_text("utf-8")
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    built = build_profiles(decode_configuration(yaml.safe_load(text), "page"), ResourceAxis())

    assert "LoadAwareScheduling" in {active.name for active in built.profiles[0].filter}
