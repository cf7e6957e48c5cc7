"""The node of these tests is a real one: its pods run, and outlive a crash of what runs them."""

from pathlib import Path

from tests.e2e.real_node import RealNode
from tests.e2e.real_node.node import pod
from tests.e2e.waiting import eventually


def test_pod_runs_and_prints_its_output(node: RealNode) -> None:
    """The first command's output is in the log, and further commands run in the container."""
    (made,) = node.run(pod("talker", "cat /proc/self/cgroup; sleep 2147483647"))
    printed = eventually(lambda: node.printed(made))
    assert f"/kubepods/besteffort/pod{made['metadata']['uid']}" in printed
    assert node.exec(made, "hostname").strip() == "talker"


def test_pods_outlive_kubelet_and_containerd(node: RealNode) -> None:
    """The kubelet and containerd restart after a crash, and find the pods that run."""
    (made,) = node.run(pod("survivor"))
    identity = node.container_id(made)
    for program in ("kubelet", "containerd"):
        node.kill(program)
    (late,) = node.run(pod("late"))
    assert node.container_id(made) == identity
    assert Path(node.nri_socket).is_socket()
    assert node.exec(late, "hostname").strip() == "late"
