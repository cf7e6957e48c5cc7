"""The virtual machine: its parts, its start, and the scripts that run in it."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.waiting import eventually
from tests.vm.initramfs import write_initramfs
from tests.vm.packages import Packages

HOST = "10.0.2.2"  #: the address at which the virtual machine reaches the host's loopback
_HERE = Path(__file__).parent
_REPOSITORY = _HERE.parent.parent
_PORT = 7777  # of the server inside
_DISK_BYTES = 16 << 30  # of a file with holes
#: For a virtual machine that hangs: one that fails ends itself.  Booting takes some minutes of CPU
#: time, which emulation gets within half an hour on two cores with a load average of 20.
START_TIMEOUT_S = 3600.0
#: Folders of the VM's PATH besides ours.
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ScriptError(RuntimeError):
    """A script in the virtual machine failed."""


class VirtualMachine:
    """One virtual machine with cgroup v2; ``with`` boots and ends it."""

    def __init__(self, packages: Packages, cpus: int = 4, memory_mib: int = 4096) -> None:
        self.cpus = cpus
        self.memory_mib = memory_mib
        self._packages = packages
        self._state = Path(tempfile.mkdtemp(prefix="koord-vm-"))
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Boot; returns when scripts can run, after about 20 s of emulation."""
        self._write_state()
        environment = {**os.environ, "LD_LIBRARY_PATH": self._packages.libraries}
        with (self._state / "qemu.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._qemu(), env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            eventually(self._has_started, START_TIMEOUT_S)
        except BaseException:
            sys.stderr.write(self.console)
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it at once, as a loss of power does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._state)

    @property
    def console(self) -> str:
        """The messages of QEMU and of the kernel."""
        logs = [self._state / name for name in ("qemu.log", "console.log")]
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    def run(self, script: str) -> str:
        """Run a shell script and return its output.

        Programs that the script leaves running have to have their output redirected.
        Raises ScriptError if the script fails.
        """
        output = b"".join(self.stream(script))
        text, _, status = output.decode(errors="replace").rpartition("\0")
        if status != "0":
            raise ScriptError(f"status {status or 'unknown'} of {script!r}:\n{text}")
        return text

    def stream(self, script: str) -> Iterator[bytes]:
        """Run a shell script; yield its output as it comes, then a zero byte and its status."""
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.sendall(self._environment().encode() + script.encode())
            connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(1 << 16):
                yield data

    def read(self, path: str) -> str:
        """Return the content of a file without surrounding white space."""
        return self.run(f"cat {shlex.quote(path)}").strip()

    def write(self, path: str, text: str) -> None:
        """Replace the content of a file; its folder is made if it is missing."""
        target = shlex.quote(path)
        self.run(f'mkdir -p "$(dirname {target})"; printf %s {shlex.quote(text)} > {target}')

    def start(self, command: str, log: str) -> None:
        """Start a program in the background; it is started again a second after it ends."""
        place = shlex.quote(log)
        loop = f"while :; do {command}; echo ended with $?; sleep 1; done"
        self.run(
            f'mkdir -p "$(dirname {place})"; '
            f"setsid sh -c {shlex.quote(loop)} < /dev/null >> {place} 2>&1 &"
        )

    def _has_started(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise SystemExit(f"the virtual machine has ended:\n{self.console}")
        return self.run("echo started") == "started\n"

    def _environment(self) -> str:
        own = Path(sys.executable).parent
        variables = {
            "HOME": str(Path.home()),
            "LANG": "C.UTF-8",
            "PATH": f"{own}:{_SYSTEM_PATH}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        return "\n".join([*lines, f"cd {shlex.quote(str(_REPOSITORY))}", ""])

    def _write_state(self) -> None:
        packages, state = self._packages, self._state
        write_initramfs(packages.modules, packages.busybox, state / "initramfs")
        with (state / "disk").open("wb") as disk:
            disk.truncate(_DISK_BYTES)
        for name in ("inside.sh", "shell_server.py"):
            shutil.copyfile(_HERE / name, state / name)
        variables = {
            "MODULES": packages.modules.parent,
            "BUSYBOX": packages.busybox,
            "PYTHON": sys.executable,
            "PORT": _PORT,
            "PATH": _SYSTEM_PATH,
        }
        lines = [f"{name}={shlex.quote(str(value))}" for name, value in variables.items()]
        (state / "environment").write_text("\n".join([*lines, ""]))

    def _qemu(self) -> list[str]:
        packages, state = self._packages, self._state
        share = "security_model=none,multidevs=remap"
        forwarded = f"hostfwd=tcp:127.0.0.1:{self._port}-:{_PORT}"
        firmware = [word for folder in packages.firmware for word in ("-L", str(folder))]
        return [
            str(packages.qemu),
            *("-nodefaults", "-no-reboot", "-display", "none", "-machine", "q35"),
            *_accelerator(),
            *("-smp", f"{self.cpus}", "-m", f"{self.memory_mib}M"),
            *firmware,
            *("-kernel", str(packages.kernel), "-initrd", str(state / "initramfs")),
            *("-append", "console=ttyS0 panic=-1 psi=1 cgroup_no_v1=all"),
            *("-serial", f"file:{state}/console.log"),
            *("-fsdev", f"local,id=host,path=/,readonly=on,{share}"),
            *("-device", "virtio-9p-pci,fsdev=host,mount_tag=host"),
            *("-fsdev", f"local,id=state,path={state},{share}"),
            *("-device", "virtio-9p-pci,fsdev=state,mount_tag=state"),
            *("-drive", f"file={state}/disk,format=raw,if=none,id=disk,cache=unsafe"),
            *("-device", "virtio-blk-pci,drive=disk"),
            *("-netdev", f"user,id=net,{forwarded}"),
            *("-device", "virtio-net-pci,netdev=net,romfile="),
        ]


def _accelerator() -> list[str]:
    """Return the options for hardware virtualization where there is one, otherwise emulation.

    A machine that is itself virtual may offer a /dev/kvm for paravirtualized kernels only, on CPUs
    without the extension; Debian's kernel does not start there.
    """
    flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    if os.access("/dev/kvm", os.R_OK | os.W_OK) and not {"vmx", "svm"}.isdisjoint(flags):
        return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"]
