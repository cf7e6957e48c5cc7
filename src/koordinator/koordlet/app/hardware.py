"""Hardware of the node at the last reading, and the machine that strategies see.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/nodeinfo.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from koordinator.api.annotations.numa import PodCpuAllocation
from koordinator.api.node import Node
from koordinator.api.qos import QosClass
from koordinator.foundation.cpu_list import format_cpu_list
from koordinator.foundation.errors import HostError
from koordinator.host.gpus import Gpus
from koordinator.host.port import Host
from koordinator.koordlet.app.discovery import (
    Hardware,
    read_hardware,
    refresh_accelerators,
    resctrl_facts,
)
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.app.options import KoordletOptions
from koordinator.koordlet.collectors.kubelet import has_ended, read_kubelet_config
from koordinator.koordlet.qos.resctrl import ResctrlFacts
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.pods import PodView

log = logging.getLogger(__name__)


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
                log.warning("CPUs not readable", extra={"error": error})
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
        machine = Machine(node, hardware.cpus, hardware.kubelet.policy, allocations)
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
