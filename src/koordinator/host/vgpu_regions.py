"""Port to the shared regions that HAMi-core keeps in one folder per container.

The container can write to its folder, so the folder may contain anything and change between two
calls: links, FIFOs, devices, sparse files, a file truncated while it is read.  An implementation
follows no links, opens regular files only, never blocks, and raises only HostError.
"""

from collections.abc import Sequence
from typing import Protocol


class RegionFile(Protocol):
    """Open region; it refers to the same file even if another one is renamed over it."""

    @property
    def size(self) -> int:
        """Current size in bytes.  Raises HostError."""

    def read(self, offset: int, size: int) -> bytes:
        """Return a copy of the bytes, fewer at the end of the file.  Raises HostError."""

    def write_int(self, offset: int, value: int) -> None:
        """Write 32 bits, little-endian, in one write; never extend the file.

        Raises HostError.
        """

    def close(self) -> None:
        """Close the file."""


class RegionFolders(Protocol):
    """Folder with one folder per container."""

    def names(self, most: int) -> Sequence[str]:
        """Return up to ``most`` names of folders, sorted; empty if the folder is missing."""

    def files(self, name: str, most: int) -> Sequence[str]:
        """Return up to ``most`` names in a container's folder, sorted.

        Raises HostError.
        """

    def open(self, name: str, file: str) -> RegionFile:
        """Open a regular file in a container's folder.

        Raises MissingFileError if it is missing, HostError if it is not a regular file.
        """

    def renew(self, name: str) -> None:
        """Create a container's folder with mode 0777, and move an existing one aside.

        The time does not depend on the size of the existing folder: it is renamed to a name that
        no container has, and removed later by the monitor.  Raises HostError.
        """

    def remove(self, name: str, most: int) -> bool:
        """Remove a folder and its content; return whether it is removed completely.

        One call removes at most ``most`` entries.  Raises HostError.
        """
