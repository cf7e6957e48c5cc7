"""Programs for traffic control: of the machine, else unpacked from Debian packages."""

import os
import shutil
from pathlib import Path

from tests.e2e.controlplane.builds import cached
from tests.e2e.controlplane.errors import ControlPlaneError
from tests.e2e.debian_packages import unpack_packages

_PACKAGES = (
    "iptables",
    "ipset",
    "libip4tc2",
    "libip6tc2",
    "libipset13",
    "libmnl0",
    "libnetfilter-conntrack3",
    "libnfnetlink0",
    "libnftnl11",
    "libxtables12",
)
_NAMES = ("iptables", "iptables-restore")


def environment() -> dict[str, str]:
    """Return variables with which iptables and ipset are found; raises OSError if they can't be."""
    if shutil.which("iptables-restore") and shutil.which("ipset"):
        return {"PATH": os.environ["PATH"]}
    folder = cached("debian-network", "-".join(_PACKAGES), _unpack)
    libraries = next(folder.glob("usr/lib/*/xtables")).parent
    return {
        "PATH": f"{folder}/bin:{folder}/usr/sbin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": str(libraries),
        "XTABLES_LIBDIR": str(libraries / "xtables"),
    }


def _unpack(folder: Path) -> None:
    try:
        unpack_packages(_PACKAGES, folder)
    except ControlPlaneError as error:
        raise OSError(str(error)) from None
    (folder / "bin").mkdir()
    for name in _NAMES:
        (folder / "bin" / name).symlink_to("../usr/sbin/xtables-nft-multi")
