"""The released image for ARM64, run by an emulator of its processor (QEMU, from Debian)."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from release.archives import Entry
from release.byte_code import Compiler
from release.pins import ROOT
from tests.e2e.controlplane.errors import ControlPlaneError
from tests.e2e.debian_packages import unpack_packages
from tests.e2e.released_image import build_image

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the emulator is one for x86-64"),
]

LIBRARIES = "usr/lib/aarch64-linux-gnu"
PYTHON = "usr/bin/python3.13"
#: Modules whose byte code is compared; all of them take the emulator minutes.
COMPARED = "opt/koordinator/site-packages/koordinator/scheduler/cycle"


@dataclass(frozen=True)
class Arm64:
    """The unpacked image, with the emulator in its folder for temporary files."""

    root: Path
    settings: dict[str, str]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a Python program of the image."""
        chroot = shutil.which("chroot") or "chroot"
        emulated = ("/tmp/qemu", f"/{PYTHON}", *command)  # noqa: S108 -- of the image
        return subprocess.run(
            [chroot, "--userspec=65532:65532", str(self.root), *emulated],
            env=self.settings,
            capture_output=True,
            text=True,
            check=False,
        )


def emulator_in(folder: Path) -> Path:
    """Return the static emulator, which Debian 12 and 13 have in different packages."""
    for name in ("qemu-user-static", "qemu-user"):
        unpacked = folder / name
        unpacked.mkdir()
        try:
            unpack_packages([name], unpacked)
        except ControlPlaneError as error:
            pytest.skip(str(error))
        for program in unpacked.glob("usr/bin/qemu-aarch64*"):
            if not program.name.startswith("qemu-aarch64_be"):
                return program
    pytest.skip("no package has qemu-aarch64")


@pytest.fixture(autouse=True)
def _left_as_found() -> None:
    """Take the place of the fixture that cleans up a cluster: there is none here."""


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Arm64:
    """Build the image, and unpack it with the emulator."""
    root = tmp_path_factory.mktemp("root")
    image = build_image(tmp_path_factory.mktemp("release"), "arm64")
    emulator = emulator_in(tmp_path_factory.mktemp("emulator"))
    root.chmod(0o755)
    image.unpack(root)
    shutil.copy(emulator, root / "tmp/qemu")
    return Arm64(root, dict(each.split("=", 1) for each in image.settings["Env"]))


def test_image_decides_as_the_source_does(arm64: Arm64) -> None:
    """Compiled kernels included."""
    manifests = ROOT / "examples/cluster.yaml"
    (arm64.root / "tmp/cluster.yaml").write_bytes(manifests.read_bytes())
    words = ("schedule", "-o", "json", "-f")
    there = arm64.run("/opt/koordinator/bin/koord", *words, "/tmp/cluster.yaml")  # noqa: S108
    here: Sequence[str] = (str(Path(sys.executable).with_name("koord")), *words, str(manifests))
    source = subprocess.run(here, capture_output=True, text=True, check=True)

    assert there.stdout == source.stdout, there.stderr
    assert '"n1"' in there.stdout


def test_both_architectures_write_the_same_byte_code(arm64: Arm64) -> None:
    """A release that is built on an ARM64 machine has the bytes of one that is built here."""
    libraries = arm64.root / LIBRARIES
    words = (libraries / "ld-linux-aarch64.so.1", "--library-path", libraries, arm64.root / PYTHON)
    compiler = Compiler([str(arm64.root / "tmp/qemu"), *map(str, words)])
    modules = [
        Entry(path.relative_to(arm64.root).as_posix(), path.read_bytes())
        for path in sorted((arm64.root / COMPARED).glob("*.py"))
    ]
    added = compiler.with_byte_code(modules)[len(modules) :]

    assert len(added) == len(modules) > 10
    for entry in added:
        assert (arm64.root / entry.path).read_bytes() == entry.content, entry.path
