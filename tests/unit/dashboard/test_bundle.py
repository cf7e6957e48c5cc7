"""The shipped page matches its sources."""

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FRONTEND, STATIC = ROOT / "frontend", ROOT / "src/koordinator/dashboard/static"
BUILT = ("index.html", "dashboard.js", "dashboard.css", "licenses.txt", "sources.sha256")
OUTSIDE = ("index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts")


def test_bundle_matches_the_sources() -> None:
    """A change of frontend/ needs "make page"."""
    own = [path.relative_to(FRONTEND).as_posix() for path in (FRONTEND / "src").rglob("*.*")]
    digest = hashlib.sha256()
    for name in sorted([*OUTSIDE, *own]):
        digest.update(name.encode() + b"\0" + (FRONTEND / name).read_bytes() + b"\0")

    assert (STATIC / "sources.sha256").read_text().strip() == digest.hexdigest()


def test_help_names_pages_by_their_titles() -> None:
    """The browser's test compares them as well, where there is a browser."""
    source = (FRONTEND / "src/help.tsx").read_text("utf-8")
    links = re.findall(r"\['([a-z-]+)', '([^']+)'\]", source)
    assert len(links) > 10
    for name, title in links:
        first, _, _ = (ROOT / f"docs/how-to/{name}.md").read_text("utf-8").partition("\n")
        assert first == f"# {title}"


def test_page_loads_nothing_from_other_servers() -> None:
    for name in ("index.html", "dashboard.css"):
        text = (STATIC / name).read_text()
        assert "http://" not in text
        assert "https://" not in text


def test_licences_of_bundled_libraries_are_shipped() -> None:
    text = (STATIC / "licenses.txt").read_text()
    assert "preact" in text
    assert "uplot" in text.lower()
    assert text.count("Copyright") >= 2


@pytest.mark.slow
def test_bundle_build_is_reproducible(tmp_path: Path) -> None:
    """The same sources give the same bytes."""
    if shutil.which("node") is None or not (FRONTEND / "node_modules").is_dir():
        pytest.skip("needs node, and frontend/node_modules of: cd frontend && npm install")
    copy = tmp_path / "frontend"
    copy.mkdir()
    for name in OUTSIDE:
        shutil.copy(FRONTEND / name, copy / name)
    shutil.copytree(FRONTEND / "src", copy / "src")
    (copy / "node_modules").symlink_to(FRONTEND / "node_modules")
    (tmp_path / "src/koordinator/dashboard/static").mkdir(parents=True)
    command = ["node", "node_modules/vite/bin/vite.js", "build", "--logLevel", "error"]
    subprocess.run(command, cwd=copy, check=True)
    for name in BUILT:
        made = tmp_path / "src/koordinator/dashboard/static" / name
        assert made.read_bytes() == (STATIC / name).read_bytes(), name
