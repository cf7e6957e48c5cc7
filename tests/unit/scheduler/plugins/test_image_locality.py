"""Preference for nodes that already have the pod's images."""

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, scored
from tests.worlds import node, pod

from koordinator.scheduler.plugins.image_locality import PLUGIN, normalized


@pytest.mark.parametrize(
    ("mib", "expected"),
    [
        (10, 0),
        (23, 0),  # less than 23 MiB is not worth a thought
        (512, 50),  # 100 * (512 - 23) / (1000 - 23) = 50.05
        (999, 99),
        (1000, 100),  # per container
        (9000, 100),
    ],
)
def test_size_is_scaled_between_two_thresholds(world: World, mib: int, expected: int) -> None:
    """On a cluster of one node, so all nodes have it."""
    state = world(node("n", images={"app:1": mib}))

    assert scored(built(PLUGIN, state), state, pod("p", images=["app:1"])) == {"n": expected}


def test_an_image_that_few_nodes_have_counts_less(world: World) -> None:
    """600 MiB on one of two nodes are 300: 100 * (300 - 23) / 977 = 28."""
    state = world(node("has", images={"app:1": 600}), node("lacks"))

    assert scored(built(PLUGIN, state), state, pod("p", images=["app:1"])) == {
        "has": 28,
        "lacks": 0,
    }


def test_containers_add_up_and_share_the_scale(world: World) -> None:
    """300 + 700 MiB of at most 2000: 100 * (1000 - 23) / (2000 - 23) = 49."""
    state = world(node("n", images={"a:1": 300, "b:1": 700}))

    assert scored(built(PLUGIN, state), state, pod("p", images=["a:1", "b:1"])) == {"n": 49}


def test_init_containers_have_images_too(world: World) -> None:
    """One of the pod's two images is an init container's."""
    state = world(node("n", images={"a:1": 300, "b:1": 700}))
    pending = pod("p", images=["a:1"], initContainers=[{"name": "i", "image": "b:1"}])

    assert scored(built(PLUGIN, state), state, pending) == {"n": 49}


def test_a_node_that_loses_the_image_makes_it_rarer(world: World) -> None:
    """The image was on both nodes, then on one of two; without the second node it is everywhere."""
    state = world(node("a", images={"app:1": 600}), node("b", images={"app:1": 600}))
    plugin, pending = built(PLUGIN, state), pod("p", images=["app:1"])
    assert scored(plugin, state, pending) == {"a": 59, "b": 59}

    state.put_node(node("b"))
    assert scored(plugin, state, pending) == {"a": 28, "b": 0}
    state.drop_node("b")
    assert scored(plugin, state, pending) == {"a": 59}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nginx", "nginx:latest"),
        ("nginx:1.25", "nginx:1.25"),
        ("host:5000/nginx", "host:5000/nginx:latest"),
        ("host:5000/nginx@sha256:ab", "host:5000/nginx@sha256:ab"),
    ],
)
def test_no_tag_means_latest(name: str, expected: str) -> None:
    """The colon of a registry's port is none of a tag."""
    assert normalized(name) == expected
