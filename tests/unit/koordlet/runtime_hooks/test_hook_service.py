"""A runtime proxy gets the same answers as the runtime itself, in its own messages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.nodes import pod
from tests.unit.koordlet.runtime_hooks.test_runtime_hooks import Runtime, batch, cpuset

from koordinator.foundation.protobuf import decode_message, encode_message
from koordinator.host.linux.hook_server import HookServer, HookServerSettings
from koordinator.koordlet.adjustments import FailurePolicy
from koordinator.koordlet.runtime_hooks.hook_service import (
    SERVICE,
    STAGES,
    ContainerResourceHookRequest,
    ContainerResourceHookResponse,
    HookContainerMetadata,
    HookPodMetadata,
    HookResources,
    HookService,
    PodSandboxHookRequest,
    PodSandboxHookResponse,
)

META = HookPodMetadata(name="a", uid="uid-a", namespace="default")
LSR, BE = {"koordinator.sh/qosClass": "LSR"}, {"koordinator.sh/qosClass": "BE"}
OWN = ContainerResourceHookRequest(
    pod_meta=META,
    container_meta=HookContainerMetadata(name="c0"),
    container_annotations={"kept": "yes"},
    container_resources=HookResources(cpu_quota=100_000, cpu_period=100_000, oom_score_adj=-997),
    pod_annotations=cpuset("1"),
    pod_labels=LSR,
    pod_cgroup_parent="/kubepods/poduid-a",
    container_envs={"A": "b"},
)
OWN_ANSWER = ContainerResourceHookResponse(
    container_annotations={"kept": "yes"},
    container_resources=HookResources(
        cpu_quota=-1, cpu_period=100_000, cpuset_cpus="1", oom_score_adj=-997
    ),
    pod_cgroup_parent="/kubepods/poduid-a",
    container_envs={"A": "b"},
)


def runtime(policy: FailurePolicy = FailurePolicy.IGNORE) -> Runtime:
    """Return a node with a Guaranteed pod ``a``."""
    made = Runtime(policy=policy)
    amounts: dict[str, str | int] = {"cpu": 1, "memory": "1Gi"}
    made.tree.add_pod(pod("a", "LSR", requests=amounts, limits=amounts))
    return made


def ask(of: Runtime, method: str, request: object) -> Any:
    """Return what the service answers."""
    declared, answer = HookService(of.hooks).methods[method]
    assert isinstance(request, declared)
    return answer(request)


def test_response_contains_the_request_and_our_changes() -> None:
    """A proxy replaces what it sent: nothing of it may be lost."""
    assert ask(runtime(), "PreCreateContainerHook", OWN) == OWN_ANSWER
    assert ask(runtime(), "PreUpdateContainerResourcesHook", OWN) == OWN_ANSWER


def test_a_pod_of_batch_resources_has_them_in_its_sandbox() -> None:
    """The agent writes the pod's cgroup, too, as the runtime's own plugin does."""
    made = Runtime()
    view = made.tree.add_pod(pod("a", "BE"))
    hook_request = PodSandboxHookRequest(
        pod_meta=META, labels=BE, annotations=batch(500, 1 << 30), cgroup_parent=f"/{view.folder}"
    )
    answer = ask(made, "PreRunPodSandboxHook", hook_request)
    assert answer == PodSandboxHookResponse(
        labels=BE,
        annotations=batch(500, 1 << 30),
        cgroup_parent=f"/{view.folder}",
        resources=HookResources(
            cpu_shares=512, cpu_quota=50_000, cpu_period=100_000, memory_limit_in_bytes=1 << 30
        ),
    )
    assert ask(made, "PostStopPodSandboxHook", hook_request).resources is None


@pytest.mark.parametrize(
    "method", ["PreStartContainerHook", "PostStartContainerHook", "PostStopContainerHook"]
)
def test_stages_without_hooks_change_nothing(method: str) -> None:
    """A proxy may be configured to call stages without hooks, so these are answered."""
    answer = ask(runtime(), method, OWN)
    assert answer.container_resources == OWN.container_resources


@pytest.mark.slow
def test_proxy_calls_by_grpc(tmp_path: Path) -> None:
    """On a unix socket listed in the proxy's configuration; a rejected pod is an error."""
    grpc = pytest.importorskip("grpc", reason="the extra hook-server is not installed")
    made = runtime(FailurePolicy.FAIL)
    settings = HookServerSettings(
        address=f"{tmp_path}/koordlet.sock",
        host_endpoint="/var/run/koordlet/koordlet.sock",
        config_folder=f"{tmp_path}/hookserver.d",
        failure_policy="Ignore",
        stages=STAGES[:1],
    )
    server = HookServer(SERVICE, HookService(made.hooks).methods, settings)
    server.start()
    try:
        with grpc.insecure_channel(f"unix:{settings.address}") as channel:
            call: Callable[..., Any] = channel.unary_unary(
                f"/{SERVICE}/PreCreateContainerHook",
                request_serializer=encode_message,
                response_deserializer=lambda data: decode_message(
                    ContainerResourceHookResponse, data
                ),
            )
            assert call(OWN, timeout=60) == OWN_ANSWER
            hostile = ContainerResourceHookRequest(
                pod_meta=META, container_meta=OWN.container_meta, pod_annotations=cpuset("99"),
                pod_labels=LSR, pod_cgroup_parent=OWN.pod_cgroup_parent,
            )  # fmt: skip
            with pytest.raises(grpc.RpcError, match="CPUSetAllocator at PreCreateContainer"):
                call(hostile, timeout=60)
    finally:
        server.stop()
    assert (tmp_path / "hookserver.d/koordlet.json").read_text() == (
        '{"remote-endpoint": "/var/run/koordlet/koordlet.sock", "failure-policy": "Ignore", '
        '"runtime-hooks": ["PreRunPodSandbox"]}'
    )
