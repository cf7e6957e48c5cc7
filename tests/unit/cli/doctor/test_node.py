"""``koord doctor node``: cgroups, kernel features and the runtime of a machine in memory."""

import json
from pathlib import Path

import pytest
from tests.memory_host import MemoryHost
from typer.testing import CliRunner

from koordinator.cli.doctor.findings import CheckResult, FindingSeverity
from koordinator.cli.doctor.node import (
    NEEDS,
    CheckedMachine,
    check_cgroups,
    check_kernel,
    check_runtime,
)
from koordinator.cli.main import app
from koordinator.foundation.errors import InputError
from koordinator.host.port import HOST, NoCoreScheduling
from koordinator.koordlet.app.options import OFF, ON

PODS = "/sys/fs/cgroup/kubepods.slice"
V2 = {
    "/sys/fs/cgroup/cgroup.controllers": "cpu cpuset io memory pids",
    f"{PODS}/cgroup.controllers": "cpu cpuset io memory pids",
    f"{PODS}/cpu.max.burst": "0",
    "/proc/sys/kernel/osrelease": "6.12.0\n",
}
FEATURES = {
    "/proc/pressure/cpu": "some avg10=0.00",
    "/sys/bus/event_source/devices/cpu/type": "4",
    "/sys/fs/resctrl/schemata": "L3:0=fff",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0",
    "/sys/kernel/mm/kidled/scan_period_in_seconds": "120",
    "/sys/class/infiniband/mlx5_0/fw_ver": "1",
    "/var/lib/kubelet/plugins_registry/a": "",
    "/var/lib/terway/qos/a": "",
    f"{PODS}/cpu.bvt_warp_ns": "0",
}


class HasCoreScheduling(NoCoreScheduling):
    """Kernel with core scheduling."""

    def is_available(self) -> bool:
        return True


def machine(files: dict[str, str], stated: str = "", *, has_all: bool = False) -> CheckedMachine:
    """Return a machine with files, whose agent has only the gates of a list."""
    gates = frozenset(filter(None, stated.split(",")))
    return CheckedMachine(
        files=MemoryHost(files),
        roots=HOST,
        core_scheduling=HasCoreScheduling() if has_all else NoCoreScheduling(),
        gates=gates,
        stated=gates,
        is_socket=lambda _: has_all,
        has_program=lambda _: has_all,
        has_module=lambda _: has_all,
    )


def problems(check: CheckResult) -> list[str]:
    return [it.problem for it in check.findings if it.severity is FindingSeverity.PROBLEM]


def test_version_driver_and_place_of_the_cgroups_are_shown() -> None:
    """A machine whose kubelet has created its cgroups is healthy."""
    check, _, layout = check_cgroups(machine(V2))

    assert check.is_healthy
    assert check.summary == "version 2, driver systemd, pods in kubepods.slice"
    assert layout is not None


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "has no cgroups"),
        ({"/sys/fs/cgroup/cgroup.controllers": "cpu"}, "has neither kubepods nor kubepods.slice"),
        ({**V2, f"{PODS}/cgroup.controllers": "memory"}, "lacks the controllers cpu, cpuset, io"),
        (
            {**V2, "/var/lib/kubelet/config.yaml": "memoryThrottlingFactor: 0.9"},
            "the kubelet writes files of koordlet's memory QoS",
        ),
    ],
)
def test_cgroups_that_the_agent_cannot_use_are_found(files: dict[str, str], problem: str) -> None:
    """Each problem has a remedy."""
    check, _, _ = check_cgroups(machine(files))

    (finding,) = check.findings
    assert problem in finding.problem
    assert finding.remedy


def kernel(checked: CheckedMachine) -> CheckResult:
    _, tree, layout = check_cgroups(checked)
    return check_kernel(checked, tree, layout)


@pytest.mark.parametrize("gate", [gate for need in NEEDS for gate in need.gates])
def test_gate_is_a_problem_without_its_feature_and_none_with_it(gate: str) -> None:
    """The table covers gates that exist, and no check is always met or never."""
    bare = {path: text for path, text in V2.items() if not path.endswith("burst")}
    assert gate in ON | OFF
    assert len(problems(kernel(machine(bare, gate)))) == 1
    assert problems(kernel(machine(V2 | FEATURES, gate, has_all=True))) == []


def test_gate_that_no_flag_names_gets_a_note_only() -> None:
    """Gates that are on by default must not make every mainline kernel a problem."""
    checked = machine(V2)
    by_default = CheckedMachine(
        files=checked.files,
        roots=HOST,
        core_scheduling=NoCoreScheduling(),
        gates=frozenset({"GroupIdentity"}),
        stated=frozenset(),
        is_socket=lambda _: False,
    )
    check = kernel(by_default)

    assert check.is_healthy
    assert [each.severity for each in check.findings] == [FindingSeverity.NOTE]
    assert check.summary == "Linux 6.12.0; 1 features for 1 gates"


def test_runtime_without_nri_gets_a_note() -> None:
    """The agent works without it, only later."""
    assert check_runtime(machine(V2, has_all=True)).findings == ()
    assert [it.severity for it in check_runtime(machine(V2)).findings] == [FindingSeverity.NOTE]


def test_command_reads_the_folders_of_the_flags(tmp_path: Path) -> None:
    """The exit code is 1 for a folder without cgroups; the report is JSON."""
    flags = ["--cgroup-root-dir", str(tmp_path / "none"), "-o", "json"]
    done = CliRunner().invoke(app, ["doctor", "node", *flags])

    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert (report["target"], report["healthy"]) == ("node", False)
    assert report["findings"][0]["about"] == str(tmp_path / "none")


def test_unknown_gate_is_wrong_input() -> None:
    """The error is the one that the agent prints."""
    done = CliRunner().invoke(app, ["doctor", "node", "--feature-gates", "Nonsense=true"])

    assert isinstance(done.exception, InputError)
