"""Commands of the how-to pages find their files, and print what the pages show."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from tests.markdown import code_blocks
from typer.testing import CliRunner

from koordinator.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
INPUTS = ("-f", "-w", "--workload", "--recording")
CONFIGURATIONS = ("--config", "--compare-config", "--descheduler-config", "--scheduler-config")
NAMES = ("-", "FILE", "koordinator", "kubernetes", "demo")  # no files
#: Commands of Helm about one release, in a code block or within a sentence.
RELEASE = re.compile(r"helm (?:upgrade|install|uninstall|rollback|get \w+) (?:[^`\n]|\\\n)*")


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go where the examples are, and nothing else."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands(page: str) -> list[tuple[list[str], str]]:
    """Return the commands of koord alone, and what the page prints below each."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    parts = [
        part
        for language, block in fenced
        if language in ("", "console", "sh")
        for part in re.split(
            r"^\$ " if language == "console" else r"^(?=koord )", block, flags=re.MULTILINE
        )
    ]
    parts_of_commands = [part.partition("\n") for part in parts if part.startswith("koord ")]
    return [(shlex.split(line, comments=True)[1:], rest) for line, _, rest in parts_of_commands]


def text_of(page: str) -> str:
    return (ROOT / "docs/how-to" / page).read_text("utf-8")


def answer(page: str, number: int) -> tuple[str, str]:
    """Return what a command of a page prints, and what the page shows of it."""
    arguments, shown = commands(text_of(page))[number]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines()), shown


def as_pattern(shown: str) -> str:
    """Return a pattern of a page's output: a line of … matches any lines."""
    lines = [
        "(?:.*\n)*?" if line.strip() == "…" else f"{re.escape(line)}\n"
        for line in shown.splitlines()
    ]
    return "".join(lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_of_a_command_is_there(page: Path) -> None:
    """Shipped, or printed in the page under its name."""
    text = page.read_text("utf-8")
    for arguments, _ in commands(text):
        pairs = pairwise(arguments)
        for name in [value for flag, value in pairs if flag in (*INPUTS, *CONFIGURATIONS)]:
            made = f"`{name}`" in text or f" > {name}\n" in text
            assert name in NAMES or (ROOT / name).exists() or made, f"{page.name}: {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_helm_name_the_namespace(page: Path) -> None:
    """Without it Helm would look for the release in the namespace of the context."""
    release_commands = RELEASE.findall(page.read_text("utf-8"))

    assert [each for each in release_commands if not re.search(r" (?:-n|--namespace) ", each)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "number"),
    [
        ("explain-pods.md", 0),
        ("explain-pods.md", 1),
        ("schedule-manifests.md", 0),
        ("deschedule.md", 0),
    ],
)
def test_page_shows_the_output_of_its_command(page: str, number: int) -> None:
    """Line by line, where the page has no dots."""
    printed, shown = answer(page, number)

    assert re.fullmatch(as_pattern(shown), printed), printed


def test_page_on_installing_names_every_component_of_the_manifests() -> None:
    """The page has the components of the default values, and the values that omit them."""
    page, installed = text_of("install.md"), (ROOT / "deploy/koordinator.yaml").read_text("utf-8")
    workloads = re.findall(
        r"^kind: (?:Deployment|DaemonSet)\nmetadata:\n(?:  .*\n)*?  name: (\S+)$",
        installed,
        re.MULTILINE,
    )

    assert len(workloads) >= 4
    assert all(f"**{name}**" in page for name in workloads)
    for name in ("manager", "descheduler", "koordlet"):
        assert f"--set {name}.enabled=false" in page


def test_the_claim_of_the_page_gets_its_devices() -> None:
    """The second alternative, as no GPU has so much memory; the objects are the page's."""
    printed, _ = answer("claim-devices.md", 0)
    (manifests, *_) = code_blocks(text_of("claim-devices.md"), "yaml")

    assert (ROOT / "examples/claim-devices.yaml").read_text("utf-8").endswith(manifests)
    (claim,) = json.loads(printed)["placements"][0]["allocation"].values()
    assert [(each["request"], each["device"]) for each in claim] == [
        ("gpu/two", "gpu-0"),
        ("gpu/two", "gpu-1"),
    ]


def test_the_plugin_of_an_installed_package_is_used(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the configuration and the command of the page, found by its entry point."""
    text = text_of("add-a-plugin.md")
    code = code_blocks(text, "python")
    entry_points = re.findall(
        r"```toml\n\[project\.entry-points\.\"(.*?)\"\]\n(.*?)```", text, re.DOTALL
    )
    ((group, line),) = entry_points
    name, _, value = line.strip().partition(" = ")
    package, metadata = checkout / "my_package", checkout / "my_package-0.1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "__init__.py").touch()
    (package / "cheap_nodes.py").write_text(code[0] + code[2])
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {value.strip(chr(34))}\n")
    monkeypatch.syspath_prepend(str(checkout))
    (configuration, *_) = code_blocks(text, "yaml")
    (checkout / "cheap.yaml").write_text(configuration)

    printed, _ = answer("add-a-plugin.md", 0)

    assert "node: cheap" in printed
    assert "CheapNodes: 375" in printed
