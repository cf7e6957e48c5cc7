"""Optional parts: the dashboard, YARN and the research policies may be missing."""

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

#: Runs the cases of its argument: names of packages whose imports fail, and arguments of ``koord``.
#: Prints exit code, standard output and standard error of each.
_WITHOUT = """
import contextlib, importlib.abc, json, sys, tempfile

class Absent(importlib.abc.MetaPathFinder):
    packages = ()

    def covers(self, name):
        return next((it for it in self.packages if name == it or name.startswith(it + ".")), None)

    def find_spec(self, name, path=None, target=None):
        if package := self.covers(name):
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

absent = Absent()
sys.meta_path.insert(0, absent)

def run(words):
    from koordinator.cli.commands import COMMANDS
    from koordinator.cli.main import main
    if words[0] == "load":
        for name in words[1:]:
            COMMANDS[name].load()
        return 0
    sys.argv = ["koord", *words]
    try:
        main()
    except SystemExit as error:
        return error.code or 0
    return 0

results = []
for packages, words in json.loads(sys.argv[1]):
    absent.packages = packages
    assert not list(filter(absent.covers, sys.modules)), "an earlier case has imported them"
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(words)
            sys.stdout.flush()
            sys.stderr.flush()
        out.seek(0)
        err.seek(0)
        results.append((code, out.read(), err.read()))
print(json.dumps(results))
"""
LEAVES = (
    "koordinator.dashboard",
    "koordinator.yarn",
    "koordinator.hadoop",
    "koordinator.simulator.yarn",
    "koordinator.simulator.research",
)
CORE = (
    *(
        "schedule",
        "simulate",
        "experiment",
        "explain",
        "gang",
        "quota",
        "node",
        "scheduler",
        "manager",
    ),
    *("descheduler", "koordlet", "device-daemon", "vgpu-monitor", "audit", "record", "replay"),
    *("crds", "version"),
)
LOAD = ("load", *CORE)
SIMULATE = ("simulate", "-w", "examples/small-gpu-cluster.yaml", "--until", "10m", "-o", "json")
#: Package, extra that brings it, and arguments that need it.
MISSING = [
    ("koordinator.dashboard", "dashboard", ("dashboard", "-w", "absent.yaml")),
    # After the dashboard's case, as this one imports it; before YARN's, which imports Starlette.
    ("starlette", "dashboard", ("dashboard", "-w", "absent.yaml")),
    ("koordinator.yarn", "yarn", ("yarn-operator", "--help")),
    ("koordinator.simulator.research", "research", ("simulate", "--trace", "openb", "--data", ".")),
]


@dataclass(frozen=True)
class Done:
    """Result of one run of ``koord``."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def done() -> dict[tuple[str, ...], Done]:
    """Run all cases in one new process, and return the results by arguments and package."""
    cases: list[tuple[tuple[str, ...], tuple[str, ...]]]
    cases = [(LEAVES, LOAD), (LEAVES, SIMULATE)]
    cases += [((package,), words) for package, _, words in MISSING]
    command = [sys.executable, "-c", _WITHOUT, json.dumps(cases)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    results = json.loads(ended.stdout)
    return {
        (*packages, *words): Done(*result)
        for (packages, words), result in zip(cases, results, strict=True)
    }


@pytest.mark.integration
def test_core_commands_do_not_import_optional_parts(done: dict[tuple[str, ...], Done]) -> None:
    """An import of one of them would have failed."""
    assert done[*LEAVES, *LOAD].code == 0, done[*LEAVES, *LOAD].stderr


@pytest.mark.integration
def test_workload_without_yarn_runs_without_the_yarn_packages(
    done: dict[tuple[str, ...], Done],
) -> None:
    """The result is printed."""
    run = done[*LEAVES, *SIMULATE]
    assert run.code == 0, run.stderr
    assert json.loads(run.stdout)["total"]["scheduled"] > 0


@pytest.mark.integration
@pytest.mark.parametrize(("package", "extra", "words"), MISSING)
def test_missing_extra_is_named(
    done: dict[tuple[str, ...], Done], package: str, extra: str, words: tuple[str, ...]
) -> None:
    """The message has the command that installs it, and the exit status is 2."""
    run = done[package, *words]
    assert run.code == 2, run.stderr
    assert f"pip install 'koordinator[{extra}]'" in " ".join(run.stderr.split())
