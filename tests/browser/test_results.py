"""Result files in a browser: drawn by the dashboard's bundle, without a server."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from koordinator.dashboard.offline import offline_page
from koordinator.simulator import Simulation, demo_workload
from koordinator.simulator.device_bars import BarJob, BarLanes, DeviceBar
from koordinator.simulator.report import run_page
from koordinator.simulator.run_report import (
    AllocatedShares,
    NodeGroup,
    RunRecorder,
    RunReport,
    RunSample,
)

pytestmark = pytest.mark.slow

OpenPage = Callable[..., Any]
HOSTILE = "<script>alert(1)</script>"
SAMPLES = 60


def report(*, gpus: int = 16, title: str = "A day", waiting: int = 5) -> RunReport:
    """Return a run of an hour with two causes of pending pods and node failures."""
    groups = [NodeGroup(name=HOSTILE, nodes=4, cpu_cores=64, memory_bytes=1 << 38, gpus=gpus)]
    groups.append(NodeGroup(name="cpu", nodes=9, cpu_cores=99, memory_bytes=1 << 39))
    recorder = RunRecorder(title=title, seed=1, groups=groups, parameters={"policy": "binpack"})
    for n in range(SAMPLES):
        recorder.submitted(HOSTILE)
        recorder.scheduled(HOSTILE, 20.0 + n)
        recorder.sample(
            RunSample(
                time_s=60.0 * n,
                pending=waiting + n % 7,
                running=n,
                finished=n,
                failed=0,
                decisions=n,
                scheduling_s=0.1 * n,
                allocated={
                    HOSTILE: AllocatedShares(0.5, 0.4, 0.9),
                    "cpu": AllocatedShares(n / 100, 0.2),
                },
                gpu_fragmentation=0.3 if gpus else None,
                pending_by_reason={"too little cpu is free": waiting, "its gang waits": n % 7},
            )
        )
        recorder.node_failed(60.0 * n, f"node cpu-{n} failed, {n % 3} pods lost")
        recorder.event(60.0 * n + 30, f"node cpu-{n} is back")
    return recorder.finish(wall_s=3.0)


def lanes() -> BarLanes:
    """Return two GPUs: a job on both with one evicted pod, and two pods that share one GPU."""
    train = BarJob("red/train", "red", "", 9, "red/train")
    half = BarJob(f"blue/{HOSTILE}", "blue", "q", 0, f"blue/{HOSTILE}")
    bars = (
        DeviceBar(0, 0, "red/train-0", 0.0, 1200.0, 100, "PreemptionByScheduler: for another"),
        DeviceBar(0, 1, "blue/half-0", 1800.0, None, 50, ""),
        DeviceBar(0, 1, f"blue/{HOSTILE}", 2400.0, 3000.0, 50, ""),
        DeviceBar(1, 0, "red/train-1", 0.0, 3600.0, 100, ""),
    )
    both = (("gpu-0", 0), ("gpu-0", 1))
    return BarLanes(first=0, count=3, since_s=None, lanes=both, jobs=(train, half), bars=bars)


@pytest.fixture
def open_report(open_page: OpenPage, tmp_path: Path) -> OpenPage:
    """Write a report and open the file."""

    def show(of: RunReport, **given: Any) -> Any:
        path = tmp_path / f"{of.title}.html"
        path.write_text(
            offline_page(run_page(of, None, lanes() if of.groups[0].gpus else None)),
            encoding="utf-8",
        )
        page = open_page(path.as_uri(), **given)
        page.get_by_role("heading", level=1, name=of.title).wait_for()
        return page

    return show


def test_report_is_drawn_without_a_server(open_report: OpenPage) -> None:
    """The page has figures, charts with legends, workloads, and names as text."""
    page = open_report(report())
    page.get_by_text("Pods scheduled").wait_for()
    assert page.locator("figure canvas").count() >= 6
    assert page.get_by_role("button", name="too little cpu is free 5").is_visible()
    assert page.get_by_role("cell", name="59").count() == 0  # it is 60 that were submitted
    assert page.get_by_role("rowheader", name=HOSTILE).is_visible()
    assert page.get_by_text(
        "decisions"
    ).first.is_hidden()  # the simulator's own speed is in a folded section


def test_similar_events_share_a_line(open_report: OpenPage) -> None:
    """Failures come first; a line opens into its events."""
    page = open_report(report())
    lines = page.locator(".happened > li")
    assert lines.count() == 2
    assert "60\N{MULTIPLICATION SIGN} node … failed, … pods lost" in lines.first.inner_text()
    page.get_by_text("60\N{MULTIPLICATION SIGN} node … is back").click()
    page.get_by_text("node cpu-7 is back").wait_for()


def test_run_without_gpus_has_no_gpu_figures(open_report: OpenPage) -> None:
    page = open_report(report(gpus=0))
    page.get_by_text("CPU allocated").wait_for()
    assert "GPU" not in page.locator("body").inner_text()


def test_curves_are_usable_by_keyboard(open_report: OpenPage) -> None:
    """Arrow keys move the cursor of all charts; a legend button hides its curve."""
    page = open_report(report())
    chart = page.get_by_role("application", name="Pending pods by cause")
    chart.focus()
    page.keyboard.press("Home")
    page.get_by_text("at 00:00:00").first.wait_for()
    page.keyboard.press("ArrowRight")
    page.get_by_text("at 00:01:00").first.wait_for()
    toggle = page.get_by_role("button", name="too little cpu is free")
    toggle.focus()
    page.keyboard.press("Enter")
    assert toggle.get_attribute("aria-pressed") == "false"


def test_gpu_bars_are_usable_by_keyboard(open_report: OpenPage) -> None:
    """Arrow keys move along a lane and between lanes; an evicted pod has its reason."""
    page = open_report(report())
    chart = page.get_by_role("application", name="GPUs over time: 2 GPUs, 4 bars")
    chart.focus()
    readout = page.locator(".bars .readout")
    for key, text in (
        ("Home", "gpu-0 GPU 0: red/train-0, of red/train, from 00:00:00 to 00:20:00 (20 min); "),
        ("ArrowRight", "gpu-0 GPU 0: blue/half-0"),
        ("ArrowRight", f"blue/{HOSTILE}, 50 % of it, from 00:40:00 to 00:50:00 (10 min)"),
        ("ArrowDown", "gpu-0 GPU 1: red/train-1, of red/train"),
        ("ArrowUp", "gpu-0 GPU 0: red/train-0"),
    ):
        page.keyboard.press(key)
        assert text in readout.inner_text()
    assert "evicted: PreemptionByScheduler: for another" in readout.inner_text()
    assert page.get_by_text("and 1 more GPUs").is_visible()


def test_gpu_bars_are_described_under_the_mouse(open_report: OpenPage) -> None:
    """Pods that share a GPU are side by side in its lane; colours follow the chosen grouping."""
    page = open_report(report())
    page.set_viewport_size({"width": 1280, "height": 2400})
    over = page.locator(".bars .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    at = {"x": box["width"] * 2700 / 3540, "y": box["height"] * 0.12}
    over.hover(position=at)
    assert "blue/half-0" in page.locator(".bars .readout").inner_text()
    over.hover(position={**at, "y": box["height"] * 0.37})
    assert HOSTILE in page.locator(".bars .readout").inner_text()
    assert page.locator(".bars .legend").inner_text().split() == ["red", "blue"]
    page.locator(".bars select").select_option("priority")
    assert page.locator(".bars .legend li").first.inner_text() == "priority 9"


def test_report_is_compared_with_another_report(open_report: OpenPage, tmp_path: Path) -> None:
    """Curves of both are drawn; another file is rejected."""
    other = tmp_path / "other.html"
    page_of_other = run_page(report(title="Another", waiting=9), None, lanes())
    other.write_text(offline_page(page_of_other), encoding="utf-8")
    page = open_report(report())
    page.get_by_label("compare with another report").set_input_files(other)
    page.get_by_text("dashed: Another").wait_for()
    page.get_by_role("button", name="all, the other 12").wait_for()
    assert page.get_by_text("the other: 90.0%").is_visible()  # of the GPUs
    assert page.get_by_role("application", name="GPUs over time").count() == 2
    row = page.get_by_role("row", name="GPU allocation")
    assert row.get_by_role("cell").all_inner_texts() == ["90.0%", "90.0%", "0.0%"]
    nonsense = tmp_path / "n.html"
    nonsense.write_text("<p>no report")
    page.get_by_label("compare with another report").set_input_files(nonsense)
    page.get_by_role("alert").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_rules_of_accessibility(open_report: OpenPage, scheme: str) -> None:
    """The axe rules hold, dark and light."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    # axe is put into the page by a script of the tester, which the page's own policy forbids
    page = open_report(report(), color_scheme=scheme, bypass_csp=True)
    violations = axe.Axe().run(page).response["violations"]
    assert [(one["id"], [each["html"] for each in one["nodes"]][:3]) for one in violations] == []


@pytest.mark.parametrize(("width", "height"), [(390, 844), (3840, 2160)])
def test_report_fits_phones_and_large_screens(
    open_report: OpenPage, width: int, height: int
) -> None:
    """On phones the rows of a table fold, so that no column is outside the page."""
    page = open_report(report(), width=width, height=height)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)"
    assert page.evaluate(f"{cut}.length") == 0


def test_screenshot(open_report: OpenPage, tmp_path: Path) -> None:
    """With SCREENSHOTS the screenshot is of the whole demo, for the documentation."""
    folder = os.environ.get("SCREENSHOTS")
    shown = Simulation(demo_workload()).run().report if folder else report()
    page = open_report(shown, width=1200, height=1100)
    page.wait_for_timeout(500)  # charts are drawn
    path = Path(folder or tmp_path) / "demo-report.png"
    page.screenshot(path=path)
    assert path.stat().st_size > 10_000
