"""A machine of its own for a process: a network namespace whose link to the tests' can be cut."""

import json
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e import network
from tests.e2e.controlplane import ControlPlane
from tests.e2e.waiting import eventually

HERE, THERE = "10.77.0.1", "10.77.0.2"
_LINK_HERE, _LINK_THERE = "koord-here", "koord-there"
_CHUNK = 1 << 16
_HOLD = ("/usr/bin/unshare", "--net", "sleep", "infinity")


class OtherMachine:
    """Machine that reaches the API server of the tests over one link.

    What it sends while the link is cut stays in the buffers of its kernel, and is sent again when
    the link is mended, as with any network.  Only root can have one.
    """

    def __init__(self, controlplane: ControlPlane) -> None:
        self._controlplane = controlplane
        self._holder: subprocess.Popen[bytes] | None = None
        self._listening = socket.socket()

    def __enter__(self) -> Self:
        """Make it, and the link."""
        assert network.enter(), "needs a network namespace"
        self._holder = subprocess.Popen(_HOLD)
        own = Path("/proc/self/ns/net").readlink()
        space = Path(f"/proc/{self._holder.pid}/ns/net")
        eventually(lambda: space.readlink() != own, 10)
        holder = str(self._holder.pid)
        _run("ip", "link", "add", _LINK_HERE, "type", "veth", "peer", "name", _LINK_THERE)
        _run("ip", "link", "set", _LINK_THERE, "netns", holder)
        _run("ip", "addr", "add", f"{HERE}/30", "dev", _LINK_HERE)
        _run(*self.command("ip", "addr", "add", f"{THERE}/30", "dev", _LINK_THERE))
        for link in ("lo", _LINK_THERE):
            _run(*self.command("ip", "link", "set", link, "up"))
        self.mend()
        eventually(self._listen, 10)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove it."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        _run("ip", "link", "del", _LINK_HERE)
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()

    def command(self, *command: str) -> list[str]:
        """Return a command as it has to be run to run there."""
        assert self._holder is not None
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", *command]

    def kubeconfig(self, user: str) -> Path:
        """Write the kubeconfig of a user of all rights, for a process there; return its path."""
        local = self._controlplane.kubeconfig(user, ("system:masters",))
        content = json.loads(local.read_text())
        cluster = content["clusters"][0]["cluster"]
        cluster["tls-server-name"] = "127.0.0.1"
        cluster["server"] = f"https://{HERE}:{self._listening.getsockname()[1]}"
        path = local.with_suffix(".there.kubeconfig")
        path.write_text(json.dumps(content))
        return path

    def cut(self) -> None:
        """Drop all packets in both directions."""
        _run("ip", "link", "set", _LINK_HERE, "down")

    def mend(self) -> None:
        """Forward all packets again."""
        _run("ip", "link", "set", _LINK_HERE, "up")

    def _listen(self) -> bool:
        try:
            self._listening.bind((HERE, 0))
        except OSError:  # the address is not ready
            return False
        self._listening.listen(64)
        return True

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._controlplane.api.port))
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=ends, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    source.close()


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
