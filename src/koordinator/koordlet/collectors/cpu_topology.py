"""Topology of the machine's CPUs.

Source: koordinator pkg/koordlet/util/cpuinfo.go (with lscpu); Linux

Source: koordinator pkg/koordlet/util/cpuinfo.go (which asks lscpu); Linux
Documentation/admin-guide/cputopology.rst.
"""

from koordinator.api.annotations.numa import CpuInfo
from koordinator.foundation.cpu_list import cpu_ids, parse_cpu_list
from koordinator.foundation.errors import HostError, InputError
from koordinator.host.port import Files


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
    for cpu in cpu_ids(online):
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
