"""The base's Debian packages in a bill of materials: ``python -m release.bill FILE``.

Source: CycloneDX 1.6, ``components`` and ``dependencies``; package-url, type ``deb``.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from release.pins import ARCHITECTURES, Package, PackageError, read_pins

_RELEASE: Final = "trixie"


def with_packages(bill: bytes, packages: Iterable[Package]) -> bytes:
    """Return a bill of materials that also lists packages."""
    tree: dict[str, Any] = json.loads(bill)
    components = [_component(package) for package in packages]
    tree.setdefault("components", []).extend(components)
    references = [{"ref": component["bom-ref"]} for component in components]
    tree.setdefault("dependencies", []).extend(references)
    return (json.dumps(tree, indent=2) + "\n").encode()


def _component(package: Package) -> dict[str, Any]:
    own = package.path.removesuffix(".deb").rpartition("_")[2]  # the architecture, or all
    version = quote(package.version, safe=":~")
    url = f"pkg:deb/debian/{quote(package.name)}@{version}?arch={own}&distro={_RELEASE}"
    return {
        "type": "library",
        "bom-ref": url,
        "name": package.name,
        "version": package.version,
        "purl": url,
        "hashes": [{"alg": "SHA-256", "content": package.sha256}],
    }


def main() -> None:
    """Add the packages of an architecture to a file."""
    parser = argparse.ArgumentParser(prog="python -m release.bill", description=__doc__)
    parser.add_argument("file", type=Path, help="bill of materials, CycloneDX in JSON")
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="amd64")
    flags = parser.parse_args()
    try:
        packages = read_pins(flags.architecture)
    except PackageError as error:
        parser.exit(1, f"{error}\n")
    flags.file.write_bytes(with_packages(flags.file.read_bytes(), packages))


if __name__ == "__main__":
    main()
