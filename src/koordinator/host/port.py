"""Port through which the node agent accesses its machine.

Linux exposes its state and its settings as small text files, so the port is about files: cgroups,
/proc, /sys, resctrl.  Paths are absolute and as this process sees them; ``roots`` has the mount
points of the machine's trees.

No file outside of these trees is opened: paths with ``..``, links other than the kernel's, FIFOs
and devices are rejected.

Errors are ``HostError``s: MissingFileError for missing files, the base class for other errors of
the kernel.  Each adapter must pass ``tests/contract/host``.
"""

from collections.abc import Sequence
from typing import Protocol


class Files(Protocol):
    """Small text files and their folders."""

    def read(self, path: str) -> str:
        """Return the text of a file.

        Raises MissingFileError, including for a file of a removed cgroup, and HostError.
        """

    def write(self, path: str, text: str) -> None:
        """Write an existing file in one write, as files of the kernel require.

        Raises MissingFileError, and HostError for errors of the kernel.
        """

    def replace(self, path: str, text: str) -> None:
        """Replace a file of the agent atomically, creating its folder if needed.

        Raises HostError.
        """

    def append(self, path: str, text: str) -> None:
        """Append to a file of the agent; create it and its folder if needed.

        Raises HostError.
        """

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""

    def folders(self, path: str) -> Sequence[str]:
        """Return the names of subfolders, sorted; empty if the folder is missing."""

    def names(self, path: str) -> Sequence[str]:
        """Return the names of all entries of a folder, sorted; empty if it is missing."""

    def target(self, path: str) -> str:
        """Return the real path behind all links.  Raises MissingFileError."""

    def make_folder(self, path: str) -> None:
        """Create a folder in an existing one, unless it exists.  Raises HostError."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder of the kernel, such as a resctrl group, if it exists.

        Raises HostError.
        """

    def remove(self, path: str) -> None:
        """Remove a file if it exists.  Raises HostError."""


class Host(Files, Protocol):
    """Machine of the agent."""

    def mount(self, kind: str, folder: str) -> None:
        """Mount a file system of the kernel, such as resctrl, on an existing folder.

        Raises HostError if the kernel does not support it, or this process may not mount it.
        """

    def kill(self, pid: int, cgroup: str) -> bool:
        """Send SIGKILL to a process of a container's cgroup; return whether it existed.

        ``cgroup`` is the folder in its hierarchy.  Raises HostError if the process is in another
        cgroup, or the signal is not permitted.
        """
