"""The image's base, assembled from small packages."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import deflate
import pytest
from release.base import write_base
from release.image import USER
from release.layout import Layout
from release.pins import Package, PackageError
from tests.unit.release.debian_files import deb, file_of, folder_of, link_of, pin

Member = tuple[tarfile.TarInfo, bytes]
CERTIFICATES = {
    "usr/share/ca-certificates/mozilla/B.crt": file_of("B"),
    "usr/share/ca-certificates/mozilla/A.crt": file_of("A\n"),
}


def package(name: str, files: Mapping[str, Member]) -> tuple[Package, bytes]:
    data = deb(name, files)
    return pin(name, data), data


def base_of(folder: Path, *packages: tuple[Package, bytes]) -> dict[str, tarfile.TarInfo]:
    """Return the files of a base by path."""
    with archive_of(folder, *packages) as archive:
        return {member.name: member for member in archive.getmembers()}


def archive_of(folder: Path, *packages: tuple[Package, bytes]) -> tarfile.TarFile:
    layout = Layout(folder)
    digest = write_base(layout, packages, "amd64")
    (layer,) = layout.find_image(digest, "amd64")["layers"]
    return tarfile.open(fileobj=io.BytesIO(deflate.gzip_decompress(layout.read(layer["digest"]))))


def test_files_are_as_the_packages_have_them(tmp_path: Path) -> None:
    """Owned by root; a hard link has the content of the other file; each folder is there."""
    files = {
        "usr/bin/x": file_of("program", 0o755),
        "usr/bin/y": link_of("./usr/bin/x", tarfile.LNKTYPE),
        "usr/bin/z": link_of("x"),
        "var/lock": folder_of(0o1777),
        "etc/x.conf": file_of("setting"),
    }
    with archive_of(tmp_path, package("x", files)) as archive:
        members = {member.name: member for member in archive.getmembers()}
        linked = archive.extractfile("usr/bin/y")
        assert linked is not None
        assert linked.read() == b"program"

    assert members["usr/bin/x"].mode == 0o755
    assert members["usr/bin/z"].linkname == "x"
    assert members["etc/x.conf"].mode == 0o644
    assert members["var/lock"].mode == 0o1777
    assert members["usr"].isdir()
    assert {(each.uid, each.gid, each.mtime) for each in members.values()} == {(0, 0, 0)}


def test_base_has_what_scripts_of_packages_would_write(tmp_path: Path) -> None:
    """Users, folders for temporary files, certificates in one file, and links of alternatives."""
    with archive_of(tmp_path, package("ca-certificates", CERTIFICATES)) as archive:
        members = {member.name: member for member in archive.getmembers()}
        texts = {
            name: (archive.extractfile(name) or io.BytesIO()).read().decode()
            for name in ("etc/passwd", "etc/group", "etc/ssl/certs/ca-certificates.crt")
        }

    user, _, group = USER.partition(":")
    assert f"\nkoordinator:x:{user}:{group}:" in texts["etc/passwd"]
    assert f"\nkoordinator:x:{group}:\n" in texts["etc/group"]
    assert texts["etc/ssl/certs/ca-certificates.crt"] == "A\nB\n"
    assert members["usr/lib/ssl/cert.pem"].linkname == "/etc/ssl/certs/ca-certificates.crt"
    assert members["tmp"].mode == 0o1777
    assert members["usr/bin/python3"].linkname == "python3.13"


def test_manuals_are_left_out_and_licences_stay(tmp_path: Path) -> None:
    """A package may share the documents of another one; scanners find each package's record."""
    files = {
        "usr/share/doc/x/copyright": file_of("licence"),
        "usr/share/doc/x/changelog.gz": file_of("changes"),
        "usr/share/doc/y": link_of("x"),
        "usr/share/man/man1/x.1.gz": file_of("manual"),
        "usr/share/locale/de/x.mo": file_of("translation"),
    }
    members = base_of(tmp_path, package("x", files))

    assert {"usr/share/doc/x/copyright", "usr/share/doc/y"} < set(members)
    assert "usr/share/doc/x/changelog.gz" not in members
    assert not [name for name in members if name.startswith(("usr/share/man", "usr/share/loc"))]
    assert "var/lib/dpkg/status.d/x" in members


def test_base_is_the_same_every_time(tmp_path: Path) -> None:
    """The order of the packages has no influence."""
    packages = [package("ca-certificates", CERTIFICATES), package("x", {"x": file_of("x")})]
    first = write_base(Layout(tmp_path / "1"), packages, "amd64")
    second = write_base(Layout(tmp_path / "2"), packages[::-1], "amd64")

    assert first == second
    assert write_base(Layout(tmp_path / "3"), packages[:1], "amd64") != first


def test_folder_of_two_packages_is_one_and_a_file_is_an_error(tmp_path: Path) -> None:
    """As dpkg would refuse it."""
    one = package("a", {"usr": folder_of(), "usr/x": file_of("a")})
    same = package("b", {"usr": folder_of(), "usr/y": file_of("b")})
    other = package("c", {"usr/x": file_of("c")})

    assert {"usr/x", "usr/y"} < set(base_of(tmp_path / "1", one, same))
    with pytest.raises(PackageError, match=r"c 1-1 \(amd64\): usr/x is another one in a 1-1"):
        base_of(tmp_path / "2", one, other)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"../x": file_of("x")}, "is outside of the image"),
        ({"dev/null": link_of("", tarfile.CHRTYPE)}, "is neither file, folder nor link"),
        ({"bin": link_of("usr/bin"), "bin/x": file_of("x")}, "bin/x is below the link bin"),
    ],
)
def test_file_that_does_not_fit_is_an_error(
    tmp_path: Path, files: dict[str, Member], problem: str
) -> None:
    """Outside of the image, a device, or in a folder that is a link in another package."""
    with pytest.raises(PackageError, match=f"x 1-1 .*{problem}"):
        base_of(tmp_path, package("x", files))


@pytest.mark.parametrize("data", [b"", b"!<arch>\n", b"no package", deb("x", {})[:200]])
def test_file_that_is_no_package_is_an_error(tmp_path: Path, data: bytes) -> None:
    """A package with the right digest may be broken, too."""
    with pytest.raises(PackageError, match=r"x 1-1 \(amd64\): is no Debian package"):
        base_of(tmp_path, (pin("x", data), data))
