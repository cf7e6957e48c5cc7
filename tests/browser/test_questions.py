"""Questions that people put to the page: each is answered within three clicks from its beginning.

A click is one on a link, button or cell, or a choice in a list; what is typed into a field has cost
the click into it.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.reservations import reservation
from tests.unit.dashboard.dashboards import Browser, manifests, served
from tests.worlds import START_S, configuration, device, gpu_pod, made, node, pod

from koordinator.api.meta import KubeObject
from koordinator.dashboard.sources.manifests import ManifestSource
from koordinator.foundation.clock import to_datetime
from koordinator.simulator.embedded import STOCK

pytestmark = pytest.mark.slow

OpenPage = Callable[..., Any]
MOST_CLICKS = 3
PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
QUOTA = "quota.scheduling.koordinator.sh/name"
GANG = "pod-group.scheduling.sigs.k8s.io"
CONFIG = configuration(
    plugins={
        "multiPoint": {
            "enabled": [{"name": name} for name in ("ElasticQuota", "DeviceShare", "Reservation")]
        },
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
        **{point: {"enabled": [{"name": "Coscheduling"}]} for point in ("preEnqueue", "permit")},
    }
)


def gpu_node(name: str, *sizes: int, unhealthy: tuple[int, ...] = ()) -> list[KubeObject]:
    """Return a node of eight GPUs that are linked in partitions of these sizes."""
    report = device(name, gpus=8, unhealthy=unhealthy)
    table = {
        str(size): [
            {"minors": list(range(first, first + size)), "allocationScore": 1}
            for first in range(0, 8, size)
        ]
        for size in sizes
    }
    meta = replace(report.metadata, annotations={PARTITIONS: json.dumps(table)})
    amounts: Any = {"koordinator.sh/gpu-core": 800, "koordinator.sh/gpu-memory-ratio": 800}
    return [node(name, cpu=4, **amounts), replace(report, metadata=meta)]


def quota(name: str, low: int, high: int) -> KubeObject:
    amounts = {"min": {"cpu": str(low)}, "max": {"cpu": str(high)}}
    group = "scheduling.sigs.k8s.io/v1alpha1"
    return made("ElasticQuota", name, group, metadata={"namespace": name}, spec=amounts)


def cluster() -> list[KubeObject]:
    """Return tenants that lend and borrow, a gang that waits, and GPU nodes linked in two ways."""
    blue: Any = {"namespace": "blue", "labels": {QUOTA: "blue"}}
    group = "scheduling.sigs.k8s.io/v1alpha1"
    return [
        node("cpu-0", cpu=16),
        node("cpu-1", cpu=16),
        *gpu_node("gpu-0", 1, 8, unhealthy=(7,)),
        *gpu_node("gpu-1", 1, 8),
        *gpu_node("gpu-2", 1, 8),
        *gpu_node("gpu-3", 1, 4),
        pod("web-0", cpu=12, on="cpu-0", **blue),
        pod("web-1", cpu=10, on="cpu-1", **blue),
        gpu_pod("train", "gpu-1", minors=[3], gpu_core=100, gpu_memory_ratio=100),
        gpu_pod("half", "gpu-1", minors=[4], gpu_core=50, gpu_memory_ratio=50),
        quota("blue", 8, 40),
        quota("red", 30, 40),
        quota("green", 2, 2),
        made("PodGroup", "ring", group, metadata={"namespace": "red"}, spec={"minMember": 3}),
        *(
            pod(f"ring-{n}", cpu=6, namespace="red", labels={GANG: "ring", QUOTA: "red"})
            for n in range(3)
        ),
        pod("capped", cpu=3, namespace="green", labels={QUOTA: "green"}),
        pod("new-1", cpu=1),
        reservation("left-over", cpu=1, on="cpu-0"),
    ]


@pytest.fixture(scope="module")
def shown(chromium: Any) -> Iterator[Browser]:
    assert chromium
    with served(manifests(cluster(), CONFIG)) as found:
        yield found


class Reader:
    """Somebody at the page who counts clicks."""

    def __init__(self, page: Any) -> None:
        self.page, self.clicks = page, 0
        page.get_by_text("pods that wait", exact=True).wait_for()

    def click(self, found: Any) -> None:
        self.clicks += 1
        found.click()

    def open(self, view: str) -> None:
        self.click(self.page.get_by_role("navigation").get_by_role("link", name=view))

    def choose(self, label: str, option: str) -> None:
        self.clicks += 1
        self.page.get_by_role("combobox", name=label, exact=True).select_option(option)

    def type(self, label: str, text: str) -> None:
        self.clicks += 1
        self.page.get_by_label(label).fill(text)

    def reads(self, text: str) -> None:
        """Find the answer on the page, before there were too many clicks."""
        self.page.get_by_text(text).first.wait_for()
        assert self.clicks <= MOST_CLICKS


@pytest.fixture
def reader(open_page: OpenPage, shown: Browser) -> Reader:
    """Open the page anew, as it begins."""
    return Reader(open_page(f"http://127.0.0.1:{shown.port}/"))


def test_which_tenant_is_over_its_guarantee_and_from_whom_does_it_borrow(reader: Reader) -> None:
    """A sentence above the tree of quotas."""
    reader.open("Shares")
    told = reader.page.get_by_role("list", name="Over their guarantee")
    told.wait_for()
    assert "blue has 22 cpu, 8 guaranteed: " in told.inner_text()
    assert "borrowed from red" in told.inner_text()
    assert reader.clicks <= MOST_CLICKS


def test_why_does_this_gang_wait_since_when_and_what_is_the_cheapest_remedy(
    reader: Reader,
) -> None:
    """Its members are in the list of what waits; the explanation has all three."""
    reader.click(reader.page.get_by_role("link", name="red/ring-").first)
    reader.reads("Waits since")
    reader.reads("What would help, the least first")
    reader.reads("What is against it")


def test_the_same_from_the_gang(reader: Reader) -> None:
    """Who begins with the gang gets there, too."""
    reader.open("Shares")
    gangs = reader.page.get_by_role("region", name="Gangs")
    reader.click(gangs.get_by_text("red/ring", exact=True))
    reader.click(reader.page.get_by_role("link", name="Why does it wait"))
    reader.reads("Waits since")


def test_when_will_it_start(reader: Reader) -> None:
    """Known from what says when it ends; otherwise the page says that nobody knows, and why."""
    reader.click(reader.page.get_by_role("link", name="red/ring-").first)
    reader.click(reader.page.get_by_role("button", name="When would it start?"))
    reader.reads("When it starts is unknown: nothing that runs says when it ends.")


def test_where_would_a_job_of_8_gpus_with_nvlink_fit(reader: Reader) -> None:
    """Eight untouched GPUs are not enough: they have to be linked."""
    reader.open("Nodes")
    reader.type("whole GPUs free", "8")
    reader.reads("2 nodes: gpu-2, gpu-3")
    reader.click(reader.page.get_by_label("linked to each other"))
    reader.reads("1 node: gpu-2")


def test_which_node_is_most_fragmented(reader: Reader) -> None:
    """The names of the worst stand above the map."""
    reader.open("Nodes")
    reader.choose("colour", "holes")
    told = reader.page.get_by_text("Most:")
    told.wait_for()
    assert told.inner_text().startswith("Most: gpu-1 ")
    assert reader.clicks <= MOST_CLICKS


def test_who_holds_gpu_3_of_a_node(reader: Reader) -> None:
    """The node is found by its name and opens."""
    reader.open("Nodes")
    reader.type("Find a node", "gpu-1")
    reader.page.keyboard.press("Enter")
    reader.page.get_by_role("img", name="default/train 100 percent").wait_for()
    assert reader.clicks <= MOST_CLICKS


def test_which_reservations_are_unused(reader: Reader) -> None:
    """Those that nobody has used for ten minutes need a person."""
    reader.open("Needs a person")
    reader.reads("holds room on cpu-0 that nobody uses")
    reader.reads("left-over")


def test_which_gpus_are_broken(reader: Reader) -> None:
    reader.open("Needs a person")
    reader.reads("gpu 7: unhealthy, so nobody gets it")


def test_what_would_happen_if_a_quota_got_8_more(reader: Reader) -> None:
    """Nothing has to be written for that."""
    reader.open("Try it")
    reader.choose("quota", "green")
    reader.click(reader.page.get_by_role("button", name="What would change?"))
    reader.page.get_by_role("cell", name="green/capped").wait_for()
    reader.reads("1 pod fares otherwise")


def test_what_changed_in_the_last_10_minutes(open_page: OpenPage) -> None:
    """Pods that got a node, nodes that came and went."""
    objects, version = cluster(), 1
    source = ManifestSource("t", lambda: objects, lambda: version, STOCK, lambda: now_s)
    now_s = START_S
    with served(source) as found:
        reader = Reader(open_page(f"http://127.0.0.1:{found.port}/"))
        objects, now_s, version = [*objects, node("new", cpu=64)], START_S + 60, 2
        reader.open("Time")
        reader.choose("in", "600")
        reader.reads("node new is there")


def test_who_has_held_the_gpus_of_a_node(reader: Reader) -> None:
    """Each GPU is a lane; those of a node, a pod or a job are found by its name."""
    reader.open("Time")
    reader.page.get_by_placeholder("node, pod or job").fill("gpu-1")
    reader.reads("coloured by")
    chart = reader.page.get_by_role("application", name="GPUs over time: 8 GPUs")
    chart.focus()
    reader.page.keyboard.press("Home")
    reader.reads("gpu-1 GPU 3: default/train")


def test_what_was_decided_about_a_pod_and_which_nodes_came_next(reader: Reader) -> None:
    """Also of a pod that has its node: it is found by its name."""
    reader.type("Find a cause, namespace or pod", "new-1")
    reader.click(reader.page.get_by_role("link", name="default/new-1"))
    reader.reads("got a node")
    reader.click(reader.page.get_by_text("Next best:"))
    reader.page.get_by_role("region", name="Scores of the best nodes").wait_for()
    assert reader.clicks <= MOST_CLICKS


def test_which_jobs_were_refused_most_often(reader: Reader) -> None:
    """What was decided says it, above the decisions themselves."""
    reader.open("Time")
    reader.click(reader.page.get_by_text("Jobs that were refused most often"))
    reader.page.get_by_role("button", name="red/ring").wait_for()
    assert reader.clicks <= MOST_CLICKS


def test_what_was_decided_about_a_whole_job(reader: Reader) -> None:
    """From one of its pods to all decisions about it."""
    reader.click(reader.page.get_by_role("link", name="red/ring-").first)
    reader.click(reader.page.get_by_role("link", name="All that was decided about red/ring"))
    told = reader.page.get_by_role("region", name="Decisions, newest first")
    told.get_by_role("cell", name="found no node").first.wait_for()
    assert told.get_by_role("link", name="red/ring-").count() >= 1
    assert reader.clicks <= MOST_CLICKS


def test_who_is_tried_next(reader: Reader) -> None:
    """The queue in its order; a gang is one line of it."""
    reader.open("Shares")
    queue = reader.page.get_by_role("region", name="Queue, in the order")
    queue.get_by_role("link", name="red/ring", exact=True).wait_for()
    assert "3 pods" in queue.inner_text()
    assert reader.clicks <= MOST_CLICKS


def test_what_would_a_descheduler_move(reader: Reader) -> None:
    """Nothing has to be written for that either, and nothing is."""
    reader.open("Try it")
    reader.click(reader.page.get_by_role("button", name="What would move?"))
    reader.reads("Nothing moves.")


def test_what_is_waited_for_longest(open_page: OpenPage) -> None:
    """Most pods wait for one thing, and one pod for another, for longer: either may come first."""
    early = pod("early", memory="900Gi", namespace="red")
    since = replace(early.metadata, creation_timestamp=to_datetime(START_S - 7200))
    objects = [
        node("n", cpu=1, memory="8Gi"),
        replace(early, metadata=since),
        *(pod(f"late-{number}", cpu=9, namespace="blue") for number in range(3)),
    ]
    with served(manifests(objects)) as found:
        reader = Reader(open_page(f"http://127.0.0.1:{found.port}/"))
        first = reader.page.locator("article h2").first
        assert first.inner_text() == "3 pods: too little cpu is free"
        reader.choose("first", "longest")
        assert first.inner_text() == "1 pod: too little memory is free"
        reader.reads("longest 2 h")
