"""Examples of the documents are run here, so that they stay true."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.markdown import code_blocks
from tests.worlds import START_S, configuration, embedded, node, pod

from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeStatus
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.profile import build_profiles
from koordinator.scheduler.snapshot import ResourceAxis
from koordinator.simulator import schedule
from koordinator.testing.scheduler_plugins import plugin_contract

pytestmark = pytest.mark.integration

HOW_TO = Path(__file__).parents[2] / "docs/how-to/add-a-plugin.md"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Write the plugin and its test as a contributor would from the page."""
    plugin, test, example, suite, *_ = code_blocks(HOW_TO.read_text("utf-8"), "python")
    (tmp_path / "cheap_nodes.py").write_text(plugin + example)
    file = tmp_path / "test_cheap_nodes.py"
    file.write_text(f"from cheap_nodes import PLUGIN, CheapNodesArgs\n{test}{suite}")
    return file


def test_the_plugin_of_the_page_passes_the_test_of_the_page(written: Path) -> None:
    """Nothing but the page is needed to write a plugin that works and keeps the contract."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(written)]
    done = subprocess.run(command, cwd=written.parent, capture_output=True, text=True, check=False)

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def plugin_of(code: str, monkeypatch: pytest.MonkeyPatch) -> PluginSpec[Any]:
    """Return the PLUGIN of a module made of a block of the page."""
    module = type(sys)("of_the_page")
    monkeypatch.setitem(sys.modules, "of_the_page", module)
    exec(code, module.__dict__)  # noqa: S102 (our own page)
    spec: PluginSpec[Any] = module.__dict__["PLUGIN"]
    return spec


@pytest.mark.slow
@pytest.mark.parametrize("number", [5, 6], ids=["FewNoisyPods", "BeforeMaintenance"])
def test_the_other_plugins_of_the_page_keep_the_contract(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One plugin counts other pods, one reads an annotation of the node and the time."""
    (case,) = plugin_contract(
        plugin_of(code_blocks(HOW_TO.read_text("utf-8"), "python")[number], monkeypatch)
    ).args[1]
    case.values[0]()


def test_few_noisy_pods_share_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third one waits, as two are on the only node."""
    plugin = plugin_of(code_blocks(HOW_TO.read_text("utf-8"), "python")[5], monkeypatch)
    labels = {"example.com/noisy": "true"}
    noisy = [pod(name, namespace=name, labels=labels) for name in ("a", "b", "c")]
    one = embedded(node("n"), *noisy, config=filtering("FewNoisyPods"), out_of_tree=[plugin])
    one.run_to_fixed_point()

    assert sum(bool(each.spec.node_name) for each in one.cluster.list(Pod).items) == 2


def test_a_node_before_its_maintenance_gets_no_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour before, as time passes: what was right for the first pod is not for the second."""
    plugin = plugin_of(code_blocks(HOW_TO.read_text("utf-8"), "python")[6], monkeypatch)
    soon = {"example.com/maintenance-at": "2023-11-15T00:00:00Z"}  # START_S is at 22:13:20
    config = filtering("BeforeMaintenance")
    one = embedded(node("n", annotations=soon), pod("a"), config=config, out_of_tree=[plugin])
    one.run_to_fixed_point()
    one.clock.advance_to(START_S + 3600)
    one.load([pod("b")])
    one.run_to_fixed_point()

    assert [p.metadata.name for p in one.cluster.list(Pod).items if p.spec.node_name] == ["a"]


def filtering(name: str) -> KubeSchedulerConfiguration:
    return configuration(plugins={"filter": {"enabled": [{"name": name}]}})


def test_the_configuration_of_the_page_switches_the_plugin_on() -> None:
    """Out of tree, by name, with weight and arguments: the cheaper node wins against a tie."""
    sys.modules["cheap_nodes"] = type(sys)("cheap_nodes")
    exec(code_blocks(HOW_TO.read_text("utf-8"), "python")[0], sys.modules["cheap_nodes"].__dict__)  # noqa: S102 (our own page)
    plugin = sys.modules.pop("cheap_nodes").PLUGIN
    configuration = decode_configuration(
        yaml.load(code_blocks(HOW_TO.read_text("utf-8"), "yaml")[0], yaml.CSafeLoader), "cheap.yaml"
    )
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
    (text,) = code_blocks(page, "yaml")
    built = build_profiles(
        decode_configuration(yaml.load(text, yaml.CSafeLoader), "page"), ResourceAxis()
    )

    assert "LoadAwareScheduling" in {active.name for active in built.profiles[0].filter}
