"""Page /apis/v1/nodes/NAME, with the fields of koord-scheduler."""

import pytest
from tests.keywords import as_keywords
from tests.worlds import MIB, near, node, pod, world

from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.features.nodes import node_page

CLAIM = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]


def test_node_page_has_requested_and_remaining_amounts() -> None:
    """CPU is in milli-CPU, memory in bytes; containers without requests count with defaults."""
    state = world(
        node("n", cpu=4, memory="1Gi", pods=9, **as_keywords({"example.com/gpu": 2})),
        pod("p", "1500m", on="n", requests={"example.com/gpu": 1}),
        pod("q", on="n"),
    )
    page = node_page(state, "n")

    assert page["node"]["metadata"]["name"] == "n"
    assert [info["Pod"]["metadata"]["name"] for info in page["pods"]] == ["p", "q"]
    assert page["allocatable"] == {
        "MilliCPU": 4000,
        "Memory": 1024 * MIB,
        "EphemeralStorage": 0,
        "AllowedPodNumber": 9,
        "ScalarResources": {"example.com/gpu": 2},
    }
    assert (page["requested"]["MilliCPU"], page["remaining"]["MilliCPU"]) == (1500, 2500)
    assert page["remaining"]["ScalarResources"] == {"example.com/gpu": 1}
    assert page["remaining"]["AllowedPodNumber"] == 7
    assert page["nonZeroRequested"]["MilliCPU"] == 1600
    assert page["nonZeroRequested"]["Memory"] == 400 * MIB


def test_node_page_has_ports_images_claims_and_anti_affinity() -> None:
    """Ports are by address, images have their nodes, claims their number of users."""
    apart, together = {"podAntiAffinity": near("web")}, {"podAffinity": near("db", weight=1)}
    state = world(
        node("n", images={"web:1": 20}),
        node("m", images={"web:1": 20}),
        pod("a", on="n", affinity=apart, ports=[80], volumes=CLAIM),
        pod("b", on="n", affinity=together, ports=["10.0.0.1:53/UDP"], volumes=CLAIM),
    )
    page = node_page(state, "n")

    names = {
        field: [info["Pod"]["metadata"]["name"] for info in page[field]]
        for field in ("podsWithAffinity", "podsWithRequiredAntiAffinity")
    }
    assert names == {"podsWithAffinity": ["a", "b"], "podsWithRequiredAntiAffinity": ["a"]}
    assert page["usedPorts"] == {
        "0.0.0.0": [{"Protocol": "TCP", "Port": 80}],  # noqa: S104 -- every address of the node
        "10.0.0.1": [{"Protocol": "UDP", "Port": 53}],
    }
    assert page["imageStates"] == {
        "web:1": {"Size": 20 * MIB, "NumNodes": 2, "Nodes": {"m": {}, "n": {}}}
    }
    assert page["pvcRefCounts"] == {"default/data": 2}


def test_empty_fields_are_left_out() -> None:
    """Amounts are always present; an unknown node is an error."""
    state = world(node("n"))

    assert node_page(state, "n").keys() == {
        "node",
        "requested",
        "nonZeroRequested",
        "remaining",
        "allocatable",
    }
    with pytest.raises(NotFoundError, match="cannot find node m"):
        node_page(state, "m")
