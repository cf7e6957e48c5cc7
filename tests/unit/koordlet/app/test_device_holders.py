"""No device of a node has two pods, whatever their annotations say."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nodes import LAYOUT, Tree, pod

from koordinator.foundation.errors import InputError
from koordinator.koordlet.app.device_hooks import DeviceHolders
from koordinator.koordlet.view.pods import PodView, pod_view

KEY = "scheduling.koordinator.sh/device-allocated"
#: Requests of pods: a card, and a GPU or parts of it.
REQUESTS: dict[str, Any] = {"requests": {"koordinator.sh/rdma": 100, "nvidia.com/gpu": 1}}
VF = {"rdma": [{"minor": 0, "extension": {"vfs": [{"minor": 1, "busID": "0000:1f:00.2"}]}}]}


def gpu(percent: int | None = None, minor: int = 0, **more: Any) -> dict[str, Any]:
    """Return an allocation of a part of a GPU; without a percentage."""
    names = () if percent is None else ("gpu-core", "gpu-memory-ratio")
    resources = {f"koordinator.sh/{name}": str(percent) for name in names}
    return {"gpu": [{"minor": minor, "resources": resources, **more}]}


class Node:
    """Pods of a node, and who has its devices."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.holders = DeviceHolders(self.tree.cgroups.exists)
        self.pods: dict[str, PodView] = {}

    def hear(self, name: str, allocated: Any, **more: Any) -> PodView:
        """Deliver a pod from the API server."""
        text = allocated if isinstance(allocated, str) else json.dumps(allocated)
        view = pod_view(pod(name, annotations={KEY: text}, **REQUESTS, **more), LAYOUT)
        self.pods[name] = view
        self.holders.publish(self.pods.values())
        return view

    def start(self, view: PodView) -> bool:
        """Start a pod as the kubelet does; return whether it gets the devices in its annotation."""
        self.tree.add(view.folder)
        return self.gets(view)

    def gets(self, view: PodView) -> bool:
        """Return whether a pod gets the devices in its annotation."""
        try:
            self.holders.check(view)
        except InputError:
            return False
        return True

    def end(self, view: PodView, *, is_reported: bool = True) -> None:
        """End a pod: first its cgroup disappears, then the API server reports it."""
        self.tree.host.vanish(f"/sys/fs/cgroup/cpu/{view.folder}")
        for hierarchy in ("cpuset", "memory", "cpuacct", "blkio", "perf_event", "net_cls"):
            self.tree.host.vanish(f"/sys/fs/cgroup/{hierarchy}/{view.folder}")
        if is_reported:
            del self.pods[view.pod.metadata.name]
            self.holders.publish(self.pods.values())


@pytest.mark.parametrize(
    "allocated", [VF, gpu(100), gpu(), gpu(1), {"rdma": [{"minor": 0, "id": "0000:1f:00.0"}]}]
)
def test_a_device_of_another_pod_is_not_handed_out(allocated: Any) -> None:
    """A copy of the annotation gets nothing, and the pod that was first keeps what it has."""
    node = Node()
    whole = gpu(100) if "gpu" in allocated else allocated
    owner = node.hear("owner", whole)
    assert node.start(owner)
    thief = node.hear("a-thief", allocated)
    assert not node.start(thief)
    assert node.gets(owner)


def test_rejection_names_the_owner_of_the_device() -> None:
    """The message ends up in an event of the pod that asked."""
    node = Node()
    node.start(node.hear("owner", VF))
    thief = node.hear("thief", VF)
    with pytest.raises(InputError, match=r"rdma.*0000:1f:00.2.*allocated to pod default/owner"):
        node.holders.check(thief)


def test_bound_pod_keeps_its_devices_before_it_starts() -> None:
    """Between binding and start there is time enough for another pod."""
    node = Node()
    owner = node.hear("owner", VF)
    thief = node.hear("a-thief", VF)
    assert not node.start(thief)
    assert node.start(owner)


def test_parts_of_a_gpu_go_to_several_pods() -> None:
    """Up to the whole of it, one resource beside the other."""
    node = Node()
    assert node.start(node.hear("a", gpu(60)))
    assert node.start(node.hear("b", gpu(40)))
    assert not node.start(node.hear("c", gpu(1)))
    assert node.start(node.hear("other", gpu(100, minor=1)))


def test_a_gpu_is_the_same_by_number_and_by_id() -> None:
    """The environment names it by number, PodResources by id."""
    node = Node()
    assert node.start(node.hear("owner", gpu(100, id="GPU-a")))
    assert not node.start(node.hear("by-number", gpu(100)))
    assert not node.start(node.hear("by-id", gpu(100, minor=7, id="GPU-a")))


def test_device_of_an_ended_pod_is_free_immediately() -> None:
    """The device is free even if the next pod starts before the watch delivers the end."""
    node = Node()
    first = node.hear("first", VF)
    assert node.start(first)
    node.end(first, is_reported=False)
    assert node.start(node.hear("second", VF))

    node = Node()
    never_started = node.hear("never-started", VF)
    node.end(never_started)
    assert node.start(node.hear("second", VF))

    node = Node()
    assert node.start(node.hear("job", VF))
    node.hear("job", VF, phase="Succeeded")
    assert node.start(node.hear("second", VF))


def test_changed_annotation_loses_precedence() -> None:
    """The age of the pod has no influence."""
    node = Node()
    older = node.hear("older", gpu(100, minor=3), created="2020-01-01T00:00:00Z")
    assert node.start(older)
    owner = node.hear("owner", VF)
    changed = node.hear("older", VF, created="2020-01-01T00:00:00Z")
    assert not node.gets(changed)
    assert node.start(owner)


def test_restarted_agent_orders_pods_by_their_start() -> None:
    """All pods arrive at once after a restart; their names do not matter."""
    node = Node()
    thief = pod_view(
        pod("a", annotations={KEY: json.dumps(VF)}, **REQUESTS, startTime="2024-01-02T00:00:00Z"),
        LAYOUT,
    )
    owner = pod_view(
        pod("b", annotations={KEY: json.dumps(VF)}, **REQUESTS, startTime="2024-01-01T00:00:00Z"),
        LAYOUT,
    )
    for each in (thief, owner):
        node.tree.add(each.folder)
    node.holders.publish([thief, owner])
    assert not node.gets(thief)
    assert node.gets(owner)


def test_unpublished_pod_is_remembered() -> None:
    """The runtime calls before the watch has delivered the pod."""
    node = Node()
    owner = pod_view(pod("owner", annotations={KEY: json.dumps(VF)}, **REQUESTS), LAYOUT)
    assert node.start(owner)
    node.hear("unrelated", gpu(10))
    assert not node.start(node.hear("thief", VF))
    node.hear("owner", VF)
    assert node.gets(owner)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"gpu": [{"minor": "x"}]}', "{" * 5000, ""])
def test_invalid_annotation_owns_nothing(text: str) -> None:
    """Nothing is handed out for it either."""
    node = Node()
    node.hear("odd", text)
    assert node.start(node.hear("owner", VF))


AMOUNTS = st.sampled_from([None, -5, 0, 1, 25, 50, 75, 100, 2**70])


@given(
    st.lists(
        st.tuples(st.integers(0, 3), AMOUNTS, st.sampled_from(["hear", "start", "end"])),
        max_size=30,
    )
)
def test_no_device_is_handed_out_twice(steps: list[tuple[int, int | None, str]]) -> None:
    """In any order of pods, starts and ends, and with any amounts."""
    node = Node()
    running: dict[str, int] = {}
    for number, amount, step in steps:
        name = f"p{number}"
        view = node.pods.get(name)
        if step == "hear" and view is None:
            node.hear(name, gpu(amount))
        elif step == "start" and view is not None and name not in running and node.start(view):
            text = view.pod.metadata.annotations[KEY]
            stated = json.loads(text)["gpu"][0]["resources"].get("koordinator.sh/gpu-core", "0")
            running[name] = min(int(stated), 100) if int(stated) > 0 else 100
        elif step == "end" and view is not None:
            node.end(view)
            running.pop(name, None)
        assert sum(running.values()) <= 100
