"""QEMU and the kernel, unpacked from Debian packages."""

from dataclasses import dataclass
from pathlib import Path

from tests.e2e.controlplane.builds import cached, say
from tests.e2e.controlplane.errors import ControlPlaneError
from tests.e2e.debian_packages import run, unpack_packages

_QEMU = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios", "ipxe-qemu")
_KERNEL = "linux-image-amd64"  # a package that only depends on the current kernel
_FURTHER = ("busybox-static", "kmod")


@dataclass(frozen=True, slots=True)
class Packages:
    """The root folder of the unpacked packages."""

    folder: Path

    @property
    def qemu(self) -> Path:
        """The emulator; it needs ``libraries``."""
        return self.folder / "usr/bin/qemu-system-x86_64"

    @property
    def libraries(self) -> str:
        """The value of ``LD_LIBRARY_PATH`` for QEMU."""
        below = (self.folder / "usr/lib", self.folder / "lib")
        return ":".join(str(it / "x86_64-linux-gnu") for it in below)

    @property
    def firmware(self) -> tuple[Path, ...]:
        """The folders in which QEMU finds the BIOS and the loader of kernels."""
        return tuple(self.folder / f"usr/share/{name}" for name in ("seabios", "qemu"))

    @property
    def kernel(self) -> Path:
        """The kernel's image."""
        return next(self.folder.glob("boot/vmlinuz-*"))

    @property
    def modules(self) -> Path:
        """The folder of the kernel's modules, named by its release."""
        return next(self.folder.glob("lib/modules/*"))

    @property
    def busybox(self) -> Path:
        """A static busybox."""
        return self.folder / "bin/busybox"


def find_packages() -> Packages:
    """Return the unpacked packages; the first time they are downloaded, about 100 MB.

    They have the current versions of this machine's apt sources, whose signatures apt checks.
    Raises ControlPlaneError if that fails.
    """
    return Packages(cached("debian-vm", "-".join((_QEMU[0], _KERNEL, *_FURTHER)), _unpack))


def _unpack(folder: Path) -> None:
    say("downloading QEMU and a kernel; takes a minute, once")
    names = [*_QEMU, *_missing_libraries(), _current_kernel(), *_FURTHER]
    say(", ".join(unpack_packages(names, folder)))
    release = next(folder.glob("lib/modules/*")).name
    depmod = folder / "depmod"
    depmod.symlink_to("bin/kmod")  # kmod is called by the name of what it does
    run([str(depmod), "--basedir", str(folder), release], folder)


def _missing_libraries() -> list[str]:
    """Return the packages that QEMU depends on and that are not installed here."""
    listed = run(
        ["apt-get", "-qq", "--print-uris", "--yes", "--no-install-recommends", "install", _QEMU[0]]
    )
    return [line.split()[1].partition("_")[0] for line in listed.splitlines() if "_" in line]


def _current_kernel() -> str:
    listed = run(["apt-cache", "depends", "--important", _KERNEL])
    kernels = [line.split()[-1] for line in listed.splitlines() if "Depends: linux-image" in line]
    if not kernels:
        raise ControlPlaneError(f"{_KERNEL}: no kernel among its dependencies; run apt-get update")
    return kernels[0]
