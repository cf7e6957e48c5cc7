"""Programs that shape the network, found in PATH."""

import subprocess
from collections.abc import Sequence
from typing import Final

from koordinator.foundation.errors import HostError

_TIMEOUT_S: Final = 10.0
_SHOWN: Final = 300


class LinuxNetworkTools:
    """Implements ``network_tools.NetworkTools``; ``prefix`` runs them somewhere else."""

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self._prefix = tuple(prefix)

    def run(self, *words: str, text: str = "") -> str:
        told = " ".join(words)
        try:
            done = subprocess.run(  # noqa: S603 -- words of our own, numbers and addresses
                [*self._prefix, *words],
                input=text.encode(),
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HostError(f"{told}: no answer in {_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise HostError(f"{told}: {error.strerror}") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[:_SHOWN]
            raise HostError(f"{told}: exit code {done.returncode}: {said}")
        return done.stdout.decode(errors="replace")
