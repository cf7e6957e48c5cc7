"""Speed of pods with reservations, and the cost for pods without one.

5,000 nodes, 2,000 reservations of 16 CPUs for pods of 100 apps (pods of half of them arrive), and
50,000 pods of 400 classes, which arrive 25 at a time, as a workload creates them.  Every other pod
owns reservations.
"""

import gc
import time
from typing import Any

from benchmarks.benchmark import Benchmark
from koordinator.api.codec import decode_object
from koordinator.api.core import ResourceRequirements
from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.node import Node, NodeStatus
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.api.reservation import Reservation
from koordinator.cli.main import tune_garbage_collector
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.loop import SchedulerOptions
from koordinator.simulator import Embedded

NODES, RESERVATIONS, APPS, PODS, BATCH = 5_000, 2_000, 100, 50_000, 25
CREATED = "2023-11-14T22:00:00Z"


def profile(*, on: bool) -> KubeSchedulerConfiguration:
    """Return a profile with the plugin or without it."""
    plugin: dict[str, Any] = {"enabled": [{"name": "Reservation"}]}
    scored = {"enabled": [{"name": "Reservation", "weight": 5000}]}
    points = ("preFilter", "filter", "reserve", "postFilter")
    plugins = {**dict.fromkeys(points, plugin), "score": scored} if on else {}
    return decode_configuration(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
        },
        "benchmark",
    )


def node(name: str) -> Node:
    """Return one of the nodes, all alike."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    return Node(metadata=ObjectMeta(name=name), status=NodeStatus(allocatable=_quantities(amounts)))


def reservation(number: int) -> KubeObject:
    """Return a reservation that is available on a node; even numbers have owners."""
    amounts = {"cpu": "16", "memory": "64Gi"}
    app = f"app{number // 2 % APPS}" if number % 2 == 0 else f"nobody{number}"
    container = {"name": "c", "resources": {"requests": amounts}}
    return decode_object(
        {
            "apiVersion": Reservation.API_VERSION,
            "kind": Reservation.KIND,
            "metadata": {"name": f"r{number}", "uid": f"r{number}", "creationTimestamp": CREATED},
            "spec": {
                "owners": [{"labelSelector": {"matchLabels": {"app": app}}}],
                "allocateOnce": False,
                "allocatePolicy": "Aligned",
                "ttl": "0s",
                "template": {"spec": {"containers": [container]}},
            },
            "status": {
                "phase": "Available",
                "nodeName": f"n{number * 2}",
                "allocatable": amounts,
            },
        }
    )


def pod(number: int, *, owner: bool) -> Pod:
    """Return a pending pod; classes of an app differ in their requests."""
    batch = number // BATCH // 2
    app = f"app{batch % APPS}" if owner else f"plain{batch % APPS}"
    cpu = ("1", "2")[batch // APPS % 2]
    container = Container(
        name="c",
        resources=ResourceRequirements(requests=_quantities({"cpu": cpu, "memory": "2Gi"})),
    )
    spec = PodSpec(containers=(container,), scheduler_name="default-scheduler", priority=0)
    meta = ObjectMeta(name=f"p{number}", namespace="default", labels={"app": app})
    return Pod(metadata=meta, spec=spec)


def _quantities(amounts: dict[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in amounts.items()}


def rate(pods: list[Pod], *, reservations: int, on: bool) -> tuple[float, int]:
    """Return pods placed per second of CPU time, and how many of them use a reservation."""
    world = Embedded(profile(on=on), now_s=1_700_000_000.0, options=SchedulerOptions(report=False))
    world.load([node(f"n{index}") for index in range(NODES)])
    world.load([reservation(number) for number in range(reservations)])
    world.scheduler.step()
    world.load(pods)
    gc.collect()
    began_s = time.process_time()  # others may use the machine, too
    outcomes = world.scheduler.step()
    took_s = time.process_time() - began_s
    placed = len(outcomes)
    using = sum(bool(p.pod_allocation.uses) for p in world.state.pods.by_key.values())
    return placed / took_s, using


def run(scale: float) -> dict[str, Any]:
    """Return pods per second: half owners; then, without owners, with the plugin on and off."""
    tune_garbage_collector()
    count = int(PODS * scale)
    mixed, using = rate(
        [pod(n, owner=n // BATCH % 2 == 0) for n in range(count)],
        reservations=RESERVATIONS,
        on=True,
    )
    plain = [pod(n, owner=False) for n in range(count)]
    pairs = [
        (
            rate(plain, reservations=RESERVATIONS, on=True)[0],
            rate(plain, reservations=RESERVATIONS, on=False)[0],
        )
        for _ in range(3)
    ]
    costs = sorted(1 - on / off for on, off in pairs)
    return {
        "pods per second, half of them owners": round(mixed),
        "of these, use a reservation": using,
        "pods per second, no owners": round(max(on for on, _ in pairs)),
        "cost for pods that own none": f"{100 * costs[1]:.1f} % (median of 3)",
    }


BENCHMARKS = {
    "reservations": Benchmark(
        "5,000 nodes, 2,000 reservations, half of them matched, 50,000 pods",
        "at least 5,000 pods/s; a pod that matches none pays less than 5 %",
        run,
    ),
}
