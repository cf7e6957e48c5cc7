"""Output in the README and the page about manifests equals the output of commands and scripts."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koordinator.cli.main import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGE = (ROOT / "docs/how-to/schedule-manifests.md").read_text("utf-8")
READS_MANIFESTS = re.compile(r"```python\n(from koordinator\.simulator import .*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go where the examples are."""
    monkeypatch.chdir(ROOT)


def test_readme_shows_the_example() -> None:
    """The file that the commands name."""
    match = re.search(r"\$ cat (examples/cluster\.yaml)\n(.*?\n)\n", README, re.DOTALL)
    assert match is not None

    assert (ROOT / match[1]).read_text("utf-8") == match[2]


def test_the_explanation_is_that_of_the_same_cluster() -> None:
    """Where it is shown."""
    match = re.search(
        r"\$ koord (explain pod huge -f examples/cluster\.yaml) .*\n((?:.*\n)*?)  …", README
    )
    assert match is not None

    done = CliRunner().invoke(app, shlex.split(match[1]))

    assert done.stdout.startswith(match[2])


def test_the_first_command_prints_what_the_readme_shows() -> None:
    """Literally, but for spaces at the ends of lines."""
    match = re.search(r"\$ koord (schedule -f examples/cluster\.yaml)\n(.*?)```", README, re.DOTALL)
    assert match is not None

    done = CliRunner().invoke(app, shlex.split(match[1]))

    printed = [line.rstrip() for line in done.stdout.splitlines()]
    assert printed == match[2].splitlines()
    assert done.stderr == ""


@pytest.mark.parametrize("text", [README, PAGE], ids=["README", "page"])
def test_scripts_read_manifests_as_shown(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The code block runs as it is printed."""
    (code,) = READS_MANIFESTS.findall(text)

    exec(code, {})  # noqa: S102 -- our own page

    assert capsys.readouterr().out.startswith("[('default/web', 'n1')]")


@pytest.mark.parametrize(
    "page", [README, PAGE, (ROOT / "docs/how-to/describe-a-workload.md").read_text("utf-8")]
)
def test_files_that_pages_name_exist(page: str) -> None:
    """Links and examples; what is written by the reader has no folder."""
    for path in re.findall(r"(?:examples|charts|docs)/[\w./-]*\w", page):
        assert (ROOT / path).exists(), path
