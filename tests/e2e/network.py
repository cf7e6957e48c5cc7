"""A network namespace for the tests, so that no address and no port of the machine is used.

Only root can have one; for others everything stays on the machine's own loopback.
"""

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_REQUEST = "16sH14x"  # struct ifreq: a name and flags

_machine: int | None = None  # the machine's own namespace, once it was left


def enter() -> bool:
    """Move this thread, and what it starts from now on, into a namespace with nothing but lo.

    Return whether it is in one, now or since before; False without the right to create one.
    """
    global _machine  # noqa: PLW0603 -- a process has one network
    if _machine is not None:
        return True
    if os.geteuid() != 0:
        return False
    machine = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        os.close(machine)
        return False
    _machine = machine
    _raise_loopback()
    return True


def on_machine(command: list[str]) -> list[str]:
    """Return the command as it has to be run to see the machine's network: for downloads."""
    if _machine is None:
        return command
    return ["nsenter", f"--net={Path('/proc') / str(os.getpid()) / 'fd' / str(_machine)}", *command]


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack(_REQUEST, b"lo", 0))
        flags = struct.unpack(_REQUEST, request)[1] | _IFF_UP
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack(_REQUEST, b"lo", flags))
