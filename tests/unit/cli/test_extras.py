"""Optional parts: the dashboard, YARN and the research policies may be missing."""

import subprocess
import sys

import pytest

#: Runs ``koord`` with the arguments, while imports of the packages in the first one fail.
_WITHOUT = """
import importlib.abc, sys

PACKAGES = sys.argv[1].split(",")

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        for prefix in PACKAGES:
            if name == prefix or name.startswith(prefix + "."):
                raise ModuleNotFoundError(f"No module named {prefix!r}", name=prefix)

sys.meta_path.insert(0, Absent())
from koordinator.cli.commands import COMMANDS
from koordinator.cli.main import main
if sys.argv[2] == "load":
    for name in sys.argv[3:] or COMMANDS:
        COMMANDS[name].load()
else:
    sys.argv = ["koord", *sys.argv[2:]]
    main()
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


def koord_without(packages: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT, packages, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_core_commands_do_not_import_optional_parts() -> None:
    done = koord_without(",".join(LEAVES), "load", *CORE)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_workload_without_yarn_runs_without_the_yarn_packages() -> None:
    flags = ("simulate", "-w", "examples/small-gpu-cluster.yaml", "--until", "10m", "-o", "json")
    done = koord_without(",".join(LEAVES), *flags)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "extra", "words"),
    [
        ("koordinator.dashboard", "dashboard", ("dashboard", "-w", "absent.yaml")),
        ("starlette", "dashboard", ("dashboard", "-w", "absent.yaml")),
        ("koordinator.yarn", "yarn", ("yarn-operator", "--help")),
        (
            "koordinator.simulator.research",
            "research",
            ("simulate", "--trace", "openb", "--data", "."),
        ),
    ],
)
def test_missing_extra_is_named(package: str, extra: str, words: tuple[str, ...]) -> None:
    """The message has the command that installs it, and the exit status is 2."""
    done = koord_without(package, *words)
    assert done.returncode == 2, done.stderr
    assert f"pip install 'koordinator[{extra}]'" in " ".join(done.stderr.split())
