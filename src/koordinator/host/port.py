"""The one port through which the node agent sees its machine.

Everything that Linux tells and takes is a small text file, so the port is about files: cgroups,
/proc, /sys, resctrl.  Paths are absolute and as this process sees them; ``roots`` says where the
trees of the machine are mounted.

Nothing outside of these trees is opened, whatever a path says: no ``..``, no link but the kernel's
own, no FIFO or device.

Failures are ``HostError``s: MissingFileError for what has vanished, or never was there, and the
base class for what the kernel refused.  ``tests/contract/host`` is what every adapter must pass.
"""

from collections.abc import Sequence
from typing import Protocol


class Files(Protocol):
    """Small text files and their folders."""

    def read(self, path: str) -> str:
        """Return the text of a file.

        Raises MissingFileError, also for a file of a cgroup that was removed, and HostError.
        """

    def write(self, path: str, text: str) -> None:
        """Write an existing file in one piece, as the kernel's files want it.

        Raises MissingFileError, and HostError for what the kernel refuses.
        """

    def replace(self, path: str, text: str) -> None:
        """Store a file of our own whole or not at all, making its folder if needed.

        Raises HostError.
        """

    def append(self, path: str, text: str) -> None:
        """Add text to a file of our own, making it and its folder if needed.  Raises HostError."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder."""

    def folders(self, path: str) -> Sequence[str]:
        """Return the names of the folders in a folder, sorted; none if it is missing."""

    def names(self, path: str) -> Sequence[str]:
        """Return the names of all that is in a folder, sorted; none if it is missing."""

    def target(self, path: str) -> str:
        """Return the real path behind a chain of links.  Raises MissingFileError."""

    def make_folder(self, path: str) -> None:
        """Make a folder in an existing one; one that exists is left alone.  Raises HostError."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder of the kernel's, such as a resctrl group; a missing one is no error.

        Raises HostError.
        """

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is no error.  Raises HostError."""


class Host(Files, Protocol):
    """A machine."""

    def mount(self, kind: str, folder: str) -> None:
        """Mount a file system of the kernel, such as resctrl, on an existing folder.

        Raises HostError if the kernel has none of that kind, or this process may not.
        """

    def kill(self, pid: int, cgroup: str) -> bool:
        """End a process of a container's cgroup at once (SIGKILL); return whether it existed.

        ``cgroup`` is the folder in its hierarchy.  Raises HostError if the process is in another
        one, or may not be ended.
        """
