"""The dashboard in a browser: each view, live updates, phones and large screens, the keyboard."""

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.unit.dashboard.dashboards import HOSTILE, Browser, crowded, gpu_node, manifests, served
from tests.worlds import START_S, configuration, gpu_pod, made, node, pod

from koordinator.api.meta import KubeObject
from koordinator.dashboard.sources.manifests import ManifestSource
from koordinator.dashboard.sources.simulation import SimulationSource
from koordinator.foundation.clock import SystemClock
from koordinator.simulator import Simulation, read_workload
from koordinator.simulator.embedded import STOCK
from koordinator.simulator.policies import default_profile

pytestmark = pytest.mark.slow

OpenPage = Callable[..., Any]
VIEWS = ("start", "waiting", "map", "shares", "attention", "time", "try")
CONFIG = configuration(
    plugins={
        "multiPoint": {"enabled": [{"name": name} for name in ("ElasticQuota", "DeviceShare")]},
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
        **{point: {"enabled": [{"name": "Coscheduling"}]} for point in ("preEnqueue", "permit")},
    }
)
QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"


def cluster() -> list[KubeObject]:
    """Return GPU and CPU nodes of two zones, two tenants, a pending gang, and an unhealthy GPU."""
    pool = "koordinator.sh/node-pool"
    objects: list[KubeObject] = []
    for number in range(12):
        zone = f"zone-{'ab'[number % 2]}"
        objects.append(node(f"cpu-{number:02}", cpu=16, zone=zone, labels={pool: "cpu"}))
        load: Any = {"namespace": "blue", "labels": {QUOTA_LABEL: "blue"}, "on": f"cpu-{number:02}"}
        objects.append(pod(f"web-{number}", cpu=4 + number, **load))
    for number in range(4):
        name = f"gpu-{number}"
        unhealthy = [7] if number == 0 else []
        objects += gpu_node(name, 8, unhealthy, zone="zone-a", labels={pool: "gpu"})
    objects += [
        gpu_pod("train", "gpu-1", minors=[0, 1, 2, 3], gpu_core=400, gpu_memory_ratio=400),
        gpu_pod("half", "gpu-1", minors=[4], gpu_core=50, gpu_memory_ratio=50),
        *(_quota(name, cpu) for name, cpu in (("blue", 20), ("red", 100))),
        made(
            "PodGroup",
            "ring",
            "scheduling.sigs.k8s.io/v1alpha1",
            metadata={"namespace": "red"},
            spec={"minMember": 3},
        ),
        *(
            pod(
                f"ring-{number}",
                cpu=70,
                namespace="red",
                labels={"pod-group.scheduling.sigs.k8s.io": "ring", QUOTA_LABEL: "red"},
            )
            for number in range(3)
        ),
        *(pod(f"batch-{number}", cpu=100, namespace="blue") for number in range(5)),
    ]
    return objects


def _quota(name: str, cpu: int) -> KubeObject:
    amounts = {"min": {"cpu": str(cpu)}, "max": {"cpu": "300"}}
    return made(
        "ElasticQuota",
        name,
        "scheduling.sigs.k8s.io/v1alpha1",
        metadata={"namespace": name},
        spec=amounts,
    )


@pytest.fixture(scope="module")
def dashboard(chromium: Any) -> Iterator[Browser]:
    """Show a cluster with content for every view."""
    assert chromium
    with served(manifests(cluster(), CONFIG)) as server:
        yield server


@pytest.fixture
def url(dashboard: Browser) -> str:
    return f"http://127.0.0.1:{dashboard.port}/"


# -- views -----------------------------------------------------------------------------------


def test_pending_pod_opens_its_explanation(open_page: OpenPage, url: str) -> None:
    """The open pod is part of the address."""
    page = open_page(url + "#/waiting")
    page.get_by_role("heading", name="8 pods: too little cpu is free").wait_for()
    page.get_by_role("button", name="all 8").click()
    page.get_by_role("link", name="blue/batch-0").click()
    page.get_by_role("heading", name="Nearest nodes").wait_for()

    assert page.get_by_role("heading", name="Remedies").is_visible()
    assert page.url.endswith("#/waiting/blue%2Fbatch-0")
    page.reload()
    page.get_by_role("heading", name="Nearest nodes").wait_for()


def test_map_opens_node_details(open_page: OpenPage, url: str) -> None:
    """The details have the GPUs, their holders, and the unhealthy one."""
    page = open_page(url + "#/map")
    canvas = page.get_by_role("application")
    canvas.wait_for()
    canvas.focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text("cpu-01 ·").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="cpu-01").wait_for()

    page.goto(url + "#/map/gpu-1")
    page.get_by_role("heading", name="GPU", exact=True).wait_for()
    assert page.get_by_role("img", name="default/half 50 percent").is_visible()
    page.goto(url + "#/map/gpu-0")
    page.get_by_role("img", name="unhealthy").wait_for()


def test_map_filters_nodes_by_free_gpus(open_page: OpenPage, url: str) -> None:
    page = open_page(url + "#/map")
    page.get_by_label("free GPUs").fill("8")
    page.get_by_role("status").filter(has_text="2 nodes: gpu-2, gpu-3").wait_for()


def test_quota_row_shows_usage_and_loans(open_page: OpenPage, url: str) -> None:
    page = open_page(url + "#/shares")
    page.get_by_label("resource").select_option("cpu")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="blue", exact=True))
    row.wait_for()
    assert "114" in row.inner_text()
    page.get_by_role("region", name="Gangs").get_by_text("red/ring").first.click()
    page.get_by_role("link", name="red/ring-0").wait_for()


def test_problem_links_to_its_node(open_page: OpenPage, url: str) -> None:
    page = open_page(url + "#/attention")
    page.get_by_text("gpu 7: unhealthy").wait_for()
    page.get_by_role("link", name="gpu-0").click()
    page.get_by_role("heading", name="gpu-0").wait_for()


def test_what_if_with_a_manifest(open_page: OpenPage, url: str) -> None:
    """The manifest is tried on a copy; an invalid one gives an error."""
    page = open_page(url + "#/try")
    amounts = {"cpu": "500", "memory": "100Gi", "pods": "50"}
    new = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "huge"},
        "status": {"allocatable": amounts},
    }
    page.get_by_label("Manifests to add or replace").fill(json.dumps(new))
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("region", name="Differences").wait_for()
    assert page.get_by_role("cell", name="huge").count() >= 4
    page.get_by_label("Manifests to add or replace").fill("nonsense: [")
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("alert").wait_for()


# -- the first page --------------------------------------------------------------------------


def test_a_healthy_cluster_is_shown_as_healthy(open_page: OpenPage) -> None:
    """The address opens the overview: what the cluster consists of, and that it has no problem."""
    pool = {"koordinator.sh/node-pool": "web"}
    nodes = [node(f"n{number}", cpu=8, labels=pool) for number in range(3)]
    with served(manifests([*nodes, pod("p", cpu=4, on="n0")])) as server:
        page = open_page(f"http://127.0.0.1:{server.port}/")
        page.get_by_role("heading", name="Healthy: nothing needs a person.").wait_for()
        assert page.get_by_role("heading", name="No pod is pending.").is_visible()
        row = page.get_by_role("region", name="Pools of nodes").get_by_role("row").last
        assert row.get_by_role("cell").all_inner_texts()[:3] == ["web", "3", "1"]
        assert page.locator("nav .badge").count() == 0


def test_problems_stand_on_the_first_page_with_a_badge(open_page: OpenPage, url: str) -> None:
    """The number of problems is the one of the tab; each heading leads to its view."""
    page = open_page(url)
    problems = page.get_by_role("heading", name="need a person").or_(
        page.get_by_role("heading", name="needs a person")
    )
    problems.first.wait_for()
    tab = page.get_by_role("navigation").get_by_role("link", name="Problems")
    assert problems.first.inner_text().split()[0] == tab.locator(".badge").inner_text()
    assert page.get_by_text("gpu 7: unhealthy").is_visible()
    assert page.get_by_role("heading", name="8 pending pods").is_visible()
    problems.first.get_by_role("link").click()
    page.get_by_role("heading", name="Problems", exact=True).wait_for()


def test_help_names_keys_and_leads_to_the_documentation(open_page: OpenPage, url: str) -> None:
    """By a key or the button, about the open view; Escape closes it and not the view."""
    page = open_page(url + "#/waiting/blue%2Fbatch-0")
    page.get_by_role("heading", name="Nearest nodes").wait_for()
    page.keyboard.press("?")
    box = page.get_by_role("dialog", name="Help")
    for link in box.get_by_role("link").all():
        answer = page.request.get(f"{url}{link.get_attribute('href')}")
        assert answer.status == 200
        assert answer.text().startswith(f"# {link.inner_text()}\n")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    assert axe.Axe().run(page).response["violations"] == []
    page.keyboard.press("Escape")
    box.wait_for(state="hidden")
    assert page.get_by_role("heading", name="Nearest nodes").is_visible()
    page.get_by_role("button", name="Help").click()
    box.wait_for()


@pytest.mark.parametrize("view", VIEWS)
def test_the_header_leaves_a_phone_its_screen(open_page: OpenPage, url: str, view: str) -> None:
    """Header and tabs take less than 40 % of it, and the tab of the open view is on it."""
    page = open_page(f"{url}#/{view}", width=390, height=844)
    page.get_by_text("pending pods", exact=True).wait_for()
    tab = page.locator("nav [aria-current]")
    tab.wait_for()
    bar, own = page.get_by_role("navigation").bounding_box(), tab.bounding_box()
    assert bar["y"] + bar["height"] < 0.4 * 844
    assert own["x"] >= 0
    assert own["x"] + own["width"] <= 390


# -- a run that is over ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ended(chromium: Any) -> Iterator[str]:
    """Serve two hours of a simulation, and return the address."""
    assert chromium
    run = Simulation(read_workload("examples/small-gpu-cluster.yaml"), until_s=7200.0)
    with served(SimulationSource(run, default_profile(), SystemClock(), speed=0)) as server:
        yield f"http://127.0.0.1:{server.port}/"


def downloaded(page: Any, name: str) -> str:
    with page.expect_download() as saved:
        page.get_by_role("button", name=name, exact=True).click()
    return str(Path(saved.value.path()).read_text())


def test_a_range_of_time_is_chosen_by_its_ends(open_page: OpenPage, ended: str) -> None:
    """All charts and files show it, it is in the address, and what is no time is refused."""
    page = open_page(ended + "#/time")
    page.get_by_text("ended", exact=True).wait_for()
    page.get_by_label("from", exact=True).fill("00:30")
    page.get_by_label("from", exact=True).press("Enter")
    page.get_by_label("to", exact=True).fill("day 1, 01:00:00")
    page.get_by_label("to", exact=True).press("Enter")
    page.wait_for_url("**#/time//1800..3600")
    page.reload()
    page.get_by_role("button", name="Allocation as CSV").wait_for()
    rows = list(csv.DictReader(io.StringIO(downloaded(page, "Allocation as CSV"))))
    seconds = [float(row["seconds"]) for row in rows]
    assert len(rows) > 1
    assert 1800 <= min(seconds) <= max(seconds) <= 3600

    page.get_by_label("from", exact=True).fill("yesterday")
    page.get_by_label("from", exact=True).press("Enter")
    page.get_by_role("alert").filter(has_text="Expected a time").wait_for()
    page.get_by_role("button", name="all the time").click()
    page.wait_for_url("**#/time")
    whole = list(csv.DictReader(io.StringIO(downloaded(page, "Allocation as CSV"))))
    assert len(whole) > len(rows)


def test_a_chart_is_saved_as_csv_and_svg(open_page: OpenPage, ended: str) -> None:
    """The columns are the series of the legend; a series that is hidden is in neither file."""
    page = open_page(ended + "#/time")
    page.get_by_text("ended", exact=True).wait_for()
    allocated = page.locator("figure").filter(has_text="Allocation")
    allocated.get_by_role("button", name="memory").click()
    table = list(csv.reader(io.StringIO(downloaded(page, "Allocation as CSV"))))
    assert table[0] == ["seconds", "CPU", "GPU"]
    assert all(0 <= float(share) <= 1 for row in table[1:] for share in row[1:] if share)

    drawing = ET.fromstring(downloaded(page, "Allocation as SVG"))  # noqa: S314 -- ours
    texts = [one.text for one in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Allocation", "CPU", "GPU"} <= set(texts)
    assert "memory" not in texts
    lines = [one.get("d") for one in drawing.iter("{http://www.w3.org/2000/svg}path")]
    assert max(len(line or "") for line in lines) > 100


# -- live ------------------------------------------------------------------------------------


def test_changes_appear_without_a_reload(open_page: OpenPage) -> None:
    objects, version = crowded(), 1

    def read() -> list[KubeObject]:
        return objects

    source = ManifestSource("t", read, lambda: version, STOCK, lambda: START_S)
    with served(source) as server:
        page = open_page(f"http://127.0.0.1:{server.port}/#/waiting")
        page.get_by_role("heading", name="4 pods: too little cpu is free").wait_for()
        objects = [*objects, pod("one-more", cpu=3)]
        version = 2
        page.get_by_role("heading", name="5 pods: too little cpu is free").wait_for()
        objects = [*objects, node("c", cpu=64)]
        version = 3
        page.get_by_text("No pod is pending.").wait_for()


def test_unreachable_server_is_reported(open_page: OpenPage) -> None:
    """The last state stays visible."""
    with served(manifests(crowded())) as server:
        page = open_page(f"http://127.0.0.1:{server.port}/#/waiting")
        page.get_by_role("heading", name="4 pods").wait_for()
    page.get_by_text("the server does not respond").wait_for()
    assert page.get_by_role("heading", name="4 pods").is_visible()


def test_page_reconnects_to_a_restarted_server(open_page: OpenPage) -> None:
    """The map keeps its zoom."""
    with served(manifests(crowded())) as server:
        port = server.port
        page = open_page(f"http://127.0.0.1:{port}/#/map")
        page.get_by_role("application", name="Map of 2 nodes").wait_for()
        page.get_by_role("button", name="Zoom in").click()
        reset = page.get_by_role("button", name="all", exact=True)
        assert reset.is_enabled()
    page.get_by_text("the server does not respond").wait_for()
    with served(manifests([*crowded(), pod("one-more", cpu=3)]), port=port):
        page.get_by_text("the server does not respond").wait_for(state="detached", timeout=20_000)
        page.get_by_role("link", name="Pending pods").get_by_text("5", exact=True).wait_for()
        assert reset.is_enabled()


def test_map_of_5000_nodes_zooms_smoothly(open_page: OpenPage) -> None:
    """The map is one canvas, not an element per node.

    Without a GPU and on a busy machine, 19 of 20 frames come within a fifth of a second; the
    benchmark dashboard-frames measures the usual rate.
    """
    with served(manifests([node(f"n{number}", cpu=8) for number in range(5000)])) as server:
        page = open_page(f"http://127.0.0.1:{server.port}/#/map")
        page.get_by_role("application", name="Map of 5000 nodes").wait_for()
        assert page.evaluate("document.querySelectorAll('*').length") < 300
        box = page.get_by_role("application").bounding_box()
        page.mouse.move(box["x"] + 5, box["y"] + 25)
        page.get_by_text("n0 \N{MIDDLE DOT}").wait_for()
        shown = page.evaluate(Path(__file__).with_name("move_the_map.js").read_text())
    assert shown[len(shown) * 19 // 20] < 200


def test_map_zooms_by_keys_and_buttons(open_page: OpenPage, url: str) -> None:
    page = open_page(url + "#/map")
    canvas = page.get_by_role("application")
    canvas.focus()
    reset = page.get_by_role("button", name="all", exact=True)
    assert reset.is_disabled()
    for _ in range(4):
        page.keyboard.press("+")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
    reset.click()
    assert reset.is_disabled()


# -- comparison and access -------------------------------------------------------------------


def test_run_is_compared_with_a_saved_run(open_page: OpenPage, tmp_path: Path) -> None:
    """The page draws the curves of both and a table with their means."""
    with served(manifests(cluster(), CONFIG)) as busy, served(manifests(gpu_node("g", 8))) as idle:
        page = open_page(f"http://127.0.0.1:{busy.port}/#/time")
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save this run").click()
        saved.value.save_as(tmp_path / "saved.json")
        page = open_page(f"http://127.0.0.1:{idle.port}/#/time")
        chosen = page.get_by_label("compare with a report or a saved run")
        chosen.set_input_files(tmp_path / "saved.json")
        page.get_by_text("dashed: test (saved").wait_for()
        page.get_by_role("button", name="GPU, the other").wait_for()
        page.get_by_role("rowheader", name="GPU allocation").wait_for()


def test_run_is_compared_with_another_configuration(open_page: OpenPage) -> None:
    """The second run has dashed curves and GPU bars of its own."""
    busy = [*gpu_node("g", 8), gpu_pod("p", "g", minors=[0], gpu_core=100, gpu_memory_ratio=100)]
    with served(manifests(gpu_node("g", 8)), other=manifests(busy)) as server:
        page = open_page(f"http://127.0.0.1:{server.port}/#/time")
        page.get_by_text("dashed: the same run with policy.yaml").wait_for()
        page.get_by_role("button", name="GPU, policy.yaml 12.5%").wait_for()
        page.get_by_role("heading", name="Allocation of GPUs with policy.yaml").wait_for()
        page.get_by_role("application", name="GPUs over time: 8 GPUs, 1 bars").wait_for()


def test_ended_run_has_a_report_view(open_page: OpenPage) -> None:
    run = Simulation(read_workload("examples/small-gpu-cluster.yaml"), until_s=7200.0)
    with served(SimulationSource(run, default_profile(), SystemClock())) as server:
        page = open_page(f"http://127.0.0.1:{server.port}/#/waiting")
        page.get_by_role("navigation").get_by_role("link", name="Report").click()
        page.get_by_text("Pods scheduled").wait_for()
        assert page.locator("figure canvas").count() >= 6
        page.keyboard.press("7")
        page.get_by_role("heading", level=1, name="Report").wait_for()


def test_hostile_names_are_shown_as_text(open_page: OpenPage) -> None:
    objects = [
        node(HOSTILE, cpu=1, labels={"koordinator.sh/node-pool": HOSTILE}),
        pod(HOSTILE, cpu=9, namespace=HOSTILE, schedulerName="default-scheduler"),
    ]
    with served(manifests(objects)) as server:
        page = open_page(f"http://127.0.0.1:{server.port}/#/waiting")
        page.get_by_text(f"{HOSTILE}/{HOSTILE}").wait_for()
        page.get_by_role("link", name=HOSTILE).first.click()
        page.get_by_role("heading", name="Nearest nodes").wait_for()
        for view in VIEWS:
            page.goto(f"http://127.0.0.1:{server.port}/#/{view}")
            page.get_by_role("heading", level=1).first.wait_for()
        assert page.locator("script").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", [*VIEWS, "waiting/blue%2Fbatch-0", "map/gpu-1"])
def test_rules_of_accessibility(open_page: OpenPage, url: str, view: str, scheme: str) -> None:
    """The axe rules hold in every view, dark and light."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(f"{url}#/{view}", color_scheme=scheme)
    page.get_by_role("heading", level=1).first.wait_for()
    page.get_by_text("pending pods", exact=True).wait_for()
    violations = axe.Axe().run(page).response["violations"]
    assert [(one["id"], [each["html"] for each in one["nodes"]][:3]) for one in violations] == []


@pytest.mark.parametrize("view", [*VIEWS, "waiting/blue%2Fbatch-0", "map/gpu-1"])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (3840, 2160)])
def test_page_fits_phones_and_large_screens(
    open_page: OpenPage, url: str, view: str, width: int, height: int
) -> None:
    """Tables scroll by themselves."""
    page = open_page(f"{url}#/{view}", width=width, height=height)
    page.get_by_role("heading", level=1).first.wait_for()
    page.get_by_text("pending pods", exact=True).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_views_are_usable_by_keyboard(open_page: OpenPage, url: str) -> None:
    """Digits open views, a slash focuses the search, Escape closes."""
    page = open_page(url + "#/waiting")
    page.get_by_role("heading", name="Pending pods").wait_for()
    page.keyboard.press("3")
    page.get_by_role("heading", name="Quotas").wait_for()
    page.keyboard.press("1")
    page.get_by_role("heading", name="Pending pods").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("ring")
    page.get_by_role("link", name="blue/batch-0").wait_for(state="detached")
    page.get_by_role("link", name="red/ring-0").wait_for()


def test_chosen_theme_is_kept(open_page: OpenPage, url: str) -> None:
    page = open_page(url, color_scheme="light")
    page.get_by_label("colours").select_option("dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    page.get_by_text("pending pods", exact=True).wait_for()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


@pytest.mark.parametrize("view", ["waiting/blue%2Fbatch-0", "map/gpu-1", "shares"])
def test_screenshots(open_page: OpenPage, url: str, view: str, tmp_path: Path) -> None:
    """SCREENSHOTS names the folder for the screenshots of the documentation."""
    page = open_page(f"{url}#/{view}", width=1200, height=760)
    page.get_by_text("pending pods", exact=True).wait_for()
    page.get_by_text("live", exact=True).wait_for()
    page.wait_for_selector(".card, .detail table")
    folder = Path(os.environ.get("SCREENSHOTS") or tmp_path)
    path = folder / f"dashboard-{view.partition('/')[0]}.png"
    page.screenshot(path=path)
    assert path.stat().st_size > 10_000
