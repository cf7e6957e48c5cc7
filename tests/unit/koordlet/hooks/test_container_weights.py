"""Weights of batch containers on cgroup v2 are those that the container runtime gives them.

The kubelet converts shares of pods, and the runtime shares of containers, from runc 1.3.2 and
crun 1.23 on by another formula.  Containers of one pod compete by these weights.
"""

from typing import Any

import pytest
from tests.nodes import START_S, V1, V2, Tree, pod

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.host.port import NoCoreScheduling
from koordinator.koordlet.executor import AgentAuditTrail, Executor
from koordinator.koordlet.hooks.batch_resources import plan_batch_resources
from koordinator.koordlet.hooks.pod_hooks import limits_of
from koordinator.koordlet.view.pods import PodView

_BATCH: dict[str, str | int] = {"kubernetes.io/batch-cpu": 500, "kubernetes.io/batch-memory": "1Gi"}
_CPU = CgroupFile.CPU_SHARES
#: Weights of 512 shares, as the kubelet and as newer runtimes convert them.
_KUBELET, _RUNTIME = "20", "59"
_UNCONFIGURED = "1"  # of a best-effort container that was started without the agent


def _batch_pod(name: str = "job") -> Any:
    return pod(name, "BE", requests=_BATCH, limits=_BATCH)


def _native_pod() -> Any:
    return pod("server", "LS", requests={"cpu": "500m"})


def _apply(tree: Tree, *pods: PodView) -> None:
    executor = Executor(
        tree.host,
        tree.roots,
        tree.cgroups,
        AgentAuditTrail(tree.host),
        core_scheduling=NoCoreScheduling(),
    )
    executor.apply(plan_batch_resources(tree.view(*pods)), START_S)


@pytest.mark.parametrize("weight", [_KUBELET, _RUNTIME])
def test_weight_from_the_runtime_stays(weight: str) -> None:
    """A container that NRI gave its shares keeps what the runtime made of them."""
    tree = Tree(version=V2)
    job = tree.add_pod(_batch_pod())
    tree.set(_CPU, job.containers[0].folder, weight)

    _apply(tree, job)

    assert tree.get(_CPU, job.containers[0].folder) == weight


@pytest.mark.parametrize("weight", [_KUBELET, _RUNTIME])
def test_batch_container_weighs_as_much_as_a_native_one(weight: str) -> None:
    """A container that the runtime started without the agent gets the runtime's weight."""
    tree = Tree(version=V2)
    job, server = tree.add_pod(_batch_pod()), tree.add_pod(_native_pod())
    tree.set(_CPU, server.containers[0].folder, weight)
    tree.set(_CPU, job.containers[0].folder, _UNCONFIGURED)

    _apply(tree, job, server)

    assert tree.get(_CPU, job.containers[0].folder) == weight


def test_containers_with_and_without_the_hook_weigh_the_same() -> None:
    """One batch container shows the conversion where no native container does."""
    tree = Tree(version=V2)
    hooked, missed = tree.add_pod(_batch_pod("hooked")), tree.add_pod(_batch_pod("missed"))
    tree.set(_CPU, hooked.containers[0].folder, _RUNTIME)
    tree.set(_CPU, missed.containers[0].folder, _UNCONFIGURED)

    _apply(tree, hooked, missed)

    assert tree.get(_CPU, missed.containers[0].folder) == _RUNTIME


def test_weight_from_a_newer_runtime_stays_beside_older_containers() -> None:
    """Containers that an older runtime started keep their weights when it is replaced."""
    tree = Tree(version=V2)
    job, server = tree.add_pod(_batch_pod()), tree.add_pod(_native_pod())
    tree.set(_CPU, server.containers[0].folder, _KUBELET)
    tree.set(_CPU, job.containers[0].folder, _RUNTIME)

    _apply(tree, job, server)

    assert tree.get(_CPU, job.containers[0].folder) == _RUNTIME


def test_pod_weighs_as_the_kubelet_converts() -> None:
    """Pods compete with pods whose weight the kubelet has written."""
    tree = Tree(version=V2)
    job, server = tree.add_pod(_batch_pod()), tree.add_pod(_native_pod())
    tree.set(_CPU, server.containers[0].folder, _RUNTIME)

    _apply(tree, job, server)

    assert tree.get(_CPU, job.folder) == _KUBELET


@pytest.mark.parametrize("version", [V1, V2])
def test_runtime_gets_shares(version: Any) -> None:
    """NRI passes shares, which the runtime converts itself."""
    tree = Tree(version=version)
    job, server = tree.add_pod(_batch_pod()), tree.add_pod(_native_pod())
    tree.set(_CPU, server.containers[0].folder, _RUNTIME)
    container = job.containers[0].folder

    limits = limits_of(plan_batch_resources(tree.view(job, server)), container)

    assert limits.cpu_shares == 512


@pytest.mark.parametrize("content", ["", "max", "100 200", "-1"])
def test_unreadable_weights_show_nothing(content: str) -> None:
    """The shares are converted as the kubelet does."""
    tree = Tree(version=V2)
    job, server = tree.add_pod(_batch_pod()), tree.add_pod(_native_pod())
    tree.set(_CPU, server.containers[0].folder, content)
    tree.set(_CPU, job.containers[0].folder, _UNCONFIGURED)

    _apply(tree, job, server)

    assert tree.get(_CPU, job.containers[0].folder) == _KUBELET
