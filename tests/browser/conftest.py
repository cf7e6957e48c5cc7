"""Chromium for the browser tests, which are skipped without it."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Start the Chromium of this machine."""
    api = pytest.importorskip("playwright.sync_api", reason="needs make .venv/.ready-browser")
    path = os.environ.get("KOORD_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("needs a Chromium: KOORD_CHROMIUM names it, or PATH has it")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--force-color-profile=srgb"],  # as root in a container
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Open pages; an error or policy violation on a page's console fails the test."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_one(url: str, *, width: int = 1280, height: int = 800, **more: Any) -> Any:
        size = {"width": width, "height": height}
        context = chromium.new_context(viewport=size, reduced_motion="reduce", **more)
        contexts.append(context)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda line: complaints.append(line.text) if "Content Security" in line.text else None,
        )
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.goto(url)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []
