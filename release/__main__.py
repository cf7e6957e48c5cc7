"""Build a release: ``python -m release --repository-url URL --sbom FILE``.

The result depends on the commit only, and on the base image where another one is set.
"""

import argparse
import shutil
import subprocess
import tempfile
import tomllib
from itertools import chain
from pathlib import Path
from typing import Final

from release.base import PYTHON, read_entries, write_base
from release.byte_code import PACKAGES, machine_architecture, unpacked_compiler
from release.chart import write_chart
from release.distributions import build, copy_tracked, install_dependencies, prepare
from release.image import Base, ImageParts, write_image
from release.layout import Layout, LayoutError, digest_of
from release.pins import ARCHITECTURES, FILE, MIRROR, SNAPSHOT, Downloads, PackageError, read_pins

ROOT: Final = Path(__file__).parents[1]
_SCRATCH: Final = "scratch"
_DOWNLOADS: Final = ROOT / "build/debian"  # packages of the base
_CHARTS: Final = ("hami-daemon", "koordinator", "koordinator-yarn-copilot")
_PYTHON: Final = "3.13"  # of every base image
_PLATFORMS: Final = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}


def parse_base(text: str) -> Base | None:
    """Return the base image that ``PATH@sha256:...`` names; None for ``scratch``.

    Raises ValueError for a layout without a digest.
    """
    if text == _SCRATCH:
        return None
    path, _, digest = text.partition("@")
    if not digest:
        raise ValueError(f"must be {_SCRATCH} or LAYOUT@sha256:DIGEST, got {text!r}")
    return Base(Layout(Path(path)), digest)


def _assembled(pins: Path, folder: Path, downloads: Downloads, architecture: str) -> Base:
    """Write a base image of pinned packages, and its Python for this machine, below a folder."""
    entries = chain.from_iterable(
        read_entries(package, downloads.fetch(package))
        for package in read_pins(machine_architecture(), pins)
        if package.name in PACKAGES
    )
    compiler = unpacked_compiler(folder / "python", entries)
    packages = ((package, downloads.fetch(package)) for package in read_pins(architecture, pins))
    layout = Layout(folder / "layout")
    return Base(layout, write_base(layout, packages, architecture, compiler), PYTHON, compiler)


def commit_time_s(repository: Path) -> int:
    """Return the time of the current commit."""
    command = ["git", "-C", str(repository), "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main() -> None:
    """Build everything into a folder, and print a digest per file and image."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="folder of the result")
    parser.add_argument("--repository-url", required=True, help="URL that links in README name")
    parser.add_argument("--sbom", type=Path, required=True, help="bill of materials, CycloneDX")
    parser.add_argument(
        "--base",
        default="",
        help="LAYOUT@sha256:DIGEST, or scratch; default: the packages of release/base.txt",
    )
    parser.add_argument("--mirror", default=MIRROR, help="mirror of Debian's packages")
    parser.add_argument("--snapshot", default=SNAPSHOT, help="where packages are that it lacks")
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="amd64")
    parser.add_argument(
        "--without-dependencies", action="store_true", help="the base image has them already"
    )
    flags = parser.parse_args()
    try:
        base = parse_base(flags.base) if flags.base else None
    except ValueError as error:
        parser.error(f"--base: {error}")
    try:
        _write(flags, base)
    except (LayoutError, PackageError) as error:
        parser.exit(1, f"{error}\n")


def _write(flags: argparse.Namespace, base: Base | None) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    time_s, url = commit_time_s(ROOT), flags.repository_url.rstrip("/")
    flags.dist.mkdir(parents=True, exist_ok=True)
    for name in ("image", *(f"chart-{chart}" for chart in _CHARTS)):
        shutil.rmtree(flags.dist / name, ignore_errors=True)
    for old in (*flags.dist.glob("*.whl"), *flags.dist.glob("*.tar.gz")):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        source, dependencies = Path(scratch, "source"), Path(scratch, "dependencies")
        copy_tracked(ROOT, source)
        prepare(source, url, project["version"])
        wheel = build(source, flags.dist, time_s)
        if not flags.without_dependencies:
            requirements = source / "requirements/image.txt"
            platform = _PLATFORMS[flags.architecture]
            install_dependencies(requirements, dependencies, _PYTHON, platform)
        if not flags.base:
            downloads = Downloads(_DOWNLOADS, flags.mirror, flags.snapshot)
            pins = source / FILE.relative_to(ROOT)
            base = _assembled(pins, Path(scratch, "base"), downloads, flags.architecture)
        parts = ImageParts(
            wheel=wheel,
            dependencies=None if flags.without_dependencies else dependencies,
            sbom=flags.sbom.read_bytes(),
            time_s=time_s,
            version=project["version"],
            architecture=flags.architecture,
            annotations={"org.opencontainers.image.source": url},
        )
        print(f"image {write_image(flags.dist / 'image', parts, base)}")
        for chart in _CHARTS:
            folder = flags.dist / f"chart-{chart}"
            print(f"chart {chart} {write_chart(folder, source / 'charts' / chart, time_s)}")
    for file in sorted((*flags.dist.glob("*.whl"), *flags.dist.glob("*.tar.gz"))):
        print(f"{file.name} {digest_of(file.read_bytes())}")


if __name__ == "__main__":
    main()
