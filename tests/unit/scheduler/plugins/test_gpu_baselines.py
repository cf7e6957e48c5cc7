"""GPU policies that FGD was compared with, on amounts that can be computed by hand."""

from collections import Counter

import pytest
from tests.keywords import as_keywords
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, scored
from tests.worlds import device, gpu_pod, node, pod

from koordinator.api.kubescheduler import PluginArgs
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.plugins import gpu_clusters, gpu_dot_product, gpu_random
from koordinator.scheduler.snapshot import ClusterState, Snapshot

RATIO = "koordinator.sh/gpu-memory-ratio"


def machine(name: str, cpu: int, gpus: int) -> list[KubeObject]:
    """Return a node with its GPUs."""
    return [node(name, cpu=cpu, **as_keywords({RATIO: 100 * gpus})), device(name, gpus)]


def share(name: str, percent: int, on: str = "") -> Pod:
    """Return a pod with a share of a GPU, the first one of its node."""
    return gpu_pod(name, on, minors=[0] if on else [], gpu_memory_ratio=percent)


def test_dot_product_prefers_nodes_with_less_of_what_the_pod_requests(world: World) -> None:
    """Of 128 CPUs and 8 GPUs: 1 - (64/128 * 32/128 + 4/8 * 2/8) / 2 = 0.875 on the small node."""
    state = world(*machine("small", 64, 4), *machine("large", 128, 8))
    pending = pod("p", cpu=32, requests={RATIO: 200})

    result = scored(built(gpu_dot_product.PLUGIN, state), state, pending)

    assert result == {"small": 87, "large": 75}


@pytest.fixture
def tenants(world: World) -> ClusterState:
    """Return nodes with pods of one kind, of two kinds, of another kind, and without GPU pods."""
    return world(
        *machine("shares", 128, 2),
        *machine("mixed", 128, 2),
        *machine("whole", 128, 2),
        *machine("idle", 128, 2),
        share("a", 50, "shares"),
        share("b", 50, "mixed"),
        gpu_pod("c", "mixed", minors=[1], gpu_memory_ratio=100),
        gpu_pod("d", "whole", minors=[0], gpu_memory_ratio=100),
        pod("e", cpu=1, on="idle"),
    )


def test_clustering_prefers_nodes_with_pods_of_the_same_kind(tenants: ClusterState) -> None:
    """75 + 25 * (8 - 1.5) / 8, 50 + 25 * (8 - 0.5) / 8, 25 * (8 - 1) / 8, 25 + 25 * (8 - 2) / 8."""
    plugin = built(gpu_clusters.PLUGIN, tenants)

    assert scored(plugin, tenants, share("p", 20)) == {
        "shares": 95,
        "mixed": 73,
        "whole": 21,
        "idle": 43,
    }
    assert scored(plugin, tenants, pod("q", cpu=1)) == {}


def test_clustering_counts_pods_by_their_number_of_gpus(tenants: ClusterState) -> None:
    """Two GPUs are another kind than one."""
    plugin = built(gpu_clusters.PLUGIN, tenants)
    one = scored(plugin, tenants, pod("p", requests={RATIO: 100}))
    two = scored(plugin, tenants, pod("q", requests={RATIO: 200}))

    assert max(one, key=lambda name: one[name]) == "whole"
    assert max(two, key=lambda name: two[name]) == "idle"


@pytest.mark.parametrize("spec", [gpu_dot_product.PLUGIN, gpu_clusters.PLUGIN])
def test_a_share_takes_the_fullest_gpu(tenants: ClusterState, spec: PluginSpec[PluginArgs]) -> None:
    """As with best fit."""
    plugin = built(spec, tenants)
    row = Snapshot(tenants)[Snapshot(tenants).row_numbers[[tenants.nodes.rows["shares"]]]]

    first, second, *_ = plugin.prefer_devices(row, tenants.classes.of(share("p", 20))).tolist()

    assert first > second


def test_random_takes_every_node_equally_often_and_repeats_with_its_seed(world: World) -> None:
    """Of 400 pods each of four nodes gets 100 on average; 40 of them are four deviations."""
    state = world(*(part for name in "abcd" for part in machine(name, 8, 2)))
    pending = state.classes.of(share("p", 50))

    def choices(seed: int) -> list[str]:
        plugin, names = built(gpu_random.PLUGIN, state, seed=seed), []
        for _ in range(400):
            plugin.on_arrival(Snapshot(state), pending)
            result = scored(plugin, state, share("p", 50))
            names.append(max(result, key=lambda name: result[name]))
        return names

    drawn = choices(1)

    assert all(60 <= count <= 140 for count in Counter(drawn).values())
    assert len(Counter(drawn)) == 4
    assert choices(1) == drawn != choices(2)
