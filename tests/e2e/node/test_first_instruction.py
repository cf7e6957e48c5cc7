"""Settings of a container are in effect before its first instruction.

Each pod prints its own cgroup with its first commands; the reconciler, which runs once a second,
would be too late.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.node.conftest import StartAgent
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.colocation import batch_resources, publish_batch_resources
from tests.e2e.real_node.node import CGROUPS, Manifest, pod
from tests.e2e.waiting import eventually

if not (CGROUPS / "cpu").is_dir():
    pytest.skip("these pods read the files of cgroup v1", allow_module_level=True)

Words = dict[str, str]

STATUS = "scheduling.koordinator.sh/resource-status"
EXTENDED = "node.koordinator.sh/extended-resource-spec"
RATIO = "node.koordinator.sh/cpu-normalization-ratio"
_PRINTER = """echo cpus=$(grep Cpus_allowed_list /proc/self/status | cut -f2)
echo shares=$(cat /sys/fs/cgroup/cpu/cpu.shares)
echo quota=$(cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us)
echo memory=$(cat /sys/fs/cgroup/memory/memory.limit_in_bytes)
echo pod_quota=$(cat /machine/cpu/kubepods/besteffort/pod$UID/cpu.cfs_quota_us 2> /dev/null)
echo variable=${VARIABLE-none}
echo done
sleep 2147483647"""
_UID = {"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}


def printer(name: str, qos: str, **more: Any) -> Manifest:
    """Return a pod with a QoS class that prints what it is held to."""
    mount = {"name": "cgroups", "mountPath": "/machine", "readOnly": True}
    return pod(
        name,
        _PRINTER,
        labels={"koordinator.sh/qosClass": qos} if qos else {},
        container={"env": [_UID], "volumeMounts": [mount]},
        volumes=[{"name": "cgroups", "hostPath": {"path": str(CGROUPS)}}],
        **more,
    )


def first_words(node: RealNode, made: Manifest) -> Words:
    """Return what the container read as its first commands."""
    printed = eventually(lambda: text if "done" in (text := node.printed(made)) else "")
    return dict(line.split("=") for line in printed.splitlines() if "=" in line)


def amounts(cpu: str, memory: str) -> dict[str, Any]:
    """Return resources of a Guaranteed pod."""
    each = {"cpu": cpu, "memory": memory}
    return {"requests": each, "limits": each}


@pytest.mark.usefixtures("group_identity")
def test_pods_of_every_class_start_right(
    start_agent: StartAgent, node: RealNode, controlplane: ControlPlane
) -> None:
    """A pod of each class starts after the other; no setting needs correction afterwards."""
    node_path = f"/api/v1/nodes/{node.name}"
    annotated = {"metadata": {"annotations": {RATIO: "1.25"}}}
    merge = "application/merge-patch+json"
    controlplane.api.request("PATCH", node_path, annotated, content_type=merge)
    agent = start_agent()

    status = {STATUS: json.dumps({"cpuset": "1"})}
    (bound,) = node.run(printer("bound", "LSR", annotations=status, resources=amounts("1", "32Mi")))
    words = first_words(node, bound)
    assert (words["cpus"], words["quota"], words["shares"]) == ("1", "-1", "1024")

    half = {"requests": {"cpu": "250m"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
    (shared,) = node.run(printer("shared", "LS", resources=half))
    words = first_words(node, shared)
    assert words["cpus"] == "0"  # without the other pod's CPU
    assert words["quota"] == "40000"  # 500m on CPUs that are worth 1.25
    assert (words["shares"], words["memory"]) == ("256", str(64 << 20))

    publish_batch_resources(controlplane, node)
    (job,) = node.run(printer("job", "BE", **batch_resources(500, 48 << 20)))
    words = first_words(node, job)
    assert (words["shares"], words["quota"], words["memory"]) == ("512", "40000", str(48 << 20))
    assert words["pod_quota"] == "40000"

    plain = node.run(printer("plain", ""))[0]
    words = first_words(node, plain)
    assert (words["shares"], words["quota"]) == ("2", "-1")
    assert agent.metric('koordlet_resource_updates{node="real-node",status="failed",'
                        'type="hook"}') == 0  # fmt: skip


def test_container_starts_unadjusted_without_the_plugin(
    start_agent: StartAgent, node: RealNode
) -> None:
    """Without the plugin the reconciler adjusts the container a moment after its start."""
    start_agent("--enable-nri-runtime-hook=false", is_called=False)
    status = {STATUS: json.dumps({"cpuset": "1"})}
    (late,) = node.run(printer("late", "LSR", annotations=status, resources=amounts("1", "32Mi")))
    assert first_words(node, late)["quota"] == "100000"
    eventually(
        lambda: node.exec(late, "cat", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us").strip() == "-1"
    )


def test_resized_container_keeps_its_settings(
    start_agent: StartAgent, node: RealNode, controlplane: ControlPlane
) -> None:
    """The kubelet updates its limits in place; bound CPUs still need no quota."""
    start_agent()
    status = {STATUS: json.dumps({"cpuset": "1"})}
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    (made,) = node.run(printer("grows", "LSR", annotations=status, resources=resources))
    assert first_words(node, made)["quota"] == "-1"
    more = {"requests": {"cpu": "1200m"}, "limits": {"cpu": "1200m"}}
    patch = {"spec": {"containers": [{"name": "main", "resources": more}]}}
    path = "/api/v1/namespaces/default/pods/grows/resize"
    strategic = "application/strategic-merge-patch+json"
    controlplane.api.request("PATCH", path, patch, content_type=strategic)

    def value(name: str) -> str:
        return node.exec(made, "cat", f"/sys/fs/cgroup/cpu/{name}").strip()

    eventually(lambda: value("cpu.shares") == "1228")
    assert value("cpu.cfs_quota_us") == "-1"
    assert node.exec(made, "grep", "Cpus_allowed_list", "/proc/self/status").split()[1] == "1"


def test_hostile_annotations_cost_their_own_pod_no_start(
    start_agent: StartAgent, node: RealNode, kubectl: Callable[..., str]
) -> None:
    """Missing CPUs, invalid JSON, a huge value: the pod starts, and an event has the reason."""
    start_agent()
    hostile = {
        "elsewhere": {STATUS: json.dumps({"cpuset": "4000-4095"})},
        "garbage": {STATUS: "{" * 1000, EXTENDED: "[]"},
        "large": {STATUS: json.dumps({"cpuset": ",".join(["0"] * 100_000)})},
        "upwards": {EXTENDED: json.dumps({"containers": {"../../..": {"limits": {"a": "1"}}}})},
    }
    one = amounts("1", "32Mi")
    requests = {"elsewhere": {"resources": one}}  # a pod that requests no CPU gets none of its own
    made = node.run(
        *(
            printer(name, "LS", annotations=each, **requests.get(name, {}))
            for name, each in hostile.items()
        )
    )
    for each in made:
        assert first_words(node, each)["shares"]
    events = eventually(
        lambda: (
            listed
            if "RuntimeHookFailed" in (listed := kubectl("get", "events", "--output=wide"))
            else ""
        )
    )
    assert "pod/elsewhere" in events
    node.delete_pods()
    status = {STATUS: json.dumps({"cpuset": "1"})}
    (good,) = node.run(printer("good", "LSR", annotations=status, resources=one))
    assert first_words(node, good)["cpus"] == "1"


def test_a_share_of_a_gpu_comes_with_its_limits(
    start_agent: StartAgent, node: RealNode, tmp_path: Path
) -> None:
    """The container sees its GPU, and the library that holds it to its share is in place."""
    library = tmp_path / "vgpu/libvgpu.so"
    library.parent.mkdir()
    library.write_text("a library")
    gates = "--feature-gates=GPUEnvInject=true,HamiCoreVGPUMonitor=true"
    start_agent(gates, f"--hami-core-library-directory-path={library}")
    amounts = {"gpu-core": "25", "gpu-memory": "10Gi", "gpu-memory-ratio": "25"}
    resources = {f"koordinator.sh/{name}": amount for name, amount in amounts.items()}
    allocated = json.dumps({"gpu": [{"minor": 1, "resources": resources}]})
    script = f"env; cat {library}; echo; echo x > {library} || echo read-only; echo done; sleep 99"
    labels = {
        "koordinator.sh/qosClass": "LS",
        "koordinator.sh/gpu-isolation-provider": "HAMi-core",
    }
    shares = {"scheduling.koordinator.sh/device-allocated": allocated}
    del resources["koordinator.sh/gpu-memory"]  # a pod requests either bytes or percent
    requirements = {"requests": resources, "limits": resources}
    (made,) = node.run(
        pod("shares", script, labels=labels, annotations=shares, resources=requirements)
    )
    words = eventually(lambda: text if "done" in (text := node.printed(made)) else "").splitlines()
    assert {
        "NVIDIA_VISIBLE_DEVICES=1",
        "CUDA_DEVICE_SM_LIMIT=25",
        f"CUDA_DEVICE_MEMORY_LIMIT={10 << 30}",
        f"LD_PRELOAD={library}",
        "a library",
        "read-only",
    } <= set(words)
    assert (library.parent / f"containers/{made['metadata']['uid']}_main").is_dir()
