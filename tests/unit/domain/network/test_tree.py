"""Domains from the labels of nodes, and keeping up with them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.worlds import made

from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.domain.network import DomainLayer, NetworkTree, layers_of, status_of
from koordinator.foundation.errors import InputError

API = "scheduling.koordinator.sh/v1alpha1"
LAYERS = DomainLayer("HallLayer", ("hall",)), DomainLayer("RackLayer", ("rack", "old-rack"))


def topology(*layers: tuple[str, str, tuple[str, ...]]) -> ClusterNetworkTopology:
    """Return the object; a layer is its name, its parent, its labels."""
    entries = [
        {"topologyLayer": name, "parentTopologyLayer": parent, "labelKey": list(keys)}
        for name, parent, keys in layers
    ]
    result = made("ClusterNetworkTopology", "default", API, spec={"networkTopologySpec": entries})
    assert isinstance(result, ClusterNetworkTopology)
    return result


def shape(tree: NetworkTree) -> list[tuple[str, str, int, tuple[str, ...]]]:
    return [
        (d.topology_info.topology_layer, d.topology_info.topology_name, d.node_num,
         d.child_topology_names)
        for d in status_of(tree).detail_status
    ]  # fmt: skip


def test_layers_are_put_in_order_from_the_top() -> None:
    """The entries may be listed in any order."""
    result = layers_of(
        topology(
            ("RackLayer", "HallLayer", ("rack", "old-rack")),
            ("NodeTopologyLayer", "RackLayer", ()),
            ("HallLayer", "", ("hall",)),
        )
    )

    assert result == LAYERS


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([("NodeTopologyLayer", "A", ()), ("A", "B", ("a",)), ("B", "A", ("b",))], "itself"),
        (
            [("NodeTopologyLayer", "A", ()), ("A", "", ("a",)), ("B", "", ("b",))],
            "not connected to",
        ),
        ([("NodeTopologyLayer", "A", ())], "layer A has no entry"),
        ([("A", "", ("a",))], "layer NodeTopologyLayer has no entry"),
    ],
)
def test_a_cycle_two_roots_or_unknown_parents_are_refused(
    layers: list[tuple[str, str, tuple[str, ...]]], message: str
) -> None:
    """The message names the wrong layer and the accepted values."""
    with pytest.raises(InputError, match=message):
        layers_of(topology(*layers))


def test_nodes_without_labels_are_left_out_or_alone() -> None:
    """Without a rack a node is a rack of its own; without a hall it is nowhere."""
    tree = NetworkTree(LAYERS)
    tree.put(0, "n0", {"hall": "h", "rack": "r"})
    tree.put(1, "n1", {"hall": "h", "old-rack": "r"})
    tree.put(2, "n2", {"hall": "h"})
    tree.put(3, "n3", {"rack": "r"})

    assert shape(tree) == [
        ("ClusterTopologyLayer", "", 3, ("h",)),
        ("HallLayer", "h", 3, ("n2", "r")),
        ("RackLayer", "n2", 1, ()),
        ("RackLayer", "r", 2, ()),
    ]


def test_racks_of_one_name_in_two_halls_are_two_racks() -> None:
    """The original puts both under the hall that it saw first."""
    tree = NetworkTree(LAYERS)
    tree.put(0, "n0", {"hall": "a", "rack": "1"})
    tree.put(1, "n1", {"hall": "b", "rack": "1"})

    assert shape(tree)[1:] == [
        ("HallLayer", "a", 1, ("1",)),
        ("RackLayer", "1", 1, ()),
        ("HallLayer", "b", 1, ("1",)),
        ("RackLayer", "1", 1, ()),
    ]


def test_a_tree_without_layers_has_all_nodes_under_the_root() -> None:
    """A topology of nodes alone is one; the children of the root aren't named then."""
    tree = NetworkTree(layers_of(topology(("NodeTopologyLayer", "", ()))))
    tree.put(0, "n0", {})

    assert shape(tree) == [("ClusterTopologyLayer", "", 1, ())]


label = st.sampled_from(["", "a", "b"])


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from("xyz"), label, label),
        max_size=30,
    )
)
def test_a_tree_that_was_kept_current_is_the_one_made_from_scratch(
    events: list[tuple[int, bool, str, str, str]],
) -> None:
    """Nodes come, go, change their labels, and rows get other nodes."""
    tree, nodes = NetworkTree(LAYERS), dict[int, tuple[str, dict[str, str]]]()
    for row, is_there, name, hall, rack in events:
        if is_there:
            nodes[row] = (f"{name}{row}", {"hall": hall, "rack": rack})
            tree.put(row, *nodes[row])
        else:
            nodes.pop(row, None)
            tree.drop(row)
        tree.validate()
    fresh = NetworkTree(LAYERS)
    for row, (name, labels) in nodes.items():
        fresh.put(row, name, labels)

    assert shape(tree) == shape(fresh)
