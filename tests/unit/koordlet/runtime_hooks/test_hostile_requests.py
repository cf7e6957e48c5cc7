"""Containers whose authors mean harm: each starts, with nothing but what it would have anyway.

From the bytes of the runtime to the bytes of the answer, with the device hooks of the agent.
"""

import json
import time
from functools import partial
from typing import Any

import pytest
from tests.nodes import Tree
from tests.unit.koordlet.runtime_hooks.test_runtime_hooks import Runtime

from koordinator.foundation.protobuf import decode_message, encode_message
from koordinator.host.nri.messages import (
    CreateContainerRequest,
    CreateContainerResponse,
    NriAdjustment,
    NriContainer,
    NriPod,
    NriPodLinux,
)
from koordinator.host.nri.session import (
    PLUGIN_STREAM,
    FrameReader,
    NriSession,
    TtrpcKind,
    TtrpcMessage,
    TtrpcReader,
    TtrpcRequest,
    TtrpcResponse,
    frames_of,
    pack_message,
)
from koordinator.koordlet.hooks.devices import HamiCoreSettings, gpu_adjustment
from koordinator.koordlet.runtime_hooks.nri_plugin import NriHookPlugin
from koordinator.koordlet.runtime_hooks.outcomes import HookFailure
from koordinator.koordlet.runtime_hooks.runtime_hooks import RuntimeHooks

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
SHARED = {"koordinator.sh/gpu-isolation-provider": "HAMi-core", "koordinator.sh/qosClass": "LSR"}
PART = {f"koordinator.sh/gpu-{name}": "25" for name in ("core", "memory", "memory-ratio")}
GPU = json.dumps({"gpu": [{"minor": 0, "resources": PART}]})
LIBRARY = "/usr/local/vgpu/libvgpu.so"
MIB = 1 << 20
_MOST_S = 0.5  # what is answered later is given up


class Node:
    """A node with shares of GPUs, and a runtime that asks."""

    def __init__(self) -> None:
        self.runtime = Runtime(Tree())
        settings = HamiCoreSettings(LIBRARY, keeps_regions=True)
        hooks = {"GPUEnvInject": partial(gpu_adjustment, settings=settings)}
        old = self.runtime
        self.runtime.hooks = RuntimeHooks(
            old.clock, old.tree.host, old.tree.roots, old.tree.cgroups, creation_hooks=hooks
        )
        self.runtime.know()

    def create(self, **request: Any) -> tuple[NriAdjustment, list[HookFailure]]:
        """Send a request of the runtime; return the adjustment and the reported failures."""
        session = NriSession("koordlet_nri", "00")
        calls = list(session.receive(_frames(_request(**request))))
        (call,) = calls
        plugin = NriHookPlugin(self.runtime.hooks)
        began_s = time.thread_time()
        answer = session.answer(call.number, plugin.answer(call))
        assert time.thread_time() - began_s < _MOST_S
        assert not self.runtime.tree.host.written
        return _adjustment(answer), self.runtime.failures()


def _request(
    annotations: dict[str, str] | None = None,
    env: tuple[str, ...] = (),
    uid: str = "0a-1b",
    name: str = "main",
) -> CreateContainerRequest:
    linux = NriPodLinux(cgroup_parent=f"/kubepods/besteffort/pod{uid}")
    return CreateContainerRequest(
        pod=NriPod(id="s", name="p", uid=uid, namespace="default", labels=SHARED,
                   annotations=annotations or {}, linux=linux),
        container=NriContainer(id="c", name=name, env=env),
    )  # fmt: skip


def _frames(request: CreateContainerRequest) -> bytes:
    envelope = TtrpcRequest(
        service="nri.pkg.api.v1alpha1.Plugin",
        method="CreateContainer",
        payload=encode_message(request),
    )
    message = TtrpcMessage(1, TtrpcKind.REQUEST, encode_message(envelope))
    return frames_of(PLUGIN_STREAM, pack_message(message))


def _adjustment(answer: bytes) -> NriAdjustment:
    reader = TtrpcReader()
    messages = [m for _, data in FrameReader().feed(answer) for m in reader.feed(data)]
    response = decode_message(TtrpcResponse, messages[0].data)
    assert response.status is None
    adjust = decode_message(CreateContainerResponse, response.payload).adjust
    assert adjust is not None
    return adjust


def test_an_honest_container_has_its_share() -> None:
    """The tests below remove parts of a container that gets its share."""
    adjust, failures = Node().create(annotations={ALLOCATED: GPU}, env=("PATH=/bin",))
    assert {it.key: it.value for it in adjust.env}["LD_PRELOAD"] == LIBRARY
    assert failures == []


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({"annotations": {ALLOCATED: GPU}, "name": "../../etc"}, "containers[].name"),
        ({"annotations": {ALLOCATED: GPU}, "name": "a/b"}, "containers[].name"),
        ({"annotations": {ALLOCATED: GPU}, "name": "x" * 300}, "containers[].name"),
        ({"annotations": {ALLOCATED: GPU}, "uid": "../../besteffort"}, "besteffort"),
        ({"annotations": {ALLOCATED: GPU}, "uid": "a_b"}, "got 'a_b'"),
        # Ten MiB of environment do not fit into a message of the runtime; what does fit is here.
        (
            {"annotations": {ALLOCATED: GPU}, "env": ("LD_PRELOAD=" + "/x" * MIB,)},
            "bytes per variable",
        ),
        (
            {"annotations": {ALLOCATED: GPU}, "env": (f"LD_PRELOAD={'/x' * (64 << 10)}",)},
            "bytes per variable",
        ),
        ({"annotations": {ALLOCATED: "[" * (3 * MIB)}}, "device-allocated"),
        ({"annotations": {ALLOCATED: '{"gpu": [' + '{"minor": 0},' * 200_000 + "{}]}"}}, "device"),
        (
            {"annotations": {ALLOCATED: '{"gpu": [{"minor": ' + "9" * 5000 + "}]}"}},
            "device-allocated",
        ),
        ({"annotations": {ALLOCATED: '{"gpu": [{"minor": -1}]}'}}, "got -1"),
        (
            {"annotations": {ALLOCATED: '{"gpu": [{"minor": 0, "resources": {"koordinator.sh/'
                                        'gpu-memory-ratio": "0"}}]}'}},
            "for a shared GPU",
        ),
    ],
)  # fmt: skip
def test_container_with_hostile_input_starts_unadjusted(request_: Any, problem: str) -> None:
    """Without our variables and mounts, and the agent reports the reason."""
    adjust, failures = Node().create(**request_)
    assert adjust.mounts == ()
    assert adjust.env == ()
    assert any(problem in failure.error for failure in failures), failures


@pytest.mark.parametrize(
    "env",
    [
        ("CUDA_DEVICE_MEMORY_SHARED_CACHE=/etc/passwd",),
        ("CUDA_DEVICE_MEMORY_LIMIT=0", "CUDA_DEVICE_SM_LIMIT=0"),
        ("CUDA_DEVICE_MEMORY_LIMIT_0=0", "CUDA_DEVICE_SM_LIMIT_0=100"),
        ("NVIDIA_VISIBLE_DEVICES=all",),
        ("LD_PRELOAD=",),
        ("=x", "NO_VALUE", "A=b=c", "\x7f=\x01"),
        tuple(f"V{n}={'x' * 1000}" for n in range(3000)),
    ],
)
def test_no_variable_of_its_own_lifts_a_limit(env: tuple[str, ...]) -> None:
    """Our variables override the spec's, and only the library and its folders are mounted."""
    adjust, failures = Node().create(annotations={ALLOCATED: GPU}, env=env)
    result = {it.key: it.value for it in adjust.env}
    assert result["NVIDIA_VISIBLE_DEVICES"] == "0"
    assert result["CUDA_DEVICE_MEMORY_SHARED_CACHE"].startswith("/usr/local/vgpu/")
    limits = {key: value for key, value in result.items() if "_LIMIT" in key}
    assert {key.removesuffix("_0"): value for key, value in limits.items()} == {
        "CUDA_DEVICE_MEMORY_LIMIT": "25",
        "CUDA_DEVICE_SM_LIMIT": "25",
    }
    assert result["LD_PRELOAD"].split(":")[0] == LIBRARY
    assert {it.source for it in adjust.mounts} == {
        LIBRARY,
        "/tmp/vgpulock",  # noqa: S108 -- where HAMi-core has it
        "/usr/local/vgpu/containers/0a-1b_main",
    }
    assert failures == []
