"""Room for gangs of whole GPUs: how fast moves are found, and how many more than the fewest."""

import functools
import time
from typing import Any

import numpy as np

from benchmarks.benchmark import Benchmark
from koordinator.descheduler.plugins.gpu_defragmentation.room import (
    RoomCluster,
    RoomLedger,
    RoomPod,
    RoomRequest,
    fewest_moves,
    find_room,
)
from koordinator.domain.gpus.mix import WHOLE_GPU

_SLOTS = 8
_CPU, _MEMORY = 96_000, 768  # milli, GiB
_KINDS = ((1, 1000), (2, 1000), (4, 1000), (8, 1000), (1, 500), (1, 250), (0, 0))
_WEIGHTS = np.array([0.42, 0.12, 0.08, 0.03, 0.15, 0.1, 0.1])
_CLUSTERS, _SPINES, _ROUNDS = 200, 10, 5


def random_cluster(rng: np.random.Generator, nodes: int, use: float, slots: int) -> RoomCluster:
    """Return a cluster that pods came to at random until so much of its GPUs was in use."""
    gpu_free = np.full((nodes, slots), WHOLE_GPU)
    free = np.tile(np.array([_CPU * slots // _SLOTS, _MEMORY * slots // _SLOTS]), (nodes, 1))
    pods: list[RoomPod] = []
    wanted = use * nodes * slots * WHOLE_GPU
    used = misses = 0
    while used < wanted and misses < 100:
        count, milli = _KINDS[int(rng.choice(len(_KINDS), p=_WEIGHTS))]
        if count > slots:
            continue
        per_gpu = int(rng.integers(4, 13)) * 1000 * max(milli, 500) // 1000
        requests = np.array([per_gpu * max(count, 1), int(rng.integers(4, 65)) * max(count, 1)])
        able = (free >= requests).all(1)
        able &= np.count_nonzero(gpu_free >= max(milli, 1), axis=1) >= count
        rows = np.flatnonzero(able)
        if not len(rows):
            misses += 1
            continue
        row = int(rng.choice(rows))
        gpus = tuple(np.flatnonzero(gpu_free[row] >= max(milli, 1))[:count].tolist())
        gpu_free[row, list(gpus)] -= milli
        free[row] -= requests
        used += count * milli
        pods.append(
            RoomPod(
                key=f"default/p{len(pods)}",
                row=row,
                requests=requests,
                gpus=gpus,
                gpu_milli=milli,
                may_move=bool(rng.random() < 0.95),
                cost=float(rng.integers(1, 4)),
            )
        )
    return RoomCluster(free, gpu_free, tuple(pods))


def large(_scale: float, *, one_spine: bool = False) -> dict[str, Any]:
    """Find room for 8 nodes x 8 GPUs on 1,000 nodes; ``one_spine``: all of it in one of ten."""
    seconds, moves = [], []
    for seed in range(_ROUNDS):
        rng = np.random.default_rng(seed)
        cluster = random_cluster(rng, 1_000, 0.92, _SLOTS)
        domain = np.arange(1_000) % _SPINES if one_spine else None
        request = RoomRequest(8, 8, np.array([64_000, 512]), domain=domain)
        began_s = time.process_time()
        plan = find_room(cluster, request, rng)
        seconds.append(time.process_time() - began_s)
        moves.append(-1 if plan is None else len(plan.moves))
    return {
        "worst s (processor time)": round(max(seconds), 2),
        "median s": round(float(np.median(seconds)), 2),
        "moves": moves,
    }


def against_exact(scale: float) -> dict[str, Any]:
    """Compare the moves of the search with the fewest, on small clusters at 75 to 92 % use."""
    moves, fewest, missed, equal, solved = 0, 0, 0, 0, 0
    began = solver_s = 0.0
    search_s = 0.0
    for seed in range(round(_CLUSTERS * scale)):
        rng = np.random.default_rng(seed)
        slots = int(rng.choice([4, 8]))
        nodes = int(rng.integers(5, 11))
        cluster = random_cluster(rng, nodes, float(rng.uniform(0.6, 0.88)), slots)
        gpus = int(rng.choice([slots // 2, slots]))
        request = RoomRequest(int(rng.integers(1, 3)), gpus, np.array([4_000 * gpus, 16 * gpus]))
        began = time.process_time()
        exact = fewest_moves(cluster, request)
        solver_s += time.process_time() - began
        began = time.process_time()
        plan = find_room(cluster, request, rng)
        search_s += time.process_time() - began
        if exact is None:
            assert plan is None
            continue
        solved += 1
        if plan is None:
            missed += 1
            continue
        RoomLedger(cluster)
        moves += len(plan.moves)
        fewest += exact
        equal += len(plan.moves) == exact
    return {
        "clusters with room": solved,
        "search found none": missed,
        "moves": moves,
        "fewest (exact)": fewest,
        "more in %": round(100 * (moves / max(fewest, 1) - 1), 1),
        "as few in % of clusters": round(100 * equal / max(solved - missed, 1), 1),
        "s of the search": round(search_s, 1),
        "s of the solver": round(solver_s, 1),
    }


BENCHMARKS = {
    "room": Benchmark("room for 8 x 8 GPUs on 1,000 nodes at 92 % use", "1 s", large),
    "room-spine": Benchmark(
        "as above, all in one of ten spines", "1 s", functools.partial(large, one_spine=True)
    ),
    "room-exact": Benchmark(
        "moves of the search against the exact solver, 200 small clusters",
        "at most 10 % more",
        against_exact,
    ),
}
