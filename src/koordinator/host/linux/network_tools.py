"""Programs that configure the network, found in PATH."""

import subprocess
from collections.abc import Sequence
from typing import Final

from koordinator.foundation.errors import HostError

_TIMEOUT_S: Final = 10.0
_SHOWN: Final = 300


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
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HostError(f"{command}: no answer in {_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise HostError(f"{command}: {error.strerror}") from None
        if done.returncode:
            error_output = done.stderr.decode(errors="replace").strip()[:_SHOWN]
            raise HostError(f"{command}: exit code {done.returncode}: {error_output}")
        return done.stdout.decode(errors="replace")
