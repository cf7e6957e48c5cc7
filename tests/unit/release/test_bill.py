"""The bill of materials with the Debian packages of the base."""

import json
from dataclasses import replace

from release.bill import with_packages
from tests.unit.release.debian_files import pin

BILL = b'{"bomFormat":"CycloneDX","components":[{"name":"numpy","bom-ref":"numpy"}]}'


def test_packages_are_listed_with_digest_and_url() -> None:
    """Debian packages follow Python's; the URL has the package's own architecture."""
    package = pin("libb++1", b"x", "1:1.0-1+b1~x")
    everywhere = replace(package, path=package.path.replace("_amd64.deb", "_all.deb"))
    tree = json.loads(with_packages(BILL, [package, everywhere]))
    names = [component["name"] for component in tree["components"]]

    assert names == ["numpy", "libb++1", "libb++1"]
    url = "pkg:deb/debian/libb%2B%2B1@1:1.0-1%2Bb1~x?arch=amd64&distro=trixie"
    assert tree["components"][1] == {
        "type": "library",
        "bom-ref": url,
        "name": "libb++1",
        "version": "1:1.0-1+b1~x",
        "purl": url,
        "hashes": [{"alg": "SHA-256", "content": package.sha256}],
    }
    assert tree["components"][2]["purl"].endswith("?arch=all&distro=trixie")
    assert tree["dependencies"] == [
        {"ref": component["bom-ref"]} for component in tree["components"][1:]
    ]
