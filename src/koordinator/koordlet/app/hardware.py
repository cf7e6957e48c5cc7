"""Hardware of the machine, read once a minute: CPUs, caches, accelerators, RDMA cards.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/nodeinfo; pkg/koordlet/util/cpuinfo.go.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from koordinator.api.annotations.numa import CpuBasicInfo, CpuInfo
from koordinator.domain.devices.xpu import Xpu
from koordinator.foundation.errors import HostError, InputError
from koordinator.host.gpus import Gpu, Gpus
from koordinator.host.port import Files
from koordinator.host.roots import Roots
from koordinator.koordlet.collectors.cpu_topology import read_cpus
from koordinator.koordlet.collectors.kubelet_config import KubeletConfig, read_kubelet_config
from koordinator.koordlet.collectors.kubelet_state import KubeletState, read_kubelet_state
from koordinator.koordlet.collectors.pci import RdmaFunction, rdma_functions
from koordinator.koordlet.collectors.procfs import CpuModel, cpu_model, memory_info
from koordinator.koordlet.collectors.xpu import read_xpus
from koordinator.koordlet.qos.resctrl import ResctrlFacts
from koordinator.koordlet.qos.resctrl_schemata import parse_schemata
from koordinator.koordlet.report.topology import HUGE_PAGES, NumaMemory

log = logging.getLogger(__name__)

_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Hardware of the machine at the last reading."""

    cpus: tuple[CpuInfo, ...] = ()
    basics: CpuBasicInfo = field(default_factory=CpuBasicInfo)
    zones: dict[int, NumaMemory] = field(default_factory=dict)
    kubelet: KubeletState = field(default_factory=KubeletState)
    kubelet_config: KubeletConfig = field(default_factory=KubeletConfig)
    gpus: Sequence[Gpu] = ()
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
    return Hardware(
        cpus=cpus,
        basics=_basics(files, roots, cpus),
        zones=_zones(files, roots, cpus, with_huge_pages=with_huge_pages),
        kubelet=read_kubelet_state(files, roots.kubelet),
        kubelet_config=read_kubelet_config(files, roots),
        gpus=_gpus(gpus, before),
        driver_version=gpus.driver_version if gpus is not None else "",
        cards=rdma_functions(files, roots.sys) if with_cards else (),
        xpus=read_xpus(files, xpu_folder, before.xpus) if xpu_folder else (),
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
    return replace(
        before,
        gpus=_gpus(gpus, before),
        cards=rdma_functions(files, roots.sys) if with_cards else (),
        xpus=read_xpus(files, xpu_folder, before.xpus) if xpu_folder else (),
    )


def _gpus(gpus: Gpus | None, before: Hardware) -> Sequence[Gpu]:
    if gpus is None:
        return ()
    try:
        return gpus.devices()
    except HostError as error:
        log.warning("GPUs not readable", extra={"error": str(error)})
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
    no_turbo = _text(files, f"{roots.sys}/devices/system/cpu/intel_pstate/no_turbo")
    return CpuBasicInfo(
        cpu_model=model.name,
        hyper_thread_enabled=len({cpu.core for cpu in cpus}) < len(cpus),
        turbo_enabled=no_turbo == "0",
        cat_l3_cbm_mask=_text(files, f"{roots.resctrl}/info/L3/cbm_mask"),
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
        text = _text(files, f"{folder}/hugepages-{kib}kB/nr_hugepages")
        amounts[name] = int(text) * kib * _KIB if text.isdigit() else 0
    return amounts


def _text(files: Files, path: str) -> str:
    try:
        return files.read(path).strip()
    except HostError:
        return ""
