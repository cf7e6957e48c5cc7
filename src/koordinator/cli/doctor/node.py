"""Checks of a machine: cgroups, kernel features, and the gates of the agent that need them."""

import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from koordinator.cli.doctor.findings import CheckResult, Finding, FindingSeverity
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.foundation.errors import HostError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import CoreScheduling, Files, Roots
from koordinator.koordlet.cgroup_tree import CgroupTree, find_version
from koordinator.koordlet.collectors.kubelet import read_kubelet_config
from koordinator.koordlet.qos.tc_network import TC

CGROUP_CHECK: Final = "cgroups"
KERNEL_CHECK: Final = "kernel features"
RUNTIME_CHECK: Final = "container runtime"
#: Controllers that the agent uses on cgroup v2; the kubelet enables them for pods.
CONTROLLERS: Final = ("cpu", "cpuset", "io", "memory")


def _is_socket(path: str) -> bool:
    return Path(path).is_socket()


def _has_program(name: str) -> bool:
    return shutil.which(name) is not None


def _has_module(name: str) -> bool:
    return find_spec(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedMachine:
    """Checked machine; the last fields read sockets, programs and modules."""

    files: Files
    roots: Roots
    core_scheduling: CoreScheduling
    gates: frozenset[str]
    stated: frozenset[str]  # gates that a flag names
    kubelet_cgroup_root: tuple[str, ...] | None = None
    is_socket: Callable[[str], bool] = _is_socket
    has_program: Callable[[str], bool] = _has_program
    has_module: Callable[[str], bool] = _has_module


@dataclass(frozen=True, slots=True)
class FeatureNeed:
    """Feature of a machine that gates of the agent need, and how to get it."""

    gates: tuple[str, ...]
    feature: str  # completes "the gate needs …"
    remedy: str
    is_met: Callable[[CheckedMachine, CgroupTree, CgroupLayout], bool]


#: Cgroup files are looked for in the cgroup of all pods, as the root has fewer.
NEEDS: Final = (
    FeatureNeed(
        ("CPUBurst",),
        "CPU burst (cpu.cfs_burst_us or cpu.max.burst)",
        "use Linux 5.14 or later; without it the agent only scales quotas",
        lambda _, tree, layout: _has_file(tree, CgroupFile.CFS_BURST, layout),
    ),
    FeatureNeed(
        ("GroupIdentity",),
        "group identity (cpu.bvt_warp_ns)",
        "use a kernel with bvt, such as Anolis OS, or core scheduling: cpuPolicy coreSched",
        lambda _, tree, layout: _has_file(tree, CgroupFile.BVT_WARP, layout),
    ),
    FeatureNeed(
        ("CoreSched",),
        "core scheduling",
        "use Linux 5.14 or later with CONFIG_SCHED_CORE, on a machine with SMT",
        lambda machine, _, __: machine.core_scheduling.is_available(),
    ),
    FeatureNeed(
        ("RdtResctrl", "Resctrl", "ResctrlCollector"),
        "resctrl (allocation of caches and memory bandwidth)",
        "use a CPU with Intel RDT or AMD QoS, and boot with rdt=cmt,mbmtotal,mbmlocal,l3cat,mba",
        lambda machine, _, __: machine.files.exists(machine.roots.resctrl),
    ),
    FeatureNeed(
        ("PSICollector",),
        "pressure stall information (/proc/pressure)",
        "use Linux 4.20 or later with CONFIG_PSI, and boot with psi=1",
        lambda machine, _, __: machine.files.exists(f"{machine.roots.proc}/pressure/cpu"),
    ),
    FeatureNeed(
        ("CPICollector",),
        "hardware performance counters",
        "use a machine, or a virtual one with a virtual PMU, whose kernel exposes them",
        lambda machine, _, __: _has_counters(machine),
    ),
    FeatureNeed(
        ("ColdPageCollector",),
        "kidled (measurement of cold pages)",
        "use a kernel with kidled, such as Anolis OS",
        lambda machine, _, __: machine.files.exists(f"{machine.roots.sys}/kernel/mm/kidled"),
    ),
    FeatureNeed(
        ("HugePageReport",),
        "huge pages",
        "use a kernel with CONFIG_HUGETLBFS",
        lambda machine, _, __: machine.files.exists(f"{machine.roots.sys}/kernel/mm/hugepages"),
    ),
    FeatureNeed(
        ("RDMADevices", "RDMADeviceInject"),
        "RDMA devices (/sys/class/infiniband)",
        "load the driver of the cards, or turn the gate off on nodes without them",
        lambda machine, _, __: machine.files.exists(f"{machine.roots.sys}/class/infiniband"),
    ),
    FeatureNeed(
        ("GPUResourceSlices", "DRAConsumableCapacity"),
        "the kubelet's folder of plugins",
        "mount its plugins_registry into the agent: koordlet.hostDirs.kubeletLibDir of the chart",
        lambda machine, _, __: machine.files.exists(f"{machine.roots.kubelet}/plugins_registry"),
    ),
    FeatureNeed(
        ("PodResourcesProxy",),
        "the kubelet's PodResources socket, and grpcio",
        "mount /var/lib/kubelet/pod-resources, and install koordinator[pod-resources]",
        lambda machine, _, __: (
            machine.is_socket(f"{machine.roots.kubelet}/pod-resources/kubelet.sock")
            and machine.has_module("grpc")
        ),
    ),
    FeatureNeed(
        ("TCNetworkQoS",),
        "the programs tc, ipset and iptables",
        "install iproute2, ipset and iptables; the image has them",
        lambda machine, _, __: all(map(machine.has_program, (TC, "ipset", "iptables"))),
    ),
    FeatureNeed(
        ("TerwayQoS",),
        "the folder of Terway's QoS settings",
        "use Terway as the network plugin, and mount its folder into the agent",
        lambda machine, _, __: machine.files.exists(machine.roots.terway),
    ),
)


def check_cgroups(machine: CheckedMachine) -> tuple[CheckResult, CgroupTree, CgroupLayout | None]:
    """Check version and driver of the cgroups, and the cgroup of all pods."""
    files, roots = machine.files, machine.roots
    tree = CgroupTree(files, roots.cgroup, find_version(files, roots.cgroup))
    kubelet = read_kubelet_config(files, roots)
    layout = tree.find_layout(machine.kubelet_cgroup_root or kubelet.cgroup_root)
    findings = list(_cgroup_findings(machine, tree, layout, kubelet.memory_problem))
    place = f"driver {layout.driver}, pods in {layout.kubepods}" if layout else "no cgroup of pods"
    summary = f"version {tree.version.value}, {place}"
    return CheckResult(name=CGROUP_CHECK, summary=summary, findings=tuple(findings)), tree, layout


def _cgroup_findings(
    machine: CheckedMachine, tree: CgroupTree, layout: CgroupLayout | None, memory_problem: str
) -> Iterator[Finding]:
    root = machine.roots.cgroup
    if not machine.files.exists(root):
        remedy = "mount the cgroups of the machine, or name their folder: --cgroup-root-dir"
        yield _finding(CGROUP_CHECK, root, "has no cgroups", remedy)
        return
    if layout is None:
        yield _finding(
            CGROUP_CHECK,
            root,
            "has neither kubepods nor kubepods.slice, so the agent cannot measure pods",
            "start the kubelet with cgroupsPerQOS: true, or name its cgroupRoot: "
            "--kubelet-cgroup-root",
        )
    elif tree.version.name == "V2":
        path = f"{root}/{layout.kubepods}/cgroup.controllers"
        try:
            enabled = machine.files.read(path).split()
        except HostError as error:
            yield _finding(CGROUP_CHECK, path, str(error), "run the command as root")
            enabled = list(CONTROLLERS)
        missing = [name for name in CONTROLLERS if name not in enabled]
        if missing:
            yield _finding(
                CGROUP_CHECK,
                path,
                f"lacks the controllers {', '.join(missing)}",
                "enable them in cgroup.subtree_control of every folder above, or boot a kernel "
                "that has them",
            )
    if memory_problem:
        remedy = "set the kubelet's feature gate MemoryQoS to false, or memory QoS of the NodeSLO"
        yield _finding(CGROUP_CHECK, "kubelet", memory_problem, remedy)


def check_kernel(
    machine: CheckedMachine, tree: CgroupTree, layout: CgroupLayout | None
) -> CheckResult:
    """Check requirements of the agent's gates; gates that no flag names only get a note."""
    findings = []
    checked = 0
    for need in NEEDS:
        gates = [name for name in need.gates if name in machine.gates]
        if not gates:
            continue
        checked += 1
        if not need.is_met(machine, tree, layout or CgroupLayout()):
            is_stated = not machine.stated.isdisjoint(gates)
            severity = FindingSeverity.PROBLEM if is_stated else FindingSeverity.NOTE
            about, problem = (
                f"gate {', '.join(gates)}",
                f"needs {need.feature}, which this machine lacks",
            )
            findings.append(_finding(KERNEL_CHECK, about, problem, need.remedy, severity))
    try:
        release = machine.files.read(machine.roots.sysctl("kernel/osrelease")).strip()
    except HostError:
        release = "unknown"
    summary = f"Linux {release}; {checked} features for {len(machine.gates)} gates"
    return CheckResult(name=KERNEL_CHECK, summary=summary, findings=tuple(findings))


def check_runtime(machine: CheckedMachine) -> CheckResult:
    """Check that the container runtime accepts NRI plugins."""
    path = f"{machine.roots.var_run}/nri/nri.sock"
    if machine.is_socket(path):
        return CheckResult(name=RUNTIME_CHECK, summary=f"NRI at {path}")
    finding = _finding(
        RUNTIME_CHECK,
        path,
        "is no socket, so containers get their settings only after they have started",
        "enable NRI in the runtime (containerd 1.7 or later, CRI-O 1.26 or later), or start the "
        "agent with --runtime-hooks-addr for a runtime with a proxy",
        FindingSeverity.NOTE,
    )
    return CheckResult(name=RUNTIME_CHECK, summary="no NRI", findings=(finding,))


def _has_file(tree: CgroupTree, file: CgroupFile, layout: CgroupLayout) -> bool:
    try:
        tree.read(file, layout.kubepods)
    except HostError:
        return False
    return True


def _has_counters(machine: CheckedMachine) -> bool:
    sources = machine.files.names(f"{machine.roots.sys}/bus/event_source/devices")
    return any(name.startswith(("cpu", "armv8_pmu")) for name in sources)


def _finding(
    check: str,
    about: str,
    problem: str,
    remedy: str,
    severity: FindingSeverity = FindingSeverity.PROBLEM,
) -> Finding:
    return Finding(check=check, about=about, problem=problem, remedy=remedy, severity=severity)
