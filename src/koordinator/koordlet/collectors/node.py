"""Collectors of the node: cpu, memory and disks.

System usage is the usage of the node outside of pods and host applications.  It is derived from
samples of the same round, and omitted while one of them is missing.

Numbers identify whole disks, as blkio requires, not partitions.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/noderesource, nodeinfo, sysresource,
beresource, hostapplication; koordinator pkg/koordlet/metricsadvisor/collectors/nodestorageinfo
(with lsblk, vgs, lvs and findmnt); man 5 proc_pid_mountinfo; Linux
Documentation/ABI/testing/sysfs-block.
"""

import re
from collections.abc import Iterable, Mapping

from koordinator.api.qos import QosClass
from koordinator.api.resource_names import BATCH_CPU
from koordinator.domain.cgroups.files import CFS_PERIOD_US, CgroupFile
from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.files import path_component
from koordinator.foundation.masks import bits_of
from koordinator.host.port import Files
from koordinator.koordlet.collectors.context import CollectionContext, Counters, read_text
from koordinator.koordlet.kernel_readings import busy_ticks, cpu_usage_ns, memory_info, memory_stat
from koordinator.koordlet.metrics import MEMORY_METRICS, Metric

_NANOS = 1e9
_MILLI = 1000

_NUMBER = re.compile(r"[0-9]+:[0-9]+")
_MAPPER_PREFIX = "LVM-"

_DEVICE, _MOUNT_POINT = 2, 4


class NodeCollector:
    """Collector of node usage; ``ticks_per_s`` is the unit of /proc/stat."""

    def __init__(self, interval_s: float, ticks_per_s: float) -> None:
        self._counters = Counters(interval_s)
        self._ticks_per_s = ticks_per_s

    def collect(self, context: CollectionContext, now_s: float) -> None:
        self._collect_cpu(context, now_s)
        self._collect_memory(context, now_s)

    def _collect_cpu(self, context: CollectionContext, now_s: float) -> None:
        try:
            ticks = busy_ticks(context.files.read(f"{context.roots.proc}/stat"))
        except (HostError, InputError):
            return
        busy_s = self._rate(context, "cpu", ticks["cpu"], now_s)
        if busy_s is not None:
            capacity = max(len(context.machine.cpus), 1)
            context.store.add(Metric.NODE_CPU, "", now_s, min(busy_s, capacity))
        for node, mask in context.machine.numa_nodes.items():
            total = self._sum_of(ticks, mask)
            if total is None:
                continue
            rate = self._rate(context, f"numa{node}", total, now_s)
            if rate is not None:
                context.store.add(Metric.NUMA_CPU, str(node), now_s, min(rate, mask.bit_count()))

    @staticmethod
    def _sum_of(ticks: Mapping[str, int], mask: int) -> int | None:
        numbers = [ticks.get(f"cpu{cpu}") for cpu in bits_of(mask)]
        return None if None in numbers else sum(number for number in numbers if number is not None)

    def _rate(
        self, context: CollectionContext, name: str, ticks: int, now_s: float
    ) -> float | None:
        return context.add_rate(self._counters, (name, ""), now_s, ticks / self._ticks_per_s)

    @staticmethod
    def _collect_memory(context: CollectionContext, now_s: float) -> None:
        store = context.store
        try:
            memory = memory_info(context.files.read(f"{context.roots.proc}/meminfo"))
        except (HostError, InputError):
            return
        store.add(Metric.NODE_MEMORY, "", now_s, memory.used)
        store.add(Metric.NODE_MEMORY_WITH_PAGE_CACHE, "", now_s, memory.used_with_page_cache)
        for node in context.machine.numa_nodes:
            path = f"{context.roots.sys}/bus/node/devices/node{node}/meminfo"
            try:
                memory = memory_info(context.files.read(path))
            except (HostError, InputError):
                continue
            store.add(Metric.NUMA_MEMORY, str(node), now_s, memory.used_of_numa_node)


class SystemCollector:
    """Collector of system usage; ``outdated_s`` is the maximum age of an input."""

    def __init__(self, outdated_s: float) -> None:
        self._outdated_s = outdated_s

    def collect(self, context: CollectionContext, now_s: float) -> None:
        cpu = self._rest(context, Metric.NODE_CPU, Metric.POD_CPU, Metric.HOST_APP_CPU, now_s)
        memory = {
            series.system: self._rest(
                context, series.node, series.pod, series.host_application, now_s
            )
            for series in MEMORY_METRICS.values()
        }
        if cpu is None or memory[Metric.SYSTEM_MEMORY] is None:
            return
        context.store.add(Metric.SYSTEM_CPU, "", now_s, cpu)
        for metric, rest in memory.items():
            if rest is not None:
                context.store.add(metric, "", now_s, rest)
        self._numa(context, cpu, now_s)

    def _rest(
        self,
        context: CollectionContext,
        node: Metric,
        pods: Metric,
        applications: Metric,
        now_s: float,
    ) -> float | None:
        total = context.store.last(node, "", now_s - self._outdated_s)
        if total is None:
            return None
        taken = self._sum(context, pods, (pod.uid for pod in context.active_pods), now_s)
        names = (application.name for application in context.slo.host_applications)
        return max(total - taken - self._sum(context, applications, names, now_s), 0.0)

    def _sum(
        self, context: CollectionContext, metric: Metric, owners: Iterable[str], now_s: float
    ) -> float:
        oldest_s = now_s - self._outdated_s
        values = (context.store.last(metric, owner, oldest_s) for owner in owners)
        return sum(value for value in values if value is not None)

    def _numa(self, context: CollectionContext, system_cpu: float, now_s: float) -> None:
        """Distribute the system's CPU usage over NUMA nodes by their usage; measure memory."""
        store, oldest_s = context.store, now_s - self._outdated_s
        nodes = [str(node) for node in context.machine.numa_nodes]
        busy = {node: store.last(Metric.NUMA_CPU, node, oldest_s) for node in nodes}
        total = sum(value for value in busy.values() if value is not None)
        for node in nodes:
            used = busy[node]
            if used is not None:
                share = system_cpu * used / total if total > 0 else 0.0
                store.add(Metric.SYSTEM_NUMA_CPU, node, now_s, share)
            memory = store.last(Metric.NUMA_MEMORY, node, oldest_s)
            if memory is None:
                continue
            owners = (f"{pod.uid}/{node}" for pod in context.active_pods)
            of_pods = self._sum(context, Metric.POD_NUMA_MEMORY, owners, now_s)
            store.add(Metric.SYSTEM_NUMA_MEMORY, node, now_s, max(memory - of_pods, 0.0))


class BestEffortCollector:
    """Collector over the cgroups of the best-effort tier and of its containers."""

    def __init__(self, interval_s: float) -> None:
        self._counters = Counters(interval_s)

    def collect(self, context: CollectionContext, now_s: float) -> None:
        cgroups, store, folder = context.cgroups, context.store, context.layout.besteffort
        limit_milli = self._limit_milli(context)
        if limit_milli is not None:
            store.add(Metric.BE_CPU_LIMIT, "", now_s, limit_milli)
        pods = (pod for pod in context.active_pods if pod.qos is QosClass.BE)
        requested = (pod.requests.get(BATCH_CPU, 0) for pod in pods)
        store.add(Metric.BE_CPU_REQUEST, "", now_s, sum(requested))
        try:
            used_ns = cpu_usage_ns(cgroups.read(CgroupFile.CPU_USAGE, folder), cgroups.version)
        except (HostError, InputError):
            return
        rate = context.add_rate(self._counters, (Metric.BE_CPU, ""), now_s, used_ns / _NANOS)
        if rate is not None:
            store.add(Metric.BE_CPU, "", now_s, rate)

    @staticmethod
    def _limit_milli(context: CollectionContext) -> int | None:
        """Return the smaller of the smallest CPU set and the quota; None without a CPU set."""
        cgroups, tier = context.cgroups, context.layout.besteffort
        folders = [tier]
        for pod in cgroups.below(tier):
            folders += cgroups.below(pod)
        sizes = [mask.bit_count() for f in folders if (mask := cgroups.cpus(f))]
        if not sizes:
            return None
        by_set = min(sizes) * _MILLI
        quota_us = cgroups.number(CgroupFile.CFS_QUOTA, tier)
        if quota_us is None or quota_us <= 0:
            return by_set
        period_us = cgroups.number(CgroupFile.CFS_PERIOD, tier) or CFS_PERIOD_US
        return min(by_set, quota_us * _MILLI // period_us)


class HostApplicationCollector:
    """Collector over the cgroups of the applications in the NodeSLO."""

    def __init__(self, interval_s: float) -> None:
        self._counters = Counters(interval_s)

    def collect(self, context: CollectionContext, now_s: float) -> None:
        for application in context.slo.host_applications:
            folder = context.layout.host_application(application)
            self._collect(context, application.name, folder, now_s)
        self._counters.forget(now_s)

    def _collect(self, context: CollectionContext, name: str, folder: str, now_s: float) -> None:
        cgroups, store = context.cgroups, context.store
        try:
            used_ns = cpu_usage_ns(cgroups.read(CgroupFile.CPU_USAGE, folder), cgroups.version)
            stat = memory_stat(cgroups.read(CgroupFile.MEMORY_STAT, folder), cgroups.version)
        except (HostError, InputError):
            return
        rate = context.add_rate(
            self._counters, (Metric.HOST_APP_CPU, name), now_s, used_ns / _NANOS
        )
        if rate is not None:
            store.add(Metric.HOST_APP_CPU, name, now_s, rate)
        store.add(Metric.HOST_APP_MEMORY, name, now_s, stat.used)
        metric = Metric.HOST_APP_MEMORY_WITH_PAGE_CACHE
        store.add(metric, name, now_s, stat.used_with_page_cache)


class Disks:
    """Lookup in /sys and /proc, without a cache because disks appear and disappear."""

    def __init__(self, files: Files, sys_root: str, proc_root: str) -> None:
        self._files = files
        self._sys, self._proc = sys_root, proc_root

    def of_device(self, name: str) -> str | None:
        """Return ``major:minor`` of a disk such as /dev/vda; None if it does not exist."""
        try:
            disk = path_component(name.removeprefix("/dev/"))
        except InputError:
            return None
        return self._number(f"{self._sys}/block/{disk}")

    def of_volume_group(self, group: str) -> str | None:
        """Return the disk below an LVM volume group; None if there is none.

        Of several disks return the first by name.
        """
        # The device mapper doubles the dashes of a name, and no volume's name begins with one.
        named = re.compile(rf"{re.escape(group.replace('-', '--'))}-(?!-)")
        for name in self._files.names(f"{self._sys}/block"):
            mapped = read_text(self._files, f"{self._sys}/block/{name}/dm/name")
            kind = read_text(self._files, f"{self._sys}/block/{name}/dm/uuid")
            if kind.startswith(_MAPPER_PREFIX) and named.match(mapped):
                for below in self._files.names(f"{self._sys}/block/{name}/slaves"):
                    return self._whole(below)
        return None

    def of_mount(self, path: str) -> str | None:
        """Return the disk mounted at a path; None if no disk is mounted there."""
        try:
            # Of process 1 of the machine: the agent's own mount namespace differs.
            text = self._files.read(f"{self._proc}/1/mountinfo")
        except HostError:
            return None
        for line in reversed(text.splitlines()):  # a later mount hides earlier ones
            columns = line.split()
            if len(columns) > _MOUNT_POINT and columns[_MOUNT_POINT] == path:
                return self._of_number(columns[_DEVICE])
        return None

    def _of_number(self, number: str) -> str | None:
        try:
            target = self._files.target(f"{self._sys}/dev/block/{number}")
        except HostError:
            return None
        return self._whole(target.rpartition("/")[2], target)

    def _whole(self, name: str, folder: str = "") -> str | None:
        """Return the number of the disk that a partition or a mapped volume is on."""
        direct = f"{self._sys}/block/{name}"
        if self._files.exists(direct):
            below = self._files.names(f"{direct}/slaves")
            return self._whole(below[0]) if below else self._number(direct)
        if folder:
            return self._number(folder.rpartition("/")[0])
        for disk in self._files.names(f"{self._sys}/block"):
            if self._files.exists(f"{self._sys}/block/{disk}/{name}"):
                return self._number(f"{self._sys}/block/{disk}")
        return None

    def _number(self, folder: str) -> str | None:
        number = read_text(self._files, f"{folder}/dev")
        return number if _NUMBER.fullmatch(number) else None
