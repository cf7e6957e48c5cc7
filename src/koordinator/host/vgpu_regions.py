"""What a monitor of GPU slices asks of the files that HAMi-core keeps, one per container.

Every folder is writable by the container that it belongs to, so anything may be in it, and may
change between two calls: links, FIFOs, devices, holes, a file that is cut off while it is read.
An implementation follows no link, opens nothing but regular files, never waits, and answers with
HostError instead of failing otherwise.
"""

from collections.abc import Sequence
from typing import Protocol


class RegionFile(Protocol):
    """An open region; it stays the same file when another takes its name."""

    @property
    def size(self) -> int:
        """Bytes, as of the last look.  Raises HostError."""

    def read(self, offset: int, size: int) -> bytes:
        """Return a copy; shorter than asked for where the file ends.  Raises HostError."""

    def write_int(self, offset: int, value: int) -> None:
        """Write 32 bits, little-endian, in one piece; nothing beyond the end of the file.

        Raises HostError.
        """

    def close(self) -> None:
        """Let go of the file."""


class RegionFolders(Protocol):
    """The folder that has one folder per container."""

    def names(self, most: int) -> Sequence[str]:
        """Return the names of the folders, sorted, ``most`` of them; none where there is none."""

    def files(self, name: str, most: int) -> Sequence[str]:
        """Return what is in the folder of a container, sorted, ``most`` names of all.

        Raises HostError.
        """

    def open(self, name: str, file: str) -> RegionFile:
        """Open a regular file in the folder of a container.

        Raises MissingFileError if there is none, HostError for what is none.
        """

    def renew(self, name: str) -> None:
        """Make the folder of a container, which everybody may write; one of before is put away.

        However much there is in the folder of before, this takes no time: it gets the name of a
        container that nobody has, and is left to who removes those.  Raises HostError.
        """

    def remove(self, name: str, most: int) -> bool:
        """Remove a folder with all that is in it; return whether it is gone.

        At most ``most`` entries are taken away in one call.  Raises HostError.
        """
