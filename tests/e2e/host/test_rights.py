"""Operations of the agent with the capabilities that the chart grants without privilege.

``setpriv`` takes all others away before the agent's code runs, on real cgroups and processes.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.host.machine import CGROUPS, missing, remove_cgroup
from tests.unit.deploy.installed import VALUES

_WORK = """
import sys
from koordinator.foundation.errors import HostError
from koordinator.host.linux.host import LinuxHost
from koordinator.host.linux.perf_events import LinuxPerfEvents, PerfEvent

own, pid = sys.argv[1], int(sys.argv[2])
host = LinuxHost()

def sysctl():
    path = "/proc/sys/vm/min_free_kbytes"
    host.write(path, host.read(path).strip())

def count():
    events = LinuxPerfEvents((PerfEvent(1, 0), PerfEvent(1, 1)))
    events.start(f"/sys/fs/cgroup/unified/{own}", [0]).stop()

attempts = {
    "cgroups": lambda: host.write(f"/sys/fs/cgroup/cpu/{own}/pod/c/cpu.shares", "777"),
    "memory": lambda: host.write(f"/sys/fs/cgroup/memory/{own}/memory.limit_in_bytes", "99999744"),
    "mounts": lambda: host.read("/proc/1/mountinfo"),
    "sysctl": sysctl,
    "oom": lambda: host.write(f"/proc/{pid}/oom_score_adj", "500"),
    "perf": count,
    "mount": lambda: host.mount("tmpfs", "/mnt"),
    "kill": lambda: host.kill(pid, f"{own}/pod/c"),
}
for name, attempt in attempts.items():
    try:
        attempt()
        print(name)
    except HostError as error:
        print(name, "refused:", error, file=sys.stderr)
"""
_HIERARCHIES = ("cpu", "memory", "unified")


@pytest.fixture
def own() -> Iterator[str]:
    """Make a pod's cgroup of our own; return its name."""
    problem = missing() or ("" if shutil.which("setpriv") else "needs setpriv")
    if problem or not (CGROUPS / "unified").is_dir():
        pytest.skip(problem or "needs a hybrid hierarchy")
    name = f"koordlet-rights-{os.getpid()}"
    for hierarchy in _HIERARCHIES:
        (CGROUPS / hierarchy / name / "pod/c").mkdir(parents=True)
    yield name
    for hierarchy in _HIERARCHIES:
        for folder in ("pod/c", "pod", ""):
            remove_cgroup(CGROUPS / hierarchy / name / folder)


@pytest.fixture
def foreign(own: str) -> Iterator[int]:
    """Run a process of another user in the cgroup."""
    command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sleep", "600"]
    with subprocess.Popen(command) as process:
        (CGROUPS / "cpu" / own / "pod/c/cgroup.procs").write_text(str(process.pid))
        while Path(f"/proc/{process.pid}").stat().st_uid != 65534:
            pass
        yield process.pid
        process.kill()


def allowed(own: str, pid: int, capabilities: list[str]) -> set[str]:
    """Return what an agent may do with some capabilities."""
    bounds = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
    command = ["setpriv", "--bounding-set", bounds, "--inh-caps", "-all", sys.executable]
    done = subprocess.run(
        [*command, "-c", _WORK, own, str(pid)], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_capabilities_of_the_chart_are_enough(own: str, foreign: int) -> None:
    """For all but mounting resctrl, which the operator does on such a node."""
    # SYS_RESOURCE and SYS_PTRACE can't be tried on a machine that lacks them itself.
    has = {name for name in VALUES["koordlet"]["capabilities"] if is_ours(name)}
    operations = allowed(own, foreign, sorted(has))

    assert operations >= {"cgroups", "memory", "mounts", "sysctl", "oom", "kill"}
    assert "mount" not in operations
    assert (CGROUPS / "cpu" / own / "pod/c/cpu.shares").read_text() == "777\n"
    if "PERFMON" in has:
        assert "perf" in operations


@pytest.mark.parametrize(
    ("without", "lost"), [("KILL", "kill"), ("DAC_OVERRIDE", "oom"), ("PERFMON", "perf")]
)
def test_each_of_them_is_for_something(own: str, foreign: int, without: str, lost: str) -> None:
    """Without one of them the documented feature fails."""
    if not is_ours(without):
        pytest.skip(f"needs {without}")
    stated = [each for each in VALUES["koordlet"]["capabilities"] if is_ours(each)]
    operations = allowed(own, foreign, [each for each in stated if each != without])

    assert {"cgroups", "memory", "mounts", "sysctl"} <= operations
    if lost == "perf" and Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip() < "1":
        pytest.skip("everybody may count here")
    assert lost not in operations


def is_ours(capability: str) -> bool:
    """Return whether these tests have a capability themselves."""
    numbers = {"DAC_OVERRIDE": 1, "KILL": 5, "SYS_PTRACE": 19, "SYS_RESOURCE": 24, "PERFMON": 38}
    (line,) = (
        text
        for text in Path("/proc/self/status").read_text().splitlines()
        if text.startswith("CapEff:")
    )
    return bool(int(line.split()[1], 16) >> numbers[capability] & 1)
