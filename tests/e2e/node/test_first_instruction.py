"""What the agent promises a container is so before its first instruction: it reads so itself."""

import json
from typing import Any

from tests.e2e.node.conftest import NodeAgent
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.node import Manifest, pod
from tests.e2e.waiting import eventually

PRINTER = """echo cpuset=$(grep Cpus_allowed_list /proc/self/status | cut -f2)
for file in cpu/cpu.shares cpu/cpu.cfs_quota_us memory/memory.limit_in_bytes; do
  echo $file=$(cat /sys/fs/cgroup/$file)
done
echo done
sleep 2147483647"""


def first_words(node: RealNode, made: Manifest) -> dict[str, str]:
    """Return what the container read of its own cgroup as its first commands."""
    printed = eventually(lambda: text if "done" in (text := node.printed(made)) else "")
    return dict(line.split("=") for line in printed.splitlines() if "=" in line)


def koordinated(name: str, qos: str, **more: Any) -> Manifest:
    """Return a pod with a QoS class that prints what it is held to."""
    return pod(name, PRINTER, labels={"koordinator.sh/qosClass": qos}, **more)


def test_a_pod_with_cpus_of_its_own_starts_on_them(agent: NodeAgent, node: RealNode) -> None:
    """The scheduler chose CPU 1 for an LSR pod: no quota, and no other CPU, ever."""
    status = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "1"})}
    amounts = {"cpu": "1", "memory": "32Mi"}
    resources = {"requests": amounts, "limits": amounts}
    (made,) = node.run(koordinated("bound", "LSR", annotations=status, resources=resources))
    words = first_words(node, made)
    assert words["cpuset"] == "1"
    assert words["cpu/cpu.cfs_quota_us"] == "-1"
    assert words["cpu/cpu.shares"] == "1024"
    assert agent.is_running
