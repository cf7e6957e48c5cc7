"""Containers that started while the agent was away have no GPU variables and no limits."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.nodes import pod
from tests.unit.koordlet.app.world import World

from koordinator.api.event import Event
from koordinator.host.nri.messages import (
    NriContainer,
    NriPod,
    NriPodLinux,
    SynchronizeRequest,
    SynchronizeResponse,
)
from koordinator.host.nri.session import NriCall
from koordinator.koordlet.adjustments import UnpreparedPolicy
from koordinator.koordlet.app.device_hooks import device_expectations
from koordinator.koordlet.app.options import gates_of
from koordinator.koordlet.hooks.devices import HamiCoreSettings
from koordinator.koordlet.runtime_hooks.nri_plugin import NriHookPlugin
from koordinator.koordlet.runtime_hooks.runtime_hooks import RuntimeHooks
from koordinator.koordlet.view.pods import PodView

RUNNING, STOPPED = 3, 4
LIBRARY = HamiCoreSettings().library
GPU = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
SHARE = GPU | {"koordinator.sh/gpu-memory": "8Gi"}
ALLOCATED = {
    "scheduling.koordinator.sh/device-allocated": json.dumps(
        {"gpu": [{"minor": 1, "id": "GPU-1", "resources": SHARE}]}
    )
}
HAMI = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
RIGHT = {
    "NVIDIA_VISIBLE_DEVICES": "1",
    "CUDA_DEVICE_MEMORY_LIMIT": str(8 << 30),
    "CUDA_DEVICE_SM_LIMIT": "50",
    "LD_PRELOAD": f"{LIBRARY}:/own.so",
}


class Runtime:
    """A container runtime that can be asked to end containers."""

    def __init__(self) -> None:
        self.stopped: list[tuple[str, str, int]] = []

    def reaches(self, container_id: str) -> bool:
        """Return that all are reached."""
        return bool(container_id)

    def stop(self, pod_uid: str, container_id: str, grace_s: int) -> None:
        """Note which container was ended."""
        self.stopped.append((pod_uid, container_id, grace_s))


class Site:
    """A node with a pod that has half a GPU, and an agent that comes back."""

    def __init__(self, policy: UnpreparedPolicy, restart_policy: str = "Always") -> None:
        gates = gates_of({"GPUEnvInject": True, "Accelerators": True})
        self.world = World(gates=gates, unprepared_containers=policy)
        amounts: dict[str, Any] = {**GPU, "koordinator.sh/gpu.shared": 1}
        made = pod("train", requests=amounts, limits=amounts, labels=HAMI, annotations=ALLOCATED)
        spec = replace(made.spec, restart_policy=restart_policy)
        self.view: PodView = self.world.add(replace(made, spec=spec))
        self.runtime = Runtime()
        world = self.world
        self.hooks = RuntimeHooks(
            world.clock,
            world.tree.host,
            world.tree.roots,
            world.tree.cgroups,
            expectations=device_expectations(gates, HamiCoreSettings(), lambda _: ()),
        )
        world.agent = world.start(runtime_hooks=self.hooks, container_runtime=self.runtime)
        world.seconds(2)
        self.plugin = NriHookPlugin(self.hooks)

    def connect(self, env: dict[str, str], state: int = RUNNING) -> list[str]:
        """Synchronize the runtime's containers with the plugin; return the notes of events."""
        meta = self.view.pod.metadata
        sandbox = NriPod(
            id="sandbox",
            name=meta.name,
            uid=str(meta.uid),
            namespace=meta.namespace,
            labels=dict(meta.labels),
            annotations=dict(meta.annotations),
            linux=NriPodLinux(cgroup_parent=f"/{self.view.folder}"),
        )
        container = NriContainer(
            id=self.view.containers[0].id.rpartition("/")[2],
            pod_sandbox_id="sandbox",
            name="c0",
            state=state,
            env=tuple(f"{name}={value}" for name, value in env.items()),
        )
        first = SynchronizeRequest(pods=(sandbox,), more=True)
        last = SynchronizeRequest(containers=(container,))
        for request in (first, last):
            call = NriCall(1, "Synchronize", request)
            assert self.plugin.answer(call) == SynchronizeResponse(more=request.more)
        self.world.seconds(2)
        self.world.outbox.deliver(self.world.cluster)
        events = self.world.cluster.list(Event).items
        return [each.note for each in events if each.reason == "StartedWithoutRuntimeHook"]


@pytest.mark.parametrize(
    ("env", "missing"),
    [
        (RIGHT, ""),
        ({}, "CUDA_DEVICE_MEMORY_LIMIT, CUDA_DEVICE_SM_LIMIT, LD_PRELOAD, NVIDIA_VISIBLE_DEVICES"),
        (RIGHT | {"NVIDIA_VISIBLE_DEVICES": "all"}, "NVIDIA_VISIBLE_DEVICES"),
        (RIGHT | {"LD_PRELOAD": "/own.so"}, "LD_PRELOAD"),
    ],
)
def test_container_without_the_hooks_variables_is_reported(
    env: dict[str, str], missing: str
) -> None:
    """Once, with their names; an image may say that it sees all GPUs."""
    site = Site(UnpreparedPolicy.REPORT)

    notes = site.connect(env)
    assert site.connect(env) == notes

    why = "it was created while the node agent was unavailable"
    assert notes == ([f"container c0 runs without {missing}: {why}"] if missing else [])
    assert site.runtime.stopped == []


def test_a_container_that_has_ended_is_no_matter() -> None:
    """An ended container is not restarted."""
    assert Site(UnpreparedPolicy.REPORT).connect({}, STOPPED) == []


@pytest.mark.parametrize(
    ("restart_policy", "is_ended"), [("Always", True), ("", True), ("Never", False)]
)
def test_by_policy_restart_the_kubelet_creates_it_again(
    restart_policy: str, *, is_ended: bool
) -> None:
    """A pod that is never restarted would fail: it is reported alone."""
    site = Site(UnpreparedPolicy.RESTART, restart_policy)
    ended = site.world.agent._hook_reports
    assert ended is not None
    ended.unprepared._start = lambda work: work()

    (note,) = site.connect({})

    assert note.endswith("it is restarted") is is_ended
    (container,) = site.view.containers
    wanted = [(str(site.view.uid), container.id, 30)] if is_ended else []
    assert site.runtime.stopped == wanted
