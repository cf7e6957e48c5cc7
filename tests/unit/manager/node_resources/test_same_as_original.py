"""Random nodes, and what the original made of them.

The results are from koordinator (July 2026, its Go plugins BatchResource and MidResource called
on these inputs); 4,000 such nodes were compared, 60 are kept.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.manager.node_resources.nodes import counted

from koordinator.api.annotations.node import ColocationStrategy
from koordinator.api.codec import decode
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.foundation.quantity import Quantity
from koordinator.manager.configuration.strategies import resolved
from koordinator.manager.node_resources.batch import (
    batch_terms,
    has_zones,
    zone_amounts,
    zone_terms,
)
from koordinator.manager.node_resources.calculation import mid_terms
from koordinator.manager.node_resources.node import milli, node_use, units

CASES = json.loads(
    (Path(__file__).parents[3] / "golden/colocation/batch_and_mid.json").read_text("utf-8")
)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_amounts_and_words_are_those_of_the_original(case: Any) -> None:
    """To the byte and to the letter; of NUMA nodes, too."""
    given, expected = case["input"], case["expected"]
    strategy = resolved(decode(given["strategy"], ColocationStrategy))
    node = decode(given["node"], Node)
    pods = counted(decode(each, Pod) for each in given["pods"])
    use = node_use(decode(given["nodeMetric"], NodeMetric).status, pods)

    terms = batch_terms(strategy, node, use)
    batch, mid = terms.batch(), mid_terms(strategy, node, use)

    assert {name: (each["value"], each["message"]) for name, each in expected.items()} == {
        "batch-cpu": (milli(batch.cpu), terms.cpu_message()),
        "batch-memory": (units(batch.memory), terms.memory_message()),
        "mid-cpu": (mid.cpu_milli, mid.cpu_message()),
        "mid-memory": (mid.memory_bytes, mid.memory_message()),
    }
    topology = decode(given["nrt"], NodeResourceTopology) if "nrt" in given else None
    zones: dict[str, dict[str, Quantity]] = {}
    if topology is not None and has_zones(topology):
        shown = zone_amounts(zone_terms(strategy, node, topology, use), 1.0)
        zones = {zone.name: each for zone, each in zip(topology.zones, shown, strict=True)}
    for name in ("batch-cpu", "batch-memory"):
        wanted = {z: Quantity.parse(text) for z, text in expected[name].get("zones", {}).items()}
        assert wanted == {z: each[f"kubernetes.io/{name}"] for z, each in zones.items()}
