"""Programs of the machine: tools of device vendors, and network tools.

The machine's file system may be mounted elsewhere.  Source: Linux man 1 chroot.
"""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from koordinator.foundation.errors import HostError
from koordinator.host.port import ToolError

_TOOL_TIMEOUT_S: Final = 30.0  # npu-smi takes seconds, and hangs with some broken cards
_MOST_CHARACTERS: Final = 1 << 20
_SHOWN: Final = 200
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_NETWORK_TIMEOUT_S: Final = 10.0
_SHOWN_ERROR: Final = 300


class LinuxVendorTools:
    """Implementation of ``VendorTools``; ``root`` is the mount point of the machine's ``/``."""

    def __init__(self, root: str, device_folder: str = "/dev", timeout_s: float = _TOOL_TIMEOUT_S):
        self._root = root.rstrip("/")
        self._devices = Path(device_folder)
        self._timeout_s = timeout_s

    def ask(self, *words: str) -> str:
        command = ["/usr/sbin/chroot", self._root, *words] if self._root else [*words]
        text = " ".join(words)
        try:
            done = subprocess.run(  # noqa: S603 -- constant words
                command,
                env={"PATH": _PATH, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ToolError(f"{text}: no answer in {self._timeout_s:g} s") from None
        except OSError as error:
            raise ToolError(f"{text}: {error.strerror}") from None
        output = done.stdout[:_MOST_CHARACTERS].decode(errors="replace")
        if done.returncode:
            problem = f"{text}: exit code {done.returncode}: {output.strip()[:_SHOWN]}"
            raise ToolError(problem, output)
        return output

    def device_numbers(self, name: str) -> Sequence[int]:
        pattern = re.compile(rf"{re.escape(name)}([0-9]+)")
        try:
            matches = (pattern.fullmatch(path.name) for path in self._devices.iterdir())
            return sorted(int(match[1]) for match in matches if match)
        except OSError:
            return ()


class LinuxNetworkTools:
    """Implementation of ``NetworkTools``; ``prefix`` runs the programs elsewhere."""

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self._prefix = tuple(prefix)

    def run(self, *words: str, text: str = "") -> str:
        command = " ".join(words)
        try:
            done = subprocess.run(  # noqa: S603 -- constant words, numbers and addresses
                [*self._prefix, *words],
                input=text.encode(),
                capture_output=True,
                timeout=_NETWORK_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HostError(f"{command}: no answer in {_NETWORK_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise HostError(f"{command}: {error.strerror}") from None
        if done.returncode:
            error_output = done.stderr.decode(errors="replace").strip()[:_SHOWN_ERROR]
            raise HostError(f"{command}: exit code {done.returncode}: {error_output}")
        return done.stdout.decode(errors="replace")
