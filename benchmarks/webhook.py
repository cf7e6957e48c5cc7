"""Admission of pods over TLS: 500 creations a second, each judged by 20 colocation profiles.

The server is a process of its own, as ``koord manager`` runs it; the client keeps eight connections
open and sends at fixed times, whatever the answers do.
"""

import asyncio
import json
import multiprocessing
import os
import re
import ssl
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.benchmark import Benchmark
from koordinator.api.codec import decode_object
from koordinator.cli.main import tune_garbage_collector
from koordinator.cli.manager.process import reviewer
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import SystemClock
from koordinator.manager.admission.gates import DEFAULT_GATES
from koordinator.manager.admission.hooks import HookOptions, enabled_hooks
from koordinator.manager.lookups import WatchLookup
from koordinator.process.admission_reviews import review_application
from koordinator.process.certificates import ReplaceableContext
from koordinator.process.http_server import HttpServer
from koordinator.process.serving_secret import self_signed

RATE, SECONDS, CONNECTIONS, PROFILES = 500, 10, 8, 20
PATH = "/mutate-pod"
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def latency(scale: float) -> dict[str, Any]:
    """Return how long an answer takes, from the time at which the request was due."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
    server.start()
    port, certificate = here.recv()
    tune_garbage_collector()  # a pause of the client would be taken for one of the server
    count = int(RATE * SECONDS * scale)
    try:
        before_s = _cpu_s(server.pid or 0)
        times = asyncio.run(_send(port, certificate, count))
        busy_s = _cpu_s(server.pid or 0) - before_s
    finally:
        server.terminate()
        server.join()
    return {
        "median ms": f"{float(np.median(times)) * 1000:.2f}",
        "p99 ms": f"{float(np.percentile(times, 99)) * 1000:.2f}",
        "core of the server": f"{busy_s / count * RATE:.2f}",
    }


def _cpu_s(pid: int) -> float:
    """Return the CPU time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve(pipe: Connection) -> None:
    clock = SystemClock()
    cluster = MemoryCluster(clock)
    cluster.load(decode_object(each) for each in _objects())
    lookup = WatchLookup(cluster, lambda: 0, SystemClock())

    def not_ready() -> str:
        lookup.follow()
        return "" if lookup.is_synced else "not yet"

    hooks = enabled_hooks(HookOptions(gates=DEFAULT_GATES))
    app = review_application(
        {hook.path: reviewer(hook, lookup) for hook in hooks}, not_ready=not_ready
    )
    pair = self_signed(("localhost",), clock.now_s())
    server = HttpServer(app, "127.0.0.1", 0, ReplaceableContext(pair).context)
    server.start()
    tune_garbage_collector()
    pipe.send((server.port, pair.certificate))
    while True:
        time.sleep(60)


async def _send(port: int, certificate: bytes, count: int) -> list[float]:
    tls = ssl.create_default_context(cadata=certificate.decode())
    body = json.dumps(_review()).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    idle: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        idle.put_nowait(await asyncio.open_connection("localhost", port, ssl=tls))
    times: list[float] = []

    async def one(due_s: float) -> None:
        connection = reader, writer = await idle.get()
        writer.write(request)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(_LENGTH.search(answer)[1])  # type: ignore[index]
        text = await reader.readexactly(length)
        times.append(time.perf_counter() - due_s)
        idle.put_nowait(connection)
        assert b'"allowed":true' in text
        assert b"JSONPatch" in text

    for _ in range(100):  # warm up
        await one(time.perf_counter())
    times.clear()
    began_s, tasks = time.perf_counter(), []
    for number in range(count):
        due_s = began_s + number / RATE
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due_s)))
    await asyncio.gather(*tasks)
    return times


def _objects() -> list[dict[str, Any]]:
    profiles = [
        {
            "apiVersion": "config.koordinator.sh/v1alpha1",
            "kind": "ClusterColocationProfile",
            "metadata": {"name": f"p{number}"},
            "spec": {
                "namespaceSelector": {"matchLabels": {"tier": "offline"}},
                "selector": {"matchLabels": {"app": f"app{number}"}},
                "qosClass": "BE",
                "priorityClassName": "koord-batch",
                "labels": {"team": "data"},
                "schedulerName": "koord-scheduler",
            },
        }
        for number in range(PROFILES)
    ]
    return [
        *profiles,
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "jobs", "labels": {"tier": "offline"}},
        },
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "koord-batch"},
            "value": 5000,
        },
    ]


def _review() -> dict[str, Any]:
    resources = {"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"cpu": "2"}}
    container = {
        "name": "main",
        "image": "registry.example/app:1",
        "resources": resources,
        "env": [{"name": f"V{number}", "value": "x" * 20} for number in range(20)],
    }
    pod = {
        "metadata": {"generateName": "job-", "namespace": "jobs", "labels": {"app": "app7"}},
        "spec": {"containers": [container, {**container, "name": "side"}]},
    }
    admission = {"uid": "u", "operation": "CREATE", "namespace": "jobs", "object": pod}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": admission}


BENCHMARKS = {
    "webhook": Benchmark("webhook: 500 pod creations a second", "p99 5 ms", latency),
}
