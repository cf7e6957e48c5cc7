"""Byte code of an image's modules, compiled by the Python of its base.

Python is made of the pinned packages for this machine and runs on its own loader and libraries, so
the machine needs no Python of that version.  Byte code is the same on all architectures.
Source: PEP 552 (unchecked hash-based pycs); PEP 3147 (names of files); marshal.c (``w_ref``: a flag
depends on references to an object from elsewhere in the process).
"""

import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from release.archives import Entry
from release.pins import PackageError

#: Packages that the compiler is made of.
PACKAGES: Final = (
    "libc6",
    "libexpat1",
    "libpython3.13-minimal",
    "python3.13-minimal",
    "zlib1g",
)
_TAG: Final = "cpython-313"
_FOLDERS: Final = ("usr/lib/python3.13/", "opt/koordinator/site-packages/")
_TESTS: Final = frozenset({"test", "tests"})  # folders that are never imported
_SIZE_BYTES: Final = 4
#: Architecture of packages, folder of libraries and loader, by the name of the machine.
_MACHINES: Final = MappingProxyType(
    {
        "x86_64": ("amd64", "usr/lib/x86_64-linux-gnu", "ld-linux-x86-64.so.2"),
        "aarch64": ("arm64", "usr/lib/aarch64-linux-gnu", "ld-linux-aarch64.so.1"),
    }
)
#: Reads paths and sources, each after its size, and writes a file of byte code for each; an empty
#: one for a module that is no Python.  A fork compiles a module: it has seen no other one.
_PROGRAM: Final = r"""
import marshal, os, sys
from importlib.util import MAGIC_NUMBER, source_hash

def read():
    size = int.from_bytes(sys.stdin.buffer.read(4), "big")
    return sys.stdin.buffer.read(size)

while path := read():
    source = read()
    process = os.fork()
    if not process:
        try:
            code = compile(source, path.decode(), "exec", dont_inherit=True, optimize=0)
            flags = (1).to_bytes(4, "little")
            data = MAGIC_NUMBER + flags + source_hash(source) + marshal.dumps(code)
        except (SyntaxError, ValueError):
            data = b""
        sys.stdout.buffer.write(len(data).to_bytes(4, "big") + data)
        sys.stdout.buffer.flush()
        os._exit(0)
    if os.waitpid(process, 0)[1]:
        sys.exit(f"{path.decode()}: the compiler ended")
"""


@dataclass(frozen=True, slots=True)
class Compiler:
    """Compiler of modules; ``command`` starts Python 3.13, and gets further arguments."""

    command: Sequence[str]

    def with_byte_code(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return files of an image, and a file of byte code for each module among them.

        Raises PackageError if Python doesn't run on this machine.
        """
        files = list(entries)
        sources = {
            entry.path: entry.content
            for entry in files
            if entry.content is not None and _is_module(entry.path)
        }
        paths = sorted(sources)
        request = b"".join(_framed(f"/{path}".encode()) + _framed(sources[path]) for path in paths)
        command = [*self.command, "-I", "-S", "-B", "-W", "ignore", "-c", _PROGRAM]
        try:
            done = subprocess.run(
                command, input=request + _framed(b""), capture_output=True, env={}, check=True
            )
        except OSError as error:
            raise PackageError(f"{self.command[0]}: {error.strerror}") from None
        except subprocess.CalledProcessError as error:
            reason = error.stderr.decode(errors="replace").strip() or f"status {error.returncode}"
            raise PackageError(f"the base's Python compiles no modules: {reason}") from None
        return [*files, *_byte_code(paths, done.stdout)]


def machine_architecture() -> str:
    """Return the architecture of the packages that run on this machine.

    Raises PackageError if there are none.
    """
    return _machine()[0]


def unpacked_compiler(folder: Path, entries: Iterable[Entry]) -> Compiler:
    """Write the files of ``PACKAGES`` to a folder, and return the compiler that they are.

    Raises PackageError if they lack the loader, or there are none for this machine.
    """
    _, libraries, loader = _machine()
    for entry in entries:
        path = folder / entry.path
        if entry.target and not entry.target.startswith("/"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(entry.target)
        elif entry.content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(entry.content)
            path.chmod(0o755)
    program = folder / libraries / loader
    if not program.exists():
        raise PackageError(f"{program.relative_to(folder)} is in none of {', '.join(PACKAGES)}")
    command = (program, "--library-path", folder / libraries, folder / "usr/bin/python3.13")
    return Compiler([str(word) for word in command])


def _machine() -> tuple[str, str, str]:
    machine = platform.machine()
    if machine not in _MACHINES:
        accepted = " or ".join(_MACHINES)
        raise PackageError(f"modules are compiled on {accepted}, this machine is {machine}")
    return _MACHINES[machine]


def _is_module(path: str) -> bool:
    return (
        path.endswith(".py")
        and path.startswith(_FOLDERS)
        and _TESTS.isdisjoint(PurePosixPath(path).parts)
    )


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(_SIZE_BYTES, "big") + data


def _byte_code(paths: Iterable[str], answer: bytes) -> Iterable[Entry]:
    at = 0
    for path in paths:
        begin = at + _SIZE_BYTES
        at = begin + int.from_bytes(answer[at:begin], "big")
        if begin < at:
            of = PurePosixPath(path)
            yield Entry(str(of.parent / f"__pycache__/{of.stem}.{_TAG}.pyc"), answer[begin:at])
    if at != len(answer):
        raise PackageError(f"the base's Python must write {at} bytes, got {len(answer)}")
