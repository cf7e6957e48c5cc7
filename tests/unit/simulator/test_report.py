"""The report of a run: one HTML file and a table."""

import json
import re
from html.parser import HTMLParser
from io import StringIO
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from rich.console import Console

from koordinator.domain.run_report import Allocation, NodeGroup, RunRecorder, RunReport, RunSample
from koordinator.simulator.report import render_html, summary_table

NASTY = "<script>alert('x')</script> & \"quotes\""
START_S = 5_000.0


def run_report(
    *, n_samples: int = 50, name: str = "GPU servers", started_s: float = START_S
) -> RunReport:
    """Return the report of a run with one group of each sort, a peak in the middle."""
    groups = [
        NodeGroup(name=name, nodes=4, cpu_cores=100, memory_bytes=100 << 30, gpus=32),
        NodeGroup(name="CPU servers", nodes=6, cpu_cores=100, memory_bytes=300 << 30),
    ]
    taker = RunRecorder(
        title=f"Run of {name}",
        seed=42,
        groups=groups,
        parameters={"policy": name},
        started_s=started_s,
    )
    for n in range(n_samples):
        taker.submitted(name)
        taker.scheduled(name, 30.0 + n)
        share = 0.5 if n == n_samples // 2 else 0.25
        taker.sample(
            RunSample(
                time_s=started_s + 10 * n,
                pending=7 + n,
                running=1_234 + n,
                finished=n,
                failed=0,
                decisions=100 * (n + 1),
                scheduling_s=0.05 * (n + 1),
                allocated={name: Allocation(share, 0.1, 0.8), "CPU servers": Allocation(0.75, 0.5)},
                gpu_fragmentation=0.4 if n else None,
                pending_by_reason={f"Insufficient {name}": 4, "too many pods": 3 + n},
            )
        )
    taker.node_failed(started_s + 61, f"node of {name} failed")
    taker.event(started_s + 130, "node is back")
    return taker.finish(wall_s=12.0)


class Page(HTMLParser):
    """Checks that elements nest, and collects texts, attributes and what scripts hold."""

    VOID = frozenset({"meta", "br", "hr", "link", "img", "input"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.data: list[dict[str, object]] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        attributes = self.elements[-1][1] if self.elements else {}
        if self.open[-1:] == ["script"]:
            if attributes.get("type") == "application/json":
                self.data.append(json.loads(data))
        elif self.open[-1:] != ["style"] and data.strip():
            self.texts.append(data)


@pytest.fixture(scope="module")
def html() -> str:
    return render_html(run_report())


def legend(page: Page) -> set[tuple[str, str]]:
    """Return the pairs of a series' name and its last value."""
    return set(zip(page.texts, page.texts[1:], strict=False))


def test_the_page_is_well_formed(html: str) -> None:
    """Every element ends where it should; every drawing is XML with a title and a description."""
    Page(html)
    drawings = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]  # noqa: S314 -- our own

    assert len(drawings) == 6 + 2 + 1
    for drawing in drawings:
        assert drawing.findtext("title")
        assert drawing.findtext("desc")


def test_the_page_needs_nothing_from_elsewhere(html: str) -> None:
    """No address, no import, no image; and the page forbids itself to load anything."""
    page = Page(html)
    loading = {"src", "href", "srcset", "data", "action", "poster", "xlink:href"}

    assert not [a for _, attributes in page.elements for a in attributes if a in loading]
    assert not re.search(r"https?:|@import|url\(|//[a-z]+\.[a-z]", html)
    policy = next(a["content"] for _, a in page.elements if "http-equiv" in a)
    assert str(policy).startswith("default-src 'none'")


def test_key_figures_are_those_fed(html: str) -> None:
    """Allocated GPUs, fragmentation, pods, waits, rate, failures."""
    texts = legend(Page(html))

    assert ("GPU allocated", "80.0%") in texts
    assert ("GPU fragmentation", "40.0%") in texts
    assert ("Pods scheduled", "50") in texts
    assert ("Median wait", "55 s") in texts
    assert ("Throughput", "2,000/s") in texts
    assert ("Node failures", "1") in texts


def test_every_chart_says_its_last_value(html: str) -> None:
    """Beside the name of the series, so that the page can be read without the script."""
    texts = legend(Page(html))

    assert {("GPU", "80.0%"), ("CPU", "50.0%"), ("memory", "40.0%")} <= texts
    assert {("CPU", "25.0%"), ("memory", "10.0%"), ("CPU", "75.0%"), ("memory", "50.0%")} <= texts
    assert {("of the free GPUs", "40.0%"), ("of all GPUs", "8.0%")} <= texts
    assert {("Insufficient GPU servers", "4"), ("too many pods", "52")} <= texts
    assert ("running", "1,283") in texts
    assert ("decisions", "2,000/s") in texts
    assert {("median", "1 min 19 s"), ("95th percentile", "1 min 19 s")} <= texts


def test_charts_carry_the_figures_fed() -> None:
    """What the read-outs show is what was sampled, from the start of the run on."""
    first, *_ = Page(render_html(run_report(n_samples=3))).data

    assert first["x"] == [0, 10, 20]
    assert first["series"] == [[0.8, 0.8, 0.8], [0.5, 0.625, 0.5], [0.4, 0.4, 0.4]]


def test_long_runs_are_thinned_out_without_losing_peaks() -> None:
    """At most 600 points, times ascend, first and last and the peak stay."""
    *charts, _strip = Page(render_html(run_report(n_samples=1_500))).data

    for chart in charts:
        x = np.array(chart["x"])
        assert len(x) <= 600
        assert (np.diff(x) > 0).all()
        assert x[-1] == 14_990
    cpu = charts[0]["series"][1]  # type: ignore[index] # a list, as written above
    assert (max(cpu), cpu[0], cpu[-1]) == (0.625, 0.5, 0.5)


def test_text_of_the_run_can_not_become_markup() -> None:
    """Titles, group names, kinds, reasons, events and parameters are shown as they are."""
    html = render_html(run_report(name=NASTY))
    page = Page(html)

    assert "alert('x')</script>" not in html
    for text in (f"Run of {NASTY}", NASTY, f"Insufficient {NASTY}", f"node of {NASTY} failed"):
        assert text in page.texts


def test_workloads_and_events_are_listed(html: str) -> None:
    """A row per kind and one for all; events with their time since the start."""
    page = Page(html)
    row = ["50", "50", "0", "0", "0", "55 s", "55 s", "1 min 17 s", "1 min 19 s"]

    for kind in ("GPU servers", "all"):
        assert any(
            page.texts[n + 1 : n + 10] == row for n, text in enumerate(page.texts) if text == kind
        )
    assert ("1 min 1 s", "node of GPU servers failed") in legend(page)
    assert ("2 min 10 s", "node is back") in legend(page)


def test_many_events_are_cut_off_with_a_number() -> None:
    """The list ends after 200, the strip has them all."""
    taker = RunRecorder(title="t", seed=1, groups=[])
    for n in range(250):
        taker.event(float(n), f"event {n}")
    html = render_html(taker.finish(wall_s=1.0))

    assert "event 199" in html
    assert "event 200" not in html
    assert "and 50 more" in Page(html).texts


@pytest.mark.parametrize("n_groups", [0, 1])
def test_a_run_in_which_nothing_happened_has_a_page(n_groups: int) -> None:
    """No samples, no pods, no events: dashes and sentences instead of figures."""
    group = NodeGroup(name="a", nodes=0, cpu_cores=0, memory_bytes=0)
    report = RunRecorder(title="empty", seed=0, groups=[group] * n_groups).finish(wall_s=0.0)
    page = Page(render_html(report))

    assert "No pod was pending when a sample was taken." in page.texts
    assert "Nothing happened." in page.texts


def test_a_run_with_one_sample_has_a_page() -> None:
    """The curve is a dot."""
    html = render_html(run_report(n_samples=1))

    assert Page(html).data[0]["x"] == [0]


def test_figures_without_gpus_are_left_out() -> None:
    """A cluster of CPUs has no GPU allocation."""
    group = NodeGroup(name="a", nodes=1, cpu_cores=1, memory_bytes=1)
    page = Page(render_html(RunRecorder(title="t", seed=0, groups=[group]).finish(wall_s=0.0)))

    assert "GPU allocated" not in page.texts


def test_the_table_has_a_row_per_kind_and_one_for_all() -> None:
    """Text in brackets is no style instruction."""
    out = StringIO()
    Console(file=out, width=160).print(summary_table(run_report(name="[red]kind")))
    shown = out.getvalue()

    assert "Run of [red]kind" in shown
    assert re.search(r"\[red\]kind +│ +50 │ +50 │ +0 │ +0 │ +0 │ +55 s │ +55 s", shown)
    assert re.search(r"all +│ +50 │ +50", shown)
    assert "GPU allocated: 80.0%" in shown
