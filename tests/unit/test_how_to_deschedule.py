"""Examples of the page about the descheduler are run here, so that they stay true."""

import sys
from pathlib import Path
from types import ModuleType

import yaml
from tests.markdown import code_blocks
from tests.worlds import START_S, node, pod

from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.descheduler.profile import DESCHEDULER_PLUGINS, choose_profiles
from koordinator.testing.descheduler_plugins import DeschedulerPluginExample, check_plugin

PAGE = (Path(__file__).parents[2] / "docs/how-to/deschedule.md").read_text("utf-8")


def test_the_configuration_of_the_page_is_accepted() -> None:
    """With every plugin and argument that it names."""
    configuration = decode_descheduler_configuration(
        yaml.load(code_blocks(PAGE, "yaml")[0], yaml.CSafeLoader), "page"
    )
    (profile,) = choose_profiles(configuration, source="page")
    assert profile.names_at["balance"] == ("LowNodeLoad",)
    assert configuration.max_no_of_pods_to_evict_total == 20


def test_the_page_names_every_plugin() -> None:
    """In its table, or by the end of a long name."""
    for spec in DESCHEDULER_PLUGINS:
        short = spec.name.replace("RemovePodsViolating", "…")
        assert spec.name in PAGE or short in PAGE, spec.name


def test_the_plugin_of_the_page_passes_the_suite() -> None:
    """Nothing but the page is needed to write a plugin that works."""
    module = ModuleType("evict_labelled")
    sys.modules["evict_labelled"] = module
    try:
        exec(code_blocks(PAGE, "python")[0], module.__dict__)  # noqa: S102 -- our own page
        labels = {"example.com/please-move": ""}
        owner = ("ReplicaSet", "r")
        pods = [
            pod("a", on="n1", labels=labels, owner=owner),
            pod("b", on="n1", owner=owner),
            pod("c", on="n2", labels=labels, owner=owner),
        ]
        objects = [node("n1"), node("n2"), *pods]
        check_plugin(
            DeschedulerPluginExample(module.EVICT_LABELLED, "deschedule", objects, START_S)
        )
    finally:
        del sys.modules["evict_labelled"]
