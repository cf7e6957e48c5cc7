"""``koord`` itself: what it shows without loading anything, and how it ends."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koordinator.cli.commands import COMMANDS
from koordinator.cli.main import app

KOORD = Path(sys.executable).with_name("koord")
#: What takes long to load, or belongs to one command.
HEAVY = {
    "logging",
    "msgspec",
    "numpy",
    "numba",
    "rich",
    "yaml",
    "pydantic",
    "aiohttp",
    "uvicorn",
    "starlette",
    "cryptography",
    "highspy",
    "koordinator.api",
    "koordinator.scheduler",
    "koordinator.simulator",
    "koordinator.manager",
    "koordinator.koordlet",
    "koordinator.cluster",
    "koordinator.process",
}

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
"""


#: What scheduling a few objects needs none of.
NOT_OF_SCHEDULE = {
    "numba",
    "numpy.ma",
    "numpy.random",
    "pydantic",
    "prometheus_client",
    "aiohttp",
    "highspy",
    "asyncio",
    "email",
    "http",
    "importlib.metadata",
    "re2",
    "rich",
    "socket",
    "ssl",
    "zipfile",
    "koordinator.api.schema",
    "koordinator.foundation.cel",
    "koordinator.scheduler.explanations",
    "koordinator.simulator.colocation",
    "koordinator.simulator.api",
    "koordinator.simulator.run",
    "koordinator.simulator.world",
    "koordinator.simulator.sources",
    "koordinator.process.extender_transport",
    "koordinator.descheduler",
    "koordinator.koordlet",
}
#: Modules of this package that a command may load; each costs about a millisecond.
MOST_MODULES = {"--help": 8, "schedule": 383}


def modules_loaded_by(*args: str, **environment: str) -> tuple[str, set[str]]:
    """Run ``koord``; return its output and the modules that it has loaded."""
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('', *sys.modules, file=sys.stderr, sep='\\n'))\n"
        f"sys.argv = ['koord', *{args!r}]\n"
        "from koordinator.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, set(done.stderr.splitlines())


@pytest.mark.integration
@pytest.mark.parametrize("output", ["table", "json"])
def test_schedule_imports_only_needed_modules(tmp_path: Path, output: str) -> None:
    """Three objects are scheduled without compilers, solvers, metrics and simulations."""
    pods = "".join(
        f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\n"
        "spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}\n"
        for name in ("first", "second")
    )
    manifests = tmp_path / "three.yaml"
    manifests.write_text(f"{NODE}{pods}")

    shown, loaded = modules_loaded_by("schedule", "-f", str(manifests), "-o", output)

    assert "default/second" in shown
    assert NOT_OF_SCHEDULE & loaded == set()
    own = [name for name in loaded if name.startswith("koordinator.")]
    assert len(own) <= MOST_MODULES["schedule"]


@pytest.mark.integration
@pytest.mark.parametrize("args", [["pods"], ["pod", "web"]])
def test_explain_imports_no_converter_of_values_and_no_layout(
    tmp_path: Path, args: list[str]
) -> None:
    """Names of pods are text, and lines are printed as they are."""
    manifests = tmp_path / "two.yaml"
    manifests.write_text(
        f"{NODE}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: default}}\n"
        "spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 9}}}]}\n"
    )

    shown, loaded = modules_loaded_by("explain", *args, "-f", str(manifests))

    assert "default/web" in shown
    assert not {"pydantic", "rich", "numba", "email", "http"} & loaded


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "environment"),
    [
        (["--help"], {}),
        (["--version"], {}),
        ([], {"_KOORD_COMPLETE": "complete_bash", "COMP_WORDS": "koord sch", "COMP_CWORD": "1"}),
    ],
)
def test_help_version_and_completion_load_nothing_heavy(
    args: list[str], environment: dict[str, str]
) -> None:
    """The answers need names and summaries of commands alone."""
    shown, loaded = modules_loaded_by(*args, **environment)

    assert "schedule" in shown or version("koordinator") in shown
    assert "koordinator.cli.main" in loaded
    assert not HEAVY & loaded
    own = [name for name in loaded if name.startswith("koordinator.")]
    assert len(own) <= MOST_MODULES["--help"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_the_first_line_of_its_help(name: str) -> None:
    """The list and the command's own help agree."""
    command = COMMANDS[name].load()

    assert COMMANDS[name].summary == command.help.partition("\n")[0]


def test_a_misspelt_command_is_corrected() -> None:
    """As git does."""
    done = CliRunner().invoke(app, ["shedule"])

    assert done.exit_code == 2
    assert "Did you mean 'schedule'" in done.output


def test_the_completion_of_a_command_shows_its_flags() -> None:
    """Arguments of a command are completed by the command itself."""
    environment = {
        "_KOORD_COMPLETE": "complete_bash",
        "COMP_WORDS": "koord schedule --dry",
        "COMP_CWORD": "2",
    }
    done = CliRunner().invoke(app, [], env=environment, prog_name="koord")

    assert "--dry-run" in done.stdout


@pytest.mark.integration
@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_closed_output_pipe_ends_the_program_quietly(tmp_path: Path, output: str) -> None:
    """As SIGPIPE ends other programs: 141, and not a word."""
    pods = "".join(
        f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{n}-{'x' * 200}}}\n"
        "spec: {containers: [{name: c, image: i}]}\n"
        for n in range(400)  # more than a pipe holds
    )
    (tmp_path / "cluster.yaml").write_text(NODE + pods)

    piped = '"$0" "$@" | head -c 1 >/dev/null; echo "${PIPESTATUS[0]}"'
    done = subprocess.run(
        [
            "/bin/bash",
            "-c",
            piped,
            KOORD,
            "schedule",
            "-f",
            tmp_path / "cluster.yaml",
            "-o",
            output,
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.integration
@pytest.mark.parametrize("command", [["--help"], ["schedule"], ["schedule", "-o", "json"]])
def test_a_full_disk_is_reported_without_a_traceback(tmp_path: Path, command: list[str]) -> None:
    """A redirected output that is not whole ends with exit code 1, no traceback."""
    (tmp_path / "cluster.yaml").write_text(NODE)
    given = ["-f", str(tmp_path / "cluster.yaml")] if command[0] == "schedule" else []

    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [KOORD, *command, *given], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert done.returncode == 1
    assert done.stderr == "failed: standard output: cannot be written: No space left on device\n"


@pytest.mark.slow
@pytest.mark.parametrize("traceback", ["", "1"])
def test_an_internal_error_is_one_line_with_the_flag_for_the_traceback(traceback: str) -> None:
    """Exit code 1; a reporter can add the traceback."""
    script = (
        "from koordinator.cli import main\nmain.app = lambda *_, **__: {}['a\\nb']\nmain.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path), "KOORD_TRACEBACK": traceback},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert ("Traceback" in done.stderr) == bool(traceback)
    if not traceback:
        (line,) = done.stderr.splitlines()
        assert line.startswith("failed: internal error: KeyError: 'a\\nb' (cli/main.py:")
        assert line.endswith("set KOORD_TRACEBACK=1 to get a traceback")
