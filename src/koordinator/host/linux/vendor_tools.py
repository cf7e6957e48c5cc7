"""Tools of vendors, run in the file system of the machine, which may be mounted somewhere else.

Source: Linux man 1 chroot.
"""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from koordinator.host.vendor_tools import ToolError

_TIMEOUT_S: Final = 30.0  # npu-smi takes seconds, and hangs for ever with some broken cards
_MOST_CHARACTERS: Final = 1 << 20
_SHOWN: Final = 200
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class LinuxVendorTools:
    """Implements ``vendor_tools.VendorTools``; ``root`` is where the machine's ``/`` is."""

    def __init__(self, root: str, device_folder: str = "/dev", timeout_s: float = _TIMEOUT_S):
        self._root = root.rstrip("/")
        self._devices = Path(device_folder)
        self._timeout_s = timeout_s

    def ask(self, *words: str) -> str:
        command = ["/usr/sbin/chroot", self._root, *words] if self._root else [*words]
        told = " ".join(words)
        try:
            done = subprocess.run(  # noqa: S603 -- words of our own
                command,
                env={"PATH": _PATH, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ToolError(f"{told}: no answer in {self._timeout_s:g} s") from None
        except OSError as error:
            raise ToolError(f"{told}: {error.strerror}") from None
        output = done.stdout[:_MOST_CHARACTERS].decode(errors="replace")
        if done.returncode:
            problem = f"{told}: exit code {done.returncode}: {output.strip()[:_SHOWN]}"
            raise ToolError(problem, output)
        return output

    def device_numbers(self, name: str) -> Sequence[int]:
        pattern = re.compile(rf"{re.escape(name)}([0-9]+)")
        try:
            found = (pattern.fullmatch(path.name) for path in self._devices.iterdir())
            return sorted(int(match[1]) for match in found if match)
        except OSError:
            return ()
