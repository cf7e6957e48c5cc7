"""Discovery of the machine, once a minute: CPUs, caches, accelerators, RDMA cards, pods' cgroups.

The result is the hardware at the last reading, and the ``Machine`` that strategies see.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/nodeinfo; pkg/koordlet/util/cpuinfo.go
(with lscpu); Linux Documentation/admin-guide/cputopology.rst.
"""

import logging
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final

from koordinator.api.annotations.numa import CpuBasicInfo, CpuInfo, PodCpuAllocation
from koordinator.api.node import Node
from koordinator.api.qos import QosClass
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.domain.devices.requests import Xpu
from koordinator.foundation.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import bits_of
from koordinator.host.gpus import Gpu, Gpus
from koordinator.host.port import Files, Host, Roots
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.app.options import KoordletOptions
from koordinator.koordlet.cgroup_tree import DEEPEST_ROOT, CgroupTree
from koordinator.koordlet.collectors.accelerators import RdmaFunction, rdma_functions, read_xpus
from koordinator.koordlet.collectors.context import read_text
from koordinator.koordlet.collectors.kubelet import (
    KubeletConfig,
    KubeletState,
    has_ended,
    read_kubelet_config,
    read_kubelet_state,
)
from koordinator.koordlet.kernel_readings import CpuModel, cpu_model, memory_info
from koordinator.koordlet.qos.resctrl import ResctrlFacts, parse_schemata
from koordinator.koordlet.report.topology import HUGE_PAGES, NumaMemory
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.pods import PodView

log = logging.getLogger(__name__)

_KIB = 1024

#: Longest wait for the kubelet to create the cgroups above all pods.
LONGEST_WAIT_FOR_CGROUPS_S: Final = 60.0
_ADVICE: Final = "set --kubelet-cgroup-root to the kubelet's cgroupRoot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Hardware of the machine at the last reading."""

    cpus: tuple[CpuInfo, ...] = ()
    basics: CpuBasicInfo = field(default_factory=CpuBasicInfo)
    zones: dict[int, NumaMemory] = field(default_factory=dict)
    kubelet: KubeletState = field(default_factory=KubeletState)
    kubelet_config: KubeletConfig = field(default_factory=KubeletConfig)
    gpus: Sequence[Gpu] = ()
    gpu_problem: str = ""  # why the accelerators are not known; empty if they are
    driver_version: str = ""
    cards: Sequence[RdmaFunction] = ()
    xpus: Sequence[Xpu] = ()


def read_hardware(
    files: Files,
    roots: Roots,
    gpus: Gpus | None,
    before: Hardware,
    *,
    with_cards: bool,
    with_huge_pages: bool,
    xpu_folder: str = "",
) -> Hardware:
    """Read the hardware.  ``gpus`` None skips the driver's GPUs, an empty ``xpu_folder`` XPUs.

    If the GPU driver fails, the GPUs of ``before`` are kept, because pods still use them.
    Raises HostError if the CPUs can't be read.
    """
    cpus = read_cpus(files, roots.sys)
    read = replace(
        before,
        cpus=cpus,
        basics=_basics(files, roots, cpus),
        zones=_zones(files, roots, cpus, with_huge_pages=with_huge_pages),
        kubelet=read_kubelet_state(files, roots.kubelet, before.kubelet if before.cpus else None),
        kubelet_config=read_kubelet_config(files, roots),
    )
    return refresh_accelerators(
        files, roots, gpus, read, with_cards=with_cards, xpu_folder=xpu_folder
    )


def refresh_accelerators(
    files: Files,
    roots: Roots,
    gpus: Gpus | None,
    before: Hardware,
    *,
    with_cards: bool,
    xpu_folder: str = "",
) -> Hardware:
    """Return ``before`` with the current accelerators, RDMA cards, and their health.

    See ``read_hardware`` for the arguments.
    """
    problems: list[str] = []
    known = _gpus(gpus, before, problems)
    described: Sequence[Xpu] = ()
    if xpu_folder:
        unreadable: list[str] = []
        described = read_xpus(files, xpu_folder, before.xpus, unreadable.append)
        problems += () if before.xpus else unreadable
    return replace(
        before,
        gpus=known,
        gpu_problem="; ".join(problems),
        driver_version=gpus.driver_version if gpus is not None else "",
        cards=rdma_functions(files, roots.sys) if with_cards else (),
        xpus=described,
    )


def _gpus(gpus: Gpus | None, before: Hardware, problems: list[str]) -> Sequence[Gpu]:
    """Return the GPUs of the driver; note the problem if they are not known."""
    if gpus is None:
        return ()
    try:
        return gpus.devices()
    except HostError as error:
        problem = str(error)
        if before.gpus or problem not in before.gpu_problem:
            log.warning("GPUs not readable", extra={"error": problem})
        if not before.gpus:
            problems.append(problem)
        return before.gpus


def resctrl_facts(files: Files, roots: Roots, vendor: str) -> ResctrlFacts | None:
    """Return the caches of the machine; None if resctrl is not mounted."""
    try:
        mask = int(files.read(f"{roots.resctrl}/info/L3/cbm_mask"), 16)
        schemata = parse_schemata(files.read(f"{roots.resctrl}/schemata"))
    except (HostError, ValueError):
        return None
    return ResctrlFacts(
        cache_ids=tuple(schemata.get("L3", ())),
        full_mask=mask,
        vendor=vendor,
        groups=tuple(files.folders(roots.resctrl)),
        has_bandwidth="MB" in schemata,
    )


def _basics(files: Files, roots: Roots, cpus: Sequence[CpuInfo]) -> CpuBasicInfo:
    try:
        model = cpu_model(files.read(f"{roots.proc}/cpuinfo"))
    except HostError:
        model = CpuModel(name="", vendor="", flags=frozenset())
    no_turbo = read_text(files, f"{roots.sys}/devices/system/cpu/intel_pstate/no_turbo")
    return CpuBasicInfo(
        cpu_model=model.name,
        hyper_thread_enabled=len({cpu.core for cpu in cpus}) < len(cpus),
        turbo_enabled=no_turbo == "0",
        cat_l3_cbm_mask=read_text(files, f"{roots.resctrl}/info/L3/cbm_mask"),
        vendor_id=model.vendor,
    )


def _zones(
    files: Files, roots: Roots, cpus: Sequence[CpuInfo], *, with_huge_pages: bool
) -> dict[int, NumaMemory]:
    zones = {}
    for node in sorted({cpu.node for cpu in cpus}):
        folder = f"{roots.sys}/bus/node/devices/node{node}"
        try:
            total = memory_info(files.read(f"{folder}/meminfo")).total
        except (HostError, InputError):
            total = 0
        pages = _huge_pages(files, f"{folder}/hugepages") if with_huge_pages else {}
        zones[node] = NumaMemory(total, pages)
    return zones


def _huge_pages(files: Files, folder: str) -> dict[str, int]:
    """Return the reserved bytes by resource name; 0 for a size without a pool."""
    amounts = {}
    for name, kib in HUGE_PAGES.items():
        text = read_text(files, f"{folder}/hugepages-{kib}kB/nr_hugepages")
        amounts[name] = int(text) * kib * _KIB if text.isdigit() else 0
    return amounts


class CgroupSearch:
    """Search for the layout of the kubelet's cgroups.

    ``stated`` are the parts of the kubelet's ``cgroupRoot``; None if it has to be searched.  The
    agent may start before the kubelet has created any cgroup; a wrong guess would disable
    measuring and enforcement permanently.  If there are still none after a minute (a kubelet with
    ``cgroupsPerQOS: false``), the agent works without them and searches again in each step.
    """

    def __init__(
        self, host: Host, roots: Roots, cgroups: CgroupTree, stated: tuple[str, ...] | None
    ) -> None:
        self.layout = CgroupLayout()
        self.problem = ""  # empty if there is none
        self._host = host
        self._roots = roots
        self._cgroups = cgroups
        self._stated = stated
        self._has_root = False
        self._began_s: float | None = None
        self._lost: frozenset[str] = frozenset()  # UIDs of pods without cgroups at the last check

    def is_over(self, now_s: float) -> bool:
        """Search until there are cgroups; return whether the agent may start working."""
        if self._has_root:
            return True
        if self._began_s is None:
            self._began_s = now_s
        stated = self._stated
        if stated is None:
            stated = read_kubelet_config(self._host, self._roots).cgroup_root
        layout = self._cgroups.find_layout(stated)
        if layout is not None:
            self._has_root = True
            self.layout, self.problem = layout, ""
            return True
        if now_s < self._began_s + LONGEST_WAIT_FOR_CGROUPS_S:
            return False
        searched = f"{stated or '/'} and up to {DEEPEST_ROOT} folders below {self._roots.cgroup}"
        self.problem = (
            "no cgroups of pods: neither kubepods nor kubepods.slice exists in "
            f"{searched}; {_ADVICE}"
        )
        return True

    def check(self, pods: Sequence[PodView]) -> None:
        """Record a problem if no running pod had a cgroup in two consecutive checks."""
        if not self._has_root:
            return
        running = [pod for pod in pods if pod.containers and pod.pod.status.phase == "Running"]
        lost = frozenset(pod.uid for pod in running if not self._cgroups.exists(pod.folder))
        self.problem = ""
        if lost and len(lost) == len(running) and lost & self._lost:
            first = min(pod.folder for pod in running)
            self.problem = f"none of {len(lost)} pods has a cgroup, for example {first}; {_ADVICE}"
        self._lost = lost


def read_cpus(files: Files, sys_root: str) -> tuple[CpuInfo, ...]:
    """Return the online CPUs, ascending by id; cores are numbered across all sockets.

    Raises HostError if the kernel does not list them.
    """
    folder = f"{sys_root}/devices/system/cpu"
    try:
        online = parse_cpu_list(files.read(f"{folder}/online").strip())
    except InputError as error:
        raise HostError(f"invalid CPU list in {folder}/online: {error}") from None
    cpus, cores = [], dict[tuple[int, int, int], int]()
    for cpu in bits_of(online):
        topology = f"{folder}/cpu{cpu}/topology"
        socket = max(_number(files, f"{topology}/physical_package_id", 0), 0)
        die = max(_number(files, f"{topology}/die_id", 0), 0)
        core = (socket, die, _number(files, f"{topology}/core_id", cpu))
        number = cores.setdefault(core, len(cores))
        node = _numa_node(files, f"{folder}/cpu{cpu}")
        cpus.append(CpuInfo(id=cpu, core=number, socket=socket, node=node))
    return tuple(cpus)


def _numa_node(files: Files, folder: str) -> int:
    for name in files.names(folder):
        digits = name.removeprefix("node")
        if digits != name and digits.isdigit():
            return int(digits)
    return 0


def _number(files: Files, path: str, default: int) -> int:
    try:
        return int(files.read(path))
    except (HostError, ValueError):
        return default


class NodeHardware:
    """Readings of the hardware and of the kubelet's settings; ``last`` is the last one."""

    def __init__(
        self, host: Host, gpus: Gpus, options: KoordletOptions, gauges: NodeGauges | None
    ) -> None:
        self.last = Hardware()
        self._host, self._options, self._gauges = host, options, gauges
        has_accelerators = "Accelerators" in options.gates
        self._gpus = gpus if has_accelerators and not options.only_described_xpus else None
        self._xpu_folder = options.xpu_folder if has_accelerators else ""
        #: The last machine and the objects that it was derived from (compared by identity).
        self._machine: tuple[tuple[object, ...], Machine] | None = None
        self._cannot_mount = False
        self._cpu_problem = ""  # why the CPUs are not known

    @property
    def cpu_problem(self) -> str:
        """Why the CPUs, or those that the kubelet has allocated, could not be read just now."""
        return self.last.kubelet.problem if self.last.cpus else self._cpu_problem

    @property
    def kubelet_problem(self) -> str:
        """Conflict of the kubelet's memory settings with the agent's; empty if there is none."""
        writes_memory = "CgroupReconcile" in self._options.gates
        return self.last.kubelet_config.memory_problem if writes_memory else ""

    def read_cpus(self) -> bool:
        """Read the CPUs if they are not known; return whether they are.

        Devices are left to ``refresh``, because their driver may take seconds to start.
        """
        if not self.last.cpus:
            host, roots = self._host, self._options.roots
            try:
                self.last = read_hardware(
                    host, roots, None, self.last, with_cards=False, with_huge_pages=False
                )
            except HostError as error:
                self._cpu_problem = str(error)
        return bool(self.last.cpus)

    def refresh(self) -> bool:
        """Read the hardware; return whether the kubelet has restarted since the last reading."""
        gates, started = self._options.gates, self.last.kubelet_config.started
        try:
            self.last = read_hardware(
                self._host,
                self._options.roots,
                self._gpus,
                self.last,
                with_cards="RDMADevices" in gates,
                with_huge_pages="HugePageReport" in gates,
                xpu_folder=self._xpu_folder,
            )
        except HostError as error:
            log.warning("hardware not readable", extra={"error": error})
            self._count_collections(cpu=False, numa=False)
            return False
        zones = self.last.zones
        self._count_collections(
            cpu=True, numa=bool(zones) and all(zone.total for zone in zones.values())
        )
        return self.last.kubelet_config.started != started

    def refresh_accelerators(self) -> None:
        """Read accelerators, RDMA cards, and their health."""
        self.last = refresh_accelerators(
            self._host,
            self._options.roots,
            self._gpus,
            self.last,
            with_cards="RDMADevices" in self._options.gates,
            xpu_folder=self._xpu_folder,
        )

    def kubelet_has_ended(self) -> bool:
        """Return whether the process of the kubelet has ended since the last reading."""
        return has_ended(self._host, self.last.kubelet_config)

    def detect_kubelet_restart(self) -> bool:
        """Find the process that replaced the kubelet; the kubelet writes cgroups at its start."""
        config, before = read_kubelet_config(self._host, self._options.roots), self.last
        if not config.started:
            return False
        self.last = replace(before, kubelet_config=config)
        return config.started != before.kubelet_config.started

    def caches(self, *, mounting: bool) -> ResctrlFacts | None:
        """Return the caches of the machine; None if resctrl is not mounted.

        With ``mounting`` mount it if it exists; do not retry on a machine that refuses.
        """
        roots, vendor = self._options.roots, self.last.basics.vendor_id
        known = resctrl_facts(self._host, roots, vendor)
        if known is not None or not mounting or self._cannot_mount:
            return known
        if not self._host.exists(roots.resctrl):
            return None
        try:
            self._host.mount("resctrl", roots.resctrl)
        except HostError as error:
            self._cannot_mount = True
            log.warning("resctrl not mounted", extra={"error": error})
            return None
        return resctrl_facts(self._host, roots, vendor)

    def machine(self, node: Node | None, pods: tuple[PodView, ...]) -> Machine:
        """Return the machine; the same object until the node, the hardware or a pod changes.

        Raises HostError if the node is not known yet.
        """
        if node is None:
            raise HostError("the node is not known yet")
        hardware, known = self.last, self._machine
        inputs = (node, hardware, pods)
        if known is not None and all(new is old for new, old in zip(inputs, known[0], strict=True)):
            return known[1]
        allocations = _kubelet_allocations(hardware, pods)
        kubelet = hardware.kubelet
        machine = Machine(node, hardware.cpus, kubelet.policy, allocations, kubelet.is_known)
        self._machine = (inputs, machine)
        return machine

    def _count_collections(self, *, cpu: bool, numa: bool) -> None:
        if self._gauges is None:
            return
        self._gauges.count_collection("cpu", ok=cpu)
        self._gauges.count_collection("numa", ok=numa)
        if "BlkIOReconcile" in self._options.gates:
            has_disks = bool(self._host.names(f"{self._options.roots.sys}/block"))
            self._gauges.count_collection("local_storage", ok=has_disks)


def _kubelet_allocations(
    hardware: Hardware, pods: Sequence[PodView]
) -> tuple[PodCpuAllocation, ...]:
    """Return the CPUs that the kubelet allocated to pods without a scheduler allocation."""
    by_uid: dict[str, PodView] = {pod.uid: pod for pod in pods}
    allocations = []
    for uid, mask in sorted(hardware.kubelet.cpus.items()):
        pod = by_uid.get(uid)
        is_ours = pod is not None and (
            pod.labelled_qos in {QosClass.LS, QosClass.BE} or pod.has_cpu_allocation
        )
        if is_ours:
            continue
        meta = pod.pod.metadata if pod is not None else None
        allocations.append(
            PodCpuAllocation(
                namespace=meta.namespace if meta is not None else "",
                name=meta.name if meta is not None else "",
                uid=uid,
                cpuset=format_cpu_list(mask),
                managed_by_kubelet=True,
            )
        )
    return tuple(allocations)
