"""Jobs in the network: time to place a large one, and number of blocks that jobs are spread over.

``topology`` measures the processor time of ``Scheduler.step`` as ``gangs`` does.  ``blocks`` runs
jobs on a simulated cluster of 4,096 GPUs under three ways of choosing nodes: ours, the
original's (``tests.topology_reference``), and an exact solver's, which finds the fewest spines and
then the fewest blocks for each job.  All three see the same jobs; each has a cluster of its own.
"""

import gc
import heapq
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tests.topology_reference import cluster as original_cluster
from tests.topology_reference import place as original_place

from benchmarks.benchmark import Benchmark
from benchmarks.gangs import gang
from benchmarks.throughput import nodes
from koordinator.api.annotations.gang import (
    NETWORK_TOPOLOGY_SPEC,
    GatherRule,
    GatherStrategy,
    NetworkTopologySpec,
)
from koordinator.api.cluster_network_topology import (
    NODE_LAYER,
    ClusterNetworkTopology,
    ClusterNetworkTopologySpec,
    NetworkTopologyLayer,
)
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod_groups import PodGroup
from koordinator.cli.input.configuration import read_configuration
from koordinator.cli.main import tune_garbage_collector
from koordinator.domain.network import DomainLayer, GatherRules, NetworkTree, OfferSlots, plan
from koordinator.scheduler.loop import Bound, SchedulerOptions
from koordinator.simulator import Embedded

PROFILE = read_configuration(Path(__file__).with_name("topology.yaml"))
NODES, IN_BLOCK, BLOCKS_IN_SPINE = 5_000, 16, 20
LAYERS = DomainLayer("SpineLayer", ("spine",)), DomainLayer("BlockLayer", ("block",))


def topology() -> ClusterNetworkTopology:
    """Return spines of blocks of nodes."""
    layers = (
        NetworkTopologyLayer(topology_layer="SpineLayer", label_key=("spine",)),
        NetworkTopologyLayer(
            topology_layer="BlockLayer",
            parent_topology_layer="SpineLayer",
            label_key=("block",),
        ),
        NetworkTopologyLayer(topology_layer=NODE_LAYER, parent_topology_layer="BlockLayer"),
    )
    return ClusterNetworkTopology(
        metadata=ObjectMeta(name="default"),
        spec=ClusterNetworkTopologySpec(network_topology_spec=layers),
    )


def wired(cluster: list[Node]) -> Iterator[Node]:
    """Yield the nodes with labels of the network, 16 to a block, 20 blocks to a spine."""
    for number, node in enumerate(cluster):
        block = number // IN_BLOCK
        labels = {"spine": f"s{block // BLOCKS_IN_SPINE}", "block": f"b{block}"}
        meta = msgspec.structs.replace(node.metadata, labels=node.metadata.labels | labels)
        yield msgspec.structs.replace(node, metadata=meta)


def together(name: str, count: int, cpu: int) -> Iterator[KubeObject]:
    """Make a gang that must stay in one spine."""
    rule = GatherRule(layer="SpineLayer", strategy=GatherStrategy.MUST_GATHER)
    spec = NETWORK_TOPOLOGY_SPEC.entry(NetworkTopologySpec(gather_strategy=(rule,)))
    for obj in gang(name, count, cpu):
        if isinstance(obj, PodGroup):
            meta = msgspec.structs.replace(obj.metadata, annotations=spec)
            yield msgspec.structs.replace(obj, metadata=meta)
        else:
            yield obj


def large(scale: float) -> dict[str, Any]:
    """Place one gang of 1,000 members; the best of five, and the same gang without a spec."""
    count = int(1_000 * scale)
    took: dict[Any, list[float]] = {together: [], gang: []}
    for number, make in itertools.product(range(5), took):
        world = Embedded(PROFILE, options=SchedulerOptions(report=False))
        world.load([topology(), *wired(nodes(NODES))])
        world.load(make("warm", 16, 3))
        world.scheduler.step()
        world.load(make(f"g{number}", count, 4))
        gc.collect()
        tune_garbage_collector()
        started = time.process_time()
        bound = sum(isinstance(outcome, Bound) for outcome in world.scheduler.step())
        took[make].append(time.process_time() - started)
    return {
        "ms": round(min(took[together]) * 1e3),
        "median ms": round(sorted(took[together])[2] * 1e3),
        "without spec ms": round(min(took[gang]) * 1e3),
        "bound": bound,
    }


# -- quality -----------------------------------------------------------------------------------

SPINES, BLOCKS, HOSTS, GPUS = 4, 8, 16, 8  # 4,096 GPUs
N_HOSTS = SPINES * BLOCKS * HOSTS
SPINE_OF = np.repeat(np.arange(SPINES), BLOCKS * HOSTS)
BLOCK_OF = np.repeat(np.arange(SPINES * BLOCKS), HOSTS)
#: Members of a job, each with all GPUs of a host, and how many of hundred jobs have so many; sizes
#: of training jobs are powers of two, most of them small.
SIZES = {1: 30, 2: 18, 4: 16, 8: 13, 16: 10, 24: 4, 32: 5, 64: 3, 128: 1}

Choose = Callable[[np.ndarray, int], list[int] | None]  # free hosts, members -> hosts


def ours() -> Choose:
    """Return how we choose."""
    tree = NetworkTree(LAYERS)
    for host in range(N_HOSTS):
        labels = {"spine": f"s{SPINE_OF[host]}", "block": f"b{BLOCK_OF[host]:02}"}
        tree.put(host, f"h{host:03}", labels)

    def choose(free: np.ndarray, count: int) -> list[int] | None:
        domain_plan = plan(tree, GatherRules(), OfferSlots.of(free.astype(np.int64)), count)
        return None if domain_plan is None else domain_plan.rows.tolist()

    return choose


def original() -> Choose:
    """Return how the original chooses."""
    paths = {f"h{h:03}": (f"s{SPINE_OF[h]}", f"b{BLOCK_OF[h]:02}") for h in range(N_HOSTS)}
    root = original_cluster(paths)

    def choose(free: np.ndarray, count: int) -> list[int] | None:
        slots = {f"h{h:03}": int(is_free) for h, is_free in enumerate(free.tolist())}
        shares = original_place(root, slots, count)
        return None if shares is None else [int(name[1:]) for name, _ in shares]

    return choose


def fewest(free: np.ndarray, count: int) -> tuple[int, int]:
    """Return the fewest spines, and with them the fewest blocks, that have room for a job."""
    headrooms = np.bincount(BLOCK_OF, free, minlength=SPINES * BLOCKS).reshape(SPINES, BLOCKS)
    by_size = np.cumsum(-np.sort(-headrooms, axis=1), axis=1)  # room of the largest 1, 2, … blocks
    for spines in range(1, SPINES + 1):
        best = min(
            (
                sum(split)
                for chosen in itertools.combinations(range(SPINES), spines)
                if by_size[list(chosen), -1].sum() >= count
                for split in itertools.product(range(1, BLOCKS + 1), repeat=spines)
                if sum(by_size[s, n - 1] for s, n in zip(chosen, split, strict=True)) >= count
            ),
            default=0,
        )
        if best:
            return spines, best
    return 0, 0


def used(hosts: list[int]) -> tuple[int, int]:
    """Return how many spines and blocks some hosts are in."""
    return len(set(SPINE_OF[hosts])), len(set(BLOCK_OF[hosts]))


@dataclass(slots=True)
class Seen:
    """Blocks and spines of each job, and what others would have chosen on the same cluster."""

    blocks: list[int] = field(default_factory=list)
    spines: list[int] = field(default_factory=list)
    exact: list[int] = field(default_factory=list)
    other: list[int] = field(default_factory=list)


def simulate(choose: Choose, other: Choose, jobs: int, load: float, seed: int) -> Seen:
    """Run jobs that arrive, wait in order until there is room for the first one, and end."""
    random = np.random.default_rng(seed)
    sizes, shares = np.array(list(SIZES)), np.array(list(SIZES.values())) / sum(SIZES.values())
    gap = float(sizes @ shares) / (load * N_HOSTS)  # a job lasts for 1 in the mean
    free = np.ones(N_HOSTS, bool)
    ends: list[tuple[float, int, list[int]]] = []
    now, seen = 0.0, Seen()
    for number in range(jobs):
        now += float(random.exponential(gap))
        size, life = int(random.choice(sizes, p=shares)), float(random.exponential(1.0))
        while (ends and ends[0][0] <= now) or (hosts := choose(free, size)) is None:
            at, _, over = heapq.heappop(ends)
            now = max(now, at)
            free[over] = True
        spines, blocks = used(hosts)
        seen.blocks.append(blocks)
        seen.spines.append(spines)
        seen.exact.append(fewest(free, size)[1])
        seen.other.append(used(other(free, size) or [])[1])
        free[hosts] = False
        heapq.heappush(ends, (now + life, number, hosts))
    return seen


def quality(scale: float) -> dict[str, Any]:
    """Compare the mean number of blocks of a job at three loads, ten days each."""
    by_load: dict[str, Any] = {}
    for load in (0.7, 0.9, 1.2):
        jobs, days = int(2_000 * scale), range(5)
        own = [simulate(ours(), original(), jobs, load, day) for day in days]
        other = [simulate(original(), ours(), jobs, load, day) for day in days]
        blocks, exact, paired = (
            float(np.mean([getattr(day, what) for day in own]))
            for what in ("blocks", "exact", "other")
        )
        there = float(np.mean([day.blocks for day in other]))
        by_load[f"load {load}"] = (
            f"{blocks:.4f} blocks; exact {exact:.4f} ({blocks / exact - 1:+.1%}); original on the "
            f"same clusters {paired:.4f}, on its own {there:.4f}"
        )
    return by_load


BENCHMARKS = {
    "topology": Benchmark("one gang of 1,000, 5,000 nodes, must gather in a spine", "50 ms", large),
    "blocks": Benchmark(
        "blocks per job, 4,096 GPUs", "5 % above exact, never above the original", quality
    ),
}
