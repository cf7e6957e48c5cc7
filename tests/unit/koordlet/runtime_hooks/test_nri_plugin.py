"""The runtime's questions, in its own messages, and what comes back."""

import json

from tests.nodes import pod
from tests.unit.koordlet.runtime_hooks.test_runtime_hooks import Runtime, batch, cpuset

from koordinator.host.nri.messages import (
    ConfigureRequest,
    ConfigureResponse,
    CreateContainerRequest,
    CreateContainerResponse,
    NriContainer,
    NriContainerLinux,
    NriCpu,
    NriEvent,
    NriMemory,
    NriPod,
    NriPodLinux,
    NriResources,
    NriUpdate,
    NriUpdateLinux,
    StateChangeEvent,
    SynchronizeRequest,
    SynchronizeResponse,
    UpdateContainerRequest,
    UpdateContainerResponse,
)
from koordinator.host.nri.session import NriCall
from koordinator.koordlet.runtime_hooks.nri_plugin import NriHookPlugin

LSR = {"koordinator.sh/qosClass": "LSR"}


def call(method: str, request: object) -> NriCall:
    """Return a call."""
    return NriCall(1, method, request)


def sandbox(name: str, labels: dict[str, str], annotations: dict[str, str], tier: str) -> NriPod:
    """Return a pod in containerd's form."""
    uid = f"uid-{name}"
    linux = NriPodLinux(cgroup_parent=f"/kubepods{tier}/pod{uid}")
    return NriPod(
        id="s", name=name, uid=uid, namespace="default", labels=labels,
        annotations=annotations, linux=linux,
    )  # fmt: skip


def test_container_gets_the_resources_of_its_pod() -> None:
    """CPUs of its own and no quota; a batch job gets shares, quota and memory."""
    runtime = Runtime()
    runtime.tree.add_pod(pod("a", "LSR", requests={"cpu": 1}, limits={"cpu": 1, "memory": 1}))
    plugin = NriHookPlugin(runtime.hooks)
    limits = NriResources(cpu=NriCpu(quota=100_000, period=100_000, shares=1024))
    nri_container = NriContainer(id="c", name="c0", env=("A=b", "EMPTY="),
                        linux=NriContainerLinux(resources=limits))  # fmt: skip
    own = sandbox("a", LSR, cpuset("1-2"), "")
    answer = plugin.answer(
        call("CreateContainer", CreateContainerRequest(pod=own, container=nri_container))
    )
    assert isinstance(answer, CreateContainerResponse)
    assert answer.adjust is not None
    assert answer.adjust.linux is not None
    assert answer.adjust.linux.resources == NriResources(cpu=NriCpu(quota=-1, cpus="1-2"))

    job = sandbox("b", {"koordinator.sh/qosClass": "BE"}, batch(500, 1 << 20), "/besteffort")
    answer = plugin.answer(call("CreateContainer", CreateContainerRequest(
        pod=job, container=NriContainer(id="d", name="c0"))))  # fmt: skip
    assert isinstance(answer, CreateContainerResponse)
    assert answer.adjust is not None
    assert answer.adjust.linux is not None
    assert answer.adjust.linux.resources == NriResources(
        cpu=NriCpu(shares=512, quota=50_000, period=100_000), memory=NriMemory(limit=1 << 20)
    )


def test_an_update_names_its_container() -> None:
    """Without its id the runtime would not know whose limits these are."""
    runtime = Runtime()
    runtime.tree.add_pod(pod("a", "LSR", requests={"cpu": 1}))
    plugin = NriHookPlugin(runtime.hooks)
    own = sandbox("a", LSR, cpuset("1"), "/burstable")
    request = UpdateContainerRequest(
        pod=own,
        container=NriContainer(id="c", name="c0"),
        linux_resources=NriResources(cpu=NriCpu(quota=200_000, period=100_000)),
    )
    kept = NriResources(cpu=NriCpu(quota=-1, cpus="1"))
    assert plugin.answer(call("UpdateContainer", request)) == UpdateContainerResponse(
        update=(NriUpdate(container_id="c", linux=NriUpdateLinux(resources=kept)),)
    )
    of_none = UpdateContainerRequest(
        pod=sandbox("x", {}, {}, "/besteffort"), container=NriContainer(id="x", name="x")
    )
    assert plugin.answer(call("UpdateContainer", of_none)) == UpdateContainerResponse()


def test_plugin_subscribes_to_its_events_unless_configured() -> None:
    """The mask is the original's; the runtime's configuration of the plugin may name others."""
    plugin = NriHookPlugin(Runtime().hooks)
    for config, mask in (
        ("", 141),
        ("events: [CreateContainer, RunPodSandbox]", 0b1001),
        ("events: [CREATE_CONTAINER, nonsense]", 0b1000),
        ("{", 141),
        ("[1, 2]", 141),
    ):
        answer = plugin.answer(call("Configure", ConfigureRequest(config=config)))
        assert answer == ConfigureResponse(events=mask), config
    part = plugin.answer(call("Synchronize", SynchronizeRequest(more=True)))
    assert part == SynchronizeResponse(more=True)


def test_unanswerable_call_changes_nothing() -> None:
    """The failure names the pod and the container where they are known."""
    runtime = Runtime()
    plugin = NriHookPlugin(runtime.hooks)
    own = sandbox("a", LSR, {}, "")
    request = CreateContainerRequest(pod=own, container=NriContainer(name="main"))
    late = plugin.give_up(call("CreateContainer", request), "no answer within 0.5 s")
    assert late == CreateContainerResponse()
    torn = plugin.give_up(NriCall(3, "UpdateContainer", None, "torn"), "torn")
    assert torn == UpdateContainerResponse()
    first, second = runtime.failures()
    assert first.owner == "default/a/main"
    assert (second.owner, second.error) == ("/", "torn")


def test_removed_pod_is_forgotten() -> None:
    """The CPUs of the removed pod are available again."""
    runtime = Runtime()
    runtime.tree.add_pod(pod("a", "LSR"))
    runtime.tree.add_pod(pod("b", "LS", requests={"cpu": 1}))
    plugin = NriHookPlugin(runtime.hooks)
    own = sandbox("a", LSR, {"scheduling.koordinator.sh/resource-status": json.dumps(
        {"cpuset": "1"})}, "/besteffort")  # fmt: skip
    other = sandbox("b", {"koordinator.sh/qosClass": "LS"}, {}, "/burstable")
    create = CreateContainerRequest(pod=other, container=NriContainer(id="c", name="c0"))

    def cpus() -> str:
        answer = plugin.answer(call("CreateContainer", create))
        assert isinstance(answer, CreateContainerResponse)
        assert answer.adjust is not None
        assert answer.adjust.linux is not None
        assert answer.adjust.linux.resources is not None
        assert answer.adjust.linux.resources.cpu is not None
        return answer.adjust.linux.resources.cpu.cpus

    run = StateChangeEvent(event=NriEvent.RUN_POD_SANDBOX, pod=own)
    remove = StateChangeEvent(event=NriEvent.REMOVE_POD_SANDBOX, pod=own)
    plugin.answer(call("StateChange", run))
    assert cpus() == "0,2-7"
    plugin.answer(call("StateChange", remove))
    assert cpus() == "0-7"
