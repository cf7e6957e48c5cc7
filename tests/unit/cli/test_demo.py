"""``koord demo``: in the browser where there is one, as a report everywhere."""

import signal
import webbrowser
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from koordinator.cli import demo, output
from koordinator.cli.dashboard import command as browser
from koordinator.simulator import Simulation, read_workload

WORKLOAD = "examples/small-gpu-cluster.yaml"


class Terminal:
    """Output to a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def desktop(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sit at a terminal of a desktop."""
    terminal = SimpleNamespace(stdout=Terminal(), stderr=Terminal(), platform="linux")
    monkeypatch.setattr(browser, "sys", terminal)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "get", lambda: None)
    return monkeypatch


def test_a_desktop_has_a_browser(desktop: pytest.MonkeyPatch) -> None:
    """A terminal, a display and a browser: the page can be opened."""
    assert browser.has_browser()
    desktop.delenv("DISPLAY")
    desktop.delenv("WAYLAND_DISPLAY", raising=False)
    assert not browser.has_browser()


def test_a_pipe_gets_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output to a file or pipe is the plain one."""
    monkeypatch.setenv("DISPLAY", ":0")
    assert not browser.has_browser()


@pytest.fixture
def signals() -> Iterator[None]:
    """Leave signals as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_the_run_is_reported_when_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The dashboard stays until Ctrl-C; the report is there, and shown, before that."""
    monkeypatch.setattr(demo, "SHOWN_SPEED", 0.0)
    report = tmp_path / "report.html"
    console: Any = output.console

    def interrupt(**given: bool) -> object:
        signal.raise_signal(signal.SIGINT)
        return console(**given)

    monkeypatch.setattr("koordinator.cli.demo.console", interrupt)
    opened: list[str] = []
    monkeypatch.setattr("koordinator.cli.dashboard.command.webbrowser.open", opened.append)
    demo.show(partial(Simulation, read_workload(WORKLOAD), until_s=3600.0), report)

    assert "<html" in report.read_text()
    assert opened == [report.as_uri()]
    assert "Dashboard: http://localhost:" in capfd.readouterr().err
