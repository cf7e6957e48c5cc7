"""Block devices of disks, volume groups and mount points.

Numbers identify whole disks, as blkio requires, not partitions.
Source: koordinator pkg/koordlet/metricsadvisor/collectors/nodestorageinfo (with lsblk, vgs, lvs and
findmnt); man 5 proc_pid_mountinfo; Linux Documentation/ABI/testing/sysfs-block.
"""

import re

from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.path_component import path_component
from koordinator.host.port import Files
from koordinator.koordlet.collectors.context import read_text

_NUMBER = re.compile(r"[0-9]+:[0-9]+")
_MAPPER_PREFIX = "LVM-"


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
        prefix = f"{group.replace('-', '--')}-"  # the device mapper escapes dashes
        for name in self._files.names(f"{self._sys}/block"):
            mapped = read_text(self._files, f"{self._sys}/block/{name}/dm/name")
            kind = read_text(self._files, f"{self._sys}/block/{name}/dm/uuid")
            if kind.startswith(_MAPPER_PREFIX) and mapped.startswith(prefix):
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


_DEVICE, _MOUNT_POINT = 2, 4
