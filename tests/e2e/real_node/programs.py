"""Programs of the node: their sources and their build.

kubelet and containerd are built from the Go modules beside this file; runc, the CNI plugins and a
static busybox are Debian's, unpacked into the cache without being installed.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.controlplane.binaries import version_flags
from tests.e2e.controlplane.builds import (
    cached,
    find_go,
    folder_key,
    go_build,
    required_version,
    say,
)
from tests.e2e.debian_packages import unpack_packages
from tests.e2e.real_node.images import pack_images

_KUBELET = Path(__file__).parent / "kubelet"
_CONTAINERD = Path(__file__).parent / "containerd"
_CONTAINERD_MODULE = "github.com/containerd/containerd/v2"
_CONTAINERD_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")
_CONTAINERD_TAGS = ("no_btrfs", "no_zfs", "no_devmapper", "netgo", "osusergo")
_DEBIAN_PACKAGES = ("runc", "containernetworking-plugins", "busybox-static")
_TOOLS = ("ip", "unshare", "nsenter", "apt-get", "dpkg-deb")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Programs:
    """Folders of programs, a static busybox, and an archive of images for containers."""

    kubelet: Path
    containerd: Path
    runc: Path
    cni: Path
    busybox: Path
    images: Path

    @property
    def ctr(self) -> Path:
        """The client of containerd."""
        return self.containerd / "ctr"


def missing() -> str:
    """Return why there can be no real node here; empty if there can."""
    if os.geteuid() != 0:
        return "a real node needs root"
    if not os.access(_CGROUPS, os.W_OK):
        return f"a real node needs cgroups: {_CGROUPS} cannot be written"
    if find_go() is None:
        return "kubelet and containerd are built with Go, which is not here (https://go.dev/dl)"
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return f"a real node needs {', '.join(absent)}" if absent else ""


def find_programs() -> Programs:
    """Return the programs; the first time they are built, in some minutes.

    Raises ControlPlaneError if that fails.
    """
    debian = cached("debian", "-".join(_DEBIAN_PACKAGES), _unpack_debian)
    return Programs(
        kubelet=cached("kubelet", folder_key(_KUBELET), _build_kubelet),
        containerd=cached("containerd", folder_key(_CONTAINERD), _build_containerd),
        runc=debian / "usr/sbin/runc",
        cni=debian / "usr/lib/cni",
        busybox=debian / "bin/busybox",
        images=debian / "images.tar",
    )


def _build_kubelet(folder: Path) -> None:
    version = required_version(_KUBELET, "k8s.io/kubernetes")
    say(f"building kubelet {version}; takes half a minute after kube-apiserver, else 6 minutes")
    flags = version_flags(version)
    go_build(_KUBELET, "k8s.io/kubernetes/cmd/kubelet", folder / "kubelet", flags)


def _build_containerd(folder: Path) -> None:
    version = required_version(_CONTAINERD, _CONTAINERD_MODULE)
    say(f"building containerd {version}; takes about 2 minutes, once")
    flags = [f"-X {_CONTAINERD_MODULE}/version.Version={version}"]
    for program in _CONTAINERD_PROGRAMS:
        package = f"{_CONTAINERD_MODULE}/cmd/{program}"
        go_build(_CONTAINERD, package, folder / program, flags, _CONTAINERD_TAGS)


def _unpack_debian(folder: Path) -> None:
    unpack_packages(_DEBIAN_PACKAGES, folder)
    pack_images(folder / "bin/busybox", folder / "images.tar")
