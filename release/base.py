"""The image's base: the files of the pinned Debian packages, with Python 3.13 and no shell.

Files are taken as the packages have them; their scripts don't run.  What scripts of an installation
would write is written here: users, the certificates in one file, and links of alternatives.
"""

import tarfile
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import PurePosixPath
from typing import Final

from debian.arfile import ArError
from debian.debfile import DebFile

from release.archives import PROGRAM, Entry, compressed, tar
from release.byte_code import Compiler
from release.layout import CONFIG, LAYER, Layout, digest_of, encoded
from release.pins import Package, PackageError

PYTHON: Final = "/usr/bin/python3.13"
_TIME_S: Final = 0  # so that the layer changes with the packages only
_CERTIFICATES: Final = "usr/share/ca-certificates/mozilla/"
_BUNDLE: Final = "etc/ssl/certs/ca-certificates.crt"
#: Manuals and translations; copyright files stay.
_LEFT_OUT: Final = tuple(
    f"usr/share/{name}/"
    for name in ("bash-completion", "doc-base", "info", "lintian", "locale", "man")
)
_DOCUMENTS: Final = "usr/share/doc/"
_SHARED_MODE: Final = 0o1777
#: The user of the image has a name, too: programs look it up.
_USERS: Final = """\
root:x:0:0:root:/root:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
koordinator:x:65532:65532:koordinator:/nonexistent:/usr/sbin/nologin
"""
_GROUPS: Final = "root:x:0:\nnogroup:x:65534:\nkoordinator:x:65532:\n"
_NAMES: Final = "passwd: files\ngroup: files\nhosts: files dns\n"
_ADDED: Final = (
    Entry("etc/passwd", _USERS.encode()),
    Entry("etc/group", _GROUPS.encode()),
    Entry("etc/nsswitch.conf", _NAMES.encode()),
    Entry("tmp", mode=_SHARED_MODE),
    Entry("var/tmp", mode=_SHARED_MODE),
    Entry("usr/bin/python3", target="python3.13"),
    Entry("usr/lib/ssl/cert.pem", target=f"/{_BUNDLE}"),  # where OpenSSL looks without settings
    Entry("usr/sbin/iptables", target="iptables-nft"),
)


def write_base(
    layout: Layout,
    packages: Iterable[tuple[Package, bytes]],
    architecture: str,
    compiler: Compiler | None = None,
) -> str:
    """Write an image of the packages to a layout, and return the digest of its manifest.

    With a compiler the modules have byte code.

    Raises PackageError if a file is no package, or two packages don't fit together.
    """
    entries = _entries(packages)
    archive = tar(compiler.with_byte_code(entries) if compiler else entries, _TIME_S)
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ["PATH=/usr/sbin:/usr/bin", "LANG=C.UTF-8"]},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(archive)]},
        "history": [
            {
                "created": "1970-01-01T00:00:00Z",
                "created_by": "release.base",
                "comment": "packages of Debian",
            }
        ],
    }
    manifest = layout.add_manifest(
        {
            "config": layout.add(encoded(config), CONFIG),
            "layers": [layout.add(compressed(archive), LAYER)],
        }
    )
    layout.write_index([manifest])
    digest: str = manifest["digest"]
    return digest


def _entries(packages: Iterable[tuple[Package, bytes]]) -> Sequence[Entry]:
    by_path: dict[str, Entry] = {}
    owners: dict[str, Package] = {}
    for package, data in packages:
        for entry in read_entries(package, data):
            present = by_path.get(entry.path)
            if present is not None and present != entry:
                raise PackageError(
                    f"{package}: {entry.path} is another one in {owners[entry.path]}"
                )
            by_path[entry.path], owners[entry.path] = entry, package
    for path, package in owners.items():
        for parent in PurePosixPath(path).parents:
            above = by_path.get(str(parent))
            if above is not None and above.target:
                raise PackageError(f"{package}: {path} is below the link {above.path}")
    bundle = b"".join(
        (by_path[path].content or b"").rstrip(b"\n") + b"\n"
        for path in sorted(by_path)
        if path.startswith(_CERTIFICATES)
    )
    added = (*_ADDED, Entry(_BUNDLE, bundle))
    return [*(by_path | {entry.path: entry for entry in added}).values()]


def read_entries(package: Package, data: bytes) -> Iterator[Entry]:
    """Yield the files of a package that the image has, and its record for scanners.

    Raises PackageError if it is no package, or has a file of another kind.
    """
    try:
        file = DebFile(fileobj=BytesIO(data))
        control = file.control.get_content("control")
        archive = file.data.tgz()
        yield Entry(f"var/lib/dpkg/status.d/{package.name}", control)
        for member in archive:  # in its order: going back would unpack it again
            path = str(PurePosixPath(member.name))
            if path != "." and not _is_left_out(path, member):
                yield _entry(package, path, member, archive)
    except (ArError, tarfile.TarError) as error:
        raise PackageError(f"{package}: is no Debian package: {error}") from None


def _entry(package: Package, path: str, member: tarfile.TarInfo, archive: tarfile.TarFile) -> Entry:
    if ".." in PurePosixPath(path).parts or path.startswith("/"):
        raise PackageError(f"{package}: {path} is outside of the image")
    if member.isdir():
        return Entry(path, mode=_SHARED_MODE if member.mode & 0o002 else None)
    if member.issym():
        return Entry(path, target=member.linkname)
    content = archive.extractfile(member)  # of the other file if it is a hard link
    if content is None:
        raise PackageError(f"{package}: {path} is neither file, folder nor link")
    return Entry(path, content.read(), mode=PROGRAM if member.mode & 0o100 else None)


def _is_left_out(path: str, member: tarfile.TarInfo) -> bool:
    if path.startswith(_DOCUMENTS) and not member.isdir():
        names = path.removeprefix(_DOCUMENTS).split("/")
        is_shared = len(names) == 1 and member.issym()  # with another package of its source
        return not is_shared and names[-1] != "copyright"
    return f"{path}/".startswith(_LEFT_OUT)
