"""A container starts with the settings that the reconciler would apply; and it always starts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.memory_host import MemoryHost
from tests.nodes import LAYOUT, START_S, Tree, machine, pod, slo

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.clock import VirtualClock
from koordinator.koordlet.adjustments import ContainerAdjustment, FailurePolicy, LinuxResources
from koordinator.koordlet.app.object_intents import plan_all
from koordinator.koordlet.app.rounds import PodIsolation
from koordinator.koordlet.hooks.pod_hooks import PodHooks, limits_of
from koordinator.koordlet.metrics import MetricStore
from koordinator.koordlet.qos.cpu_burst import CpuBurst
from koordinator.koordlet.qos.eviction import StrategyInputs
from koordinator.koordlet.qos.resctrl import ResctrlFacts
from koordinator.koordlet.runtime_hooks.outcomes import (
    HookFailure,
    HookWrites,
    StartingContainer,
    StartingPod,
)
from koordinator.koordlet.runtime_hooks.runtime_hooks import (
    HookError,
    PublishedHooks,
    RuntimeHooks,
)
from koordinator.koordlet.view.pods import PodView

STATUS = "scheduling.koordinator.sh/resource-status"
EXTENDED = "node.koordinator.sh/extended-resource-spec"
RATIO = "node.koordinator.sh/cpu-normalization-ratio"
GATES = frozenset({"GroupIdentity", "CPUSetAllocator", "BatchResource", "CPUNormalization"})
ON = {"cpuQOS": {"enable": True}}
ALL_ON = slo(resourceQOSStrategy={"lsrClass": ON, "lsClass": ON, "beClass": ON})


def cpuset(text: str) -> dict[str, str]:
    """Return the annotation with which the scheduler gives CPUs."""
    return {STATUS: json.dumps({"cpuset": text})}


def batch(milli: int, memory: int, container: str = "c0") -> dict[str, str]:
    """Return the annotation of batch resources, as the webhook writes it."""
    amounts = {"kubernetes.io/batch-cpu": str(milli), "kubernetes.io/batch-memory": str(memory)}
    result = {"containers": {container: {"requests": amounts, "limits": amounts}}}
    return {EXTENDED: json.dumps(result)}


@dataclass
class Runtime:
    """A node whose container runtime asks."""

    tree: Tree = field(default_factory=Tree)
    gates: frozenset[str] = GATES
    policy: FailurePolicy = FailurePolicy.IGNORE
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = VirtualClock(START_S)
        self.hooks = RuntimeHooks(
            self.clock, self.tree.host, self.tree.roots, self.tree.cgroups, policy=self.policy
        )
        self.know()

    def know(self, *pods: PodView, caches: ResctrlFacts | None = None) -> None:
        """Publish these pods."""
        self.view = self.tree.view(
            *pods, machine_=machine(annotations=self.annotations), slo=ALL_ON
        )
        hooks = PodHooks.of(self.view, self.gates)
        self.hooks.publish(PublishedHooks(hooks, caches))

    def failures(self) -> list[HookFailure]:
        """Return the failures reported to the loop."""
        return [each for each in self.hooks.outcomes.take() if isinstance(each, HookFailure)]


def starting(view: PodView) -> StartingPod:
    """Return a pod in the runtime's form."""
    meta = view.pod.metadata
    return StartingPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        annotations=meta.annotations,
        cgroup_parent=f"/{view.folder}",
    )


def container(view: PodView, limits: LinuxResources | None = None) -> StartingContainer:
    """Return the first container of a pod in the runtime's form."""
    spec = view.containers[0]
    quota = spec.cpu_limit_milli * 100 or None
    return StartingContainer(
        name=spec.name,
        id=spec.id.rpartition("/")[2],
        env={},
        limits=limits or LinuxResources(cpu_quota_us=quota),
    )


@st.composite
def pods(draw: st.DrawFn, *cpu_lists: str) -> dict[str, Any]:
    """Draw a pod that has promises of every kind, as many as it requests."""
    requests: dict[str, int | str] = {}
    qos = draw(st.sampled_from(["", "LSE", "LSR", "LS", "BE", "SYSTEM"]))
    annotations: dict[str, str] = {}
    if draw(st.booleans()):
        annotations |= cpuset(draw(st.sampled_from(["", *cpu_lists, "x"])))
        requests["cpu"] = 2
    if draw(st.booleans()):
        milli, memory = draw(st.integers(0, 4000)), draw(st.integers(0, 1 << 33))
        annotations |= batch(milli, memory)
        requests |= {"kubernetes.io/batch-cpu": milli, "kubernetes.io/batch-memory": memory}
    if draw(st.booleans()):
        annotations[STATUS] = json.dumps(
            {"numaNodeResources": [{"node": 0, "resources": {"cpu": "1"}}]}
        )
        requests["cpu"] = 2
    limit = draw(st.none() | st.integers(1, 8))
    limits = {} if limit is None or qos == "BE" else {"cpu": limit, "memory": "1Gi"}
    return {
        "qos": qos,
        "annotations": annotations,
        "limits": limits,
        "requests": limits | requests,
    }


@pytest.mark.slow
@given(pods("1", "2-3"), pods("0,7", "4"), st.sampled_from([{}, {RATIO: "1.35"}]), st.booleans())
def test_the_start_and_the_reconciler_agree(
    one: dict[str, Any], other: dict[str, Any], annotations: dict[str, str], is_known: bool
) -> None:
    """The hook and the reconciler share a plan, also for a pod that the watch has not delivered."""
    runtime = Runtime(annotations=annotations)
    view = runtime.tree.add_pod(pod("a", **one))
    neighbour = runtime.tree.add_pod(pod("b", **other))
    runtime.know(*([view] if is_known else []), neighbour)

    adjusted = runtime.hooks.create_container(starting(view), container(view))

    runtime.know(view, neighbour)
    reconciled = plan_all(
        runtime.view, GATES, MemoryDisks(), None, PodIsolation(None), keep_quota=False
    )
    quotas = CpuBurst(np.random.default_rng(1), bursts=False, normalizes=True, frees_bound=True)
    reconciled += quotas.plan(StrategyInputs(runtime.view, MetricStore(60, 1)))
    assert adjusted.resources == limits_of(reconciled, view.containers[0].folder)
    assert runtime.failures() == []


class MemoryDisks:
    """A machine whose volumes have no disks."""

    def of_device(self, name: str) -> None:
        """Return that there is none."""

    def of_volume_group(self, group: str) -> None:
        """Return that there is none."""

    def of_pod_volume(self, pod: PodView, volume: str) -> None:
        """Return that there is none."""


def test_the_pod_has_its_own_values_before_its_first_container() -> None:
    """Quota, shares, memory and identity of the pod's cgroup are written at its sandbox."""
    runtime = Runtime()
    view = runtime.tree.add_pod(pod("a", "BE", annotations=batch(500, 1 << 30)))
    runtime.hooks.run_sandbox(starting(view))
    read = {
        file: runtime.tree.cgroups.read(file, view.folder).strip()
        for file in (CgroupFile.CPU_SHARES, CgroupFile.CFS_QUOTA, CgroupFile.MEMORY_LIMIT,
                     CgroupFile.BVT_WARP)
    }  # fmt: skip
    assert list(read.values()) == ["512", "50000", str(1 << 30), "-1"]
    (writes,) = runtime.hooks.outcomes.take()
    assert isinstance(writes, HookWrites)
    assert {write.intent.folder for write in writes.writes} == {view.folder}


def test_starting_pod_avoids_bound_cpus_of_another_starting_pod() -> None:
    """The agent knows the bound CPUs before the watch delivers either pod."""
    runtime = Runtime()
    own = runtime.tree.add_pod(pod("own", "LSR", annotations=cpuset("2-3")))
    shared = runtime.tree.add_pod(pod("shared", "LS", requests={"cpu": 1}))
    runtime.hooks.run_sandbox(starting(own))
    result = runtime.hooks.create_container(starting(shared), container(shared))
    assert result.resources.cpuset_cpus == "0-1,4-7"
    runtime.hooks.remove_sandbox(starting(own))
    result = runtime.hooks.create_container(starting(shared), container(shared))
    assert result.resources.cpuset_cpus == "0-7"


def test_started_pod_that_is_never_listed_releases_its_cpus() -> None:
    """A container whose pod is not listed within five minutes holds no CPUs."""
    runtime = Runtime()
    own = runtime.tree.add_pod(pod("own", "LSR", annotations=cpuset("2-3")))
    shared = runtime.tree.add_pod(pod("shared", "LS", requests={"cpu": 1}))
    runtime.hooks.run_sandbox(starting(own))
    runtime.clock.advance_to(START_S + 301)
    runtime.know()
    result = runtime.hooks.create_container(starting(shared), container(shared))
    assert result.resources.cpuset_cpus == "0-7"


@pytest.mark.parametrize("cpus", ["0-63", "8"])
def test_invalid_cpus_are_left_out(cpus: str) -> None:
    """The container starts on its default CPUs, and the reason is reported."""
    runtime = Runtime()
    view = runtime.tree.add_pod(pod("a", "LSR", annotations=cpuset(cpus)))
    result = runtime.hooks.create_container(starting(view), container(view))
    assert result.resources == LinuxResources(cpu_quota_us=-1)
    (failure,) = runtime.failures()
    assert failure.note == (
        f"CPUSetAllocator at PreCreateContainer: CPUs {cpus} are not a subset of the "
        "machine's and the pod's CPUs; the container c0 started without it; it is reconciled later"
    )


@pytest.mark.parametrize("uid", ["../../x", "", "a/b", "x" * 300])
def test_hostile_uid_changes_no_file(uid: str) -> None:
    """No file is written, and the pod starts."""
    runtime = Runtime()
    hostile = StartingPod(
        namespace="default", name="a", uid=uid, labels={"koordinator.sh/qosClass": "BE"},
        annotations=batch(500, 1 << 30), cgroup_parent="/kubepods/besteffort/podx",
    )  # fmt: skip
    starting_container = StartingContainer(name="c0", id="../..", env={})
    runtime.hooks.run_sandbox(hostile)
    assert runtime.hooks.create_container(hostile, starting_container) == ContainerAdjustment()
    assert runtime.hooks.update_container(hostile, starting_container) == LinuxResources()
    outcomes = runtime.hooks.outcomes.take()
    assert len(outcomes) == 3
    assert all(isinstance(each, HookFailure) for each in outcomes)


def test_container_with_a_failed_hook_does_not_start_under_policy_fail() -> None:
    """The operator may want a pod not to run rather than run without what it was promised."""
    runtime = Runtime(policy=FailurePolicy.FAIL)
    view = runtime.tree.add_pod(pod("a", "LSR", annotations=cpuset("8")))
    with pytest.raises(HookError, match="CPUSetAllocator at PreCreateContainer"):
        runtime.hooks.create_container(starting(view), container(view))
    (failure,) = runtime.failures()
    assert "the container c0 was not started" in failure.note


def test_containers_are_not_adjusted_before_the_first_view() -> None:
    """Containers start as without koordinator."""
    tree = Tree()
    hooks = RuntimeHooks(VirtualClock(START_S), tree.host, tree.roots, tree.cgroups)
    view = tree.add_pod(pod("a", "LSR", annotations=cpuset("1")))
    assert not hooks.is_published
    assert hooks.create_container(starting(view), container(view)).is_empty
    assert hooks.run_sandbox(starting(view)) == LinuxResources()


def test_the_newest_limit_counts_when_a_container_is_resized() -> None:
    """The kubelet requests 2 CPUs before the API server reports it; the ratio is 1.25."""
    runtime = Runtime(annotations={RATIO: "1.25"})
    view = runtime.tree.add_pod(pod("a", "LS", limits={"cpu": 1}, requests={"cpu": 1}))
    runtime.know(view)
    more = container(view, LinuxResources(cpu_quota_us=200_000, cpu_shares=2048))
    result = runtime.hooks.update_container(starting(view), more)
    assert (result.cpu_quota_us, result.cpuset_cpus) == (160_000, "0-7")


def test_a_pod_with_caches_of_its_own_starts_in_its_group() -> None:
    """The group is made with the sandbox: a runtime refuses one that doesn't exist."""
    tree = Tree(host=MemoryHost())
    root = f"{tree.roots.sys_fs}/resctrl"
    tree.host.put(f"{root}/schemata", "L3:0=fff\n")
    tree.host.put(f"{root}/tasks", "")
    runtime = Runtime(tree=tree, gates=GATES | {"Resctrl"})
    annotation = {"node.koordinator.sh/resctrl": '{"llc":{"schemata":{"range":[0,50]}}}'}
    view = tree.add_pod(pod("a", "LS", annotations=annotation))
    runtime.know(caches=ResctrlFacts((0,), 0xFFF, "GenuineIntel"))
    before = runtime.hooks.create_container(starting(view), container(view))
    assert before.resources.rdt_class is None
    for name in ("schemata", "tasks"):  # as the kernel does when the folder is made
        tree.host.put(f"{root}/koordlet-uid-a/{name}", "L3:0=fff\n" if name == "schemata" else "")
    runtime.hooks.run_sandbox(starting(view))
    after = runtime.hooks.create_container(starting(view), container(view))
    assert after.resources.rdt_class == "koordlet-uid-a"
    assert tree.host.read(f"{root}/koordlet-uid-a/schemata").strip() == "L3:0=3f"
    assert LAYOUT.pod(view.kube_qos, view.uid) == view.folder
