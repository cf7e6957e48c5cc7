"""Update of the pinned packages: newest versions, dependencies, and Debian's signature."""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from release.debian import newest, read_release, update
from release.pins import PackageError
from tests.unit.release.debian_files import Files, packages_file, serving

NOW_S = 1_800_000_000.0  # 2027-01-15
SUITES = {
    "debian": ("trixie", "trixie-updates"),
    "debian-security": ("trixie-security",),
}


def paragraph(name: str, version: str, **fields: str) -> str:
    lines = {
        "Package": name,
        "Version": version,
        **{key.replace("_", "-"): value for key, value in fields.items()},
        "Filename": f"pool/main/{name}_{version}_amd64.deb",
        "SHA256": hashlib.sha256(f"{name} {version}".encode()).hexdigest(),
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def test_newest_version_of_all_suites_is_taken_with_its_dependencies() -> None:
    """Versions compare as Debian's do; of alternatives the first one counts."""
    stable = {
        "a": paragraph("a", "1.9-1", Depends="b (>= 1), c | d", Pre_Depends="b"),
        "b": paragraph("b", "1:1.0-1", Depends="a"),
        "c": paragraph("c", "1.10-1"),
        "d": paragraph("d", "1-1"),
    }
    updates = {"c": paragraph("c", "1.10~rc1-1")}
    security = {"a": paragraph("a", "1.10-1", Depends="b, c"), "b": paragraph("b", "2.0-1")}
    chosen = newest([stable, updates, security], "amd64", ["a"])

    assert {(archive, it["Package"], it["Version"]) for archive, it in chosen} == {
        ("debian-security", "a", "1.10-1"),
        ("debian", "b", "1:1.0-1"),
        ("debian", "c", "1.10-1"),
    }


def test_what_scripts_of_an_installation_need_is_left_out() -> None:
    """Scripts of packages do not run, so their dependencies are unnecessary."""
    stable = {"a": paragraph("a", "1-1", Depends="debconf (>= 0.5) | debconf-2.0")}

    assert len(newest([stable, {}, {}], "amd64", ["a"])) == 1


def test_package_that_no_suite_has_is_an_error() -> None:
    """The error names it."""
    with pytest.raises(PackageError, match=r"b \(arm64\): no suite has this package"):
        newest([{"a": paragraph("a", "1-1", Depends="b")}, {}, {}], "arm64", ["a"])


class SignedMirror:
    """A mirror that signs its lists with a key of its own."""

    def __init__(self, files: Files, folder: Path) -> None:
        self.files = files
        self.home, self.keys = folder / "home", folder / "keys.gpg"
        self.home.mkdir(mode=0o700)
        self._gpg("--quick-generate-key", "test@example.com", "ed25519", "sign", "never")
        self._gpg("--output", str(self.keys), "--export")

    @property
    def url(self) -> str:
        """The address of the mirror."""
        return self.files.url

    def close(self) -> None:
        """End the agent that gpg has started."""
        command = ["gpgconf", "--homedir", str(self.home), "--kill", "all"]
        subprocess.run(command, check=True)

    def add(self, archive: str, suite: str, packages: bytes, fields: str = "") -> None:
        """Add a suite with the same packages for both architectures."""
        digest = hashlib.sha256(packages).hexdigest()
        place = f"/{archive}/dists/{suite}"
        lines = [f"Codename: {suite}", *filter(None, [fields]), "SHA256:"]
        for architecture in ("amd64", "arm64"):
            name = f"main/binary-{architecture}"
            lines.append(f" {digest} {len(packages)} {name}/Packages.xz")
            self.files.contents[f"{place}/{name}/by-hash/SHA256/{digest}"] = packages
        self.files.contents[f"{place}/InRelease"] = self._sign("\n".join(lines) + "\n")

    def _sign(self, text: str) -> bytes:
        return self._gpg("--clearsign", input=text.encode())

    def _gpg(self, *arguments: str, input: bytes | None = None) -> bytes:  # noqa: A002 -- as run()'s
        command = ["gpg", "--homedir", str(self.home), "--batch", "--quiet", "--passphrase", ""]
        done = subprocess.run([*command, *arguments], input=input, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[SignedMirror]:
    if shutil.which("gpg") is None or shutil.which("gpgv") is None:
        pytest.skip("gpg and gpgv are not installed")
    with serving() as files:
        made = SignedMirror(files, tmp_path)
        yield made
        made.close()


@pytest.mark.integration
def test_update_pins_what_signed_lists_name(
    mirror: SignedMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With archive and digest, for both architectures."""
    monkeypatch.setattr("release.debian._WANTED", ("a",))
    monkeypatch.setattr("release.debian.newest.__defaults__", (("a",),))
    for archive, suites in SUITES.items():
        for suite in suites:
            version = "2-1" if suite == "trixie-security" else "1-1"
            mirror.add(archive, suite, packages_file(paragraph("a", version)))
    packages = update(mirror.url, mirror.keys, NOW_S)

    assert [(it.architecture, it.name, it.version) for it in packages] == [
        ("amd64", "a", "2-1"),
        ("arm64", "a", "2-1"),
    ]
    assert {it.path for it in packages} == {"debian-security/pool/main/a_2-1_amd64.deb"}
    assert {it.sha256 for it in packages} == {hashlib.sha256(b"a 2-1").hexdigest()}


@pytest.mark.integration
def test_list_that_debian_has_not_signed_is_rejected(mirror: SignedMirror) -> None:
    """Changed after the signature, signed for another suite, too old, or by another key."""
    mirror.add("debian", "trixie", packages_file())
    path = "/debian/dists/trixie/InRelease"
    signed = mirror.files.contents[path]
    assert read_release(mirror.url, "debian", "trixie", mirror.keys, NOW_S)["Codename"] == "trixie"

    mirror.files.contents[path] = signed.replace(b"Packages.xz", b"Packages.gz")
    with pytest.raises(PackageError, match="signature is not Debian's"):
        read_release(mirror.url, "debian", "trixie", mirror.keys, NOW_S)
    mirror.files.contents["/debian/dists/trixie-updates/InRelease"] = signed
    with pytest.raises(PackageError, match="must be of trixie-updates, is of trixie"):
        read_release(mirror.url, "debian", "trixie-updates", mirror.keys, NOW_S)
    until = "Valid-Until: Thu, 14 Jan 2027 00:00:00 UTC"
    mirror.add("debian", "trixie", packages_file(), until)
    with pytest.raises(PackageError, match="was valid until Thu, 14 Jan 2027"):
        read_release(mirror.url, "debian", "trixie", mirror.keys, NOW_S)
    mirror.files.contents[path] = signed
    mirror.keys.write_bytes(b"")
    with pytest.raises(PackageError, match="signature is not Debian's"):
        read_release(mirror.url, "debian", "trixie", mirror.keys, NOW_S)


@pytest.mark.integration
def test_list_of_packages_with_another_digest_is_rejected(mirror: SignedMirror) -> None:
    """A modified list of the mirror is rejected."""
    for archive, suites in SUITES.items():
        for suite in suites:
            mirror.add(archive, suite, packages_file(paragraph("a", "1-1")))
    for path in mirror.files.contents:
        if "by-hash" in path:
            mirror.files.contents[path] = packages_file(paragraph("a", "2-1"))

    with pytest.raises(PackageError, match="has another digest"):
        update(mirror.url, mirror.keys, NOW_S)


def test_missing_keys_are_an_error(tmp_path: Path) -> None:
    """The error names the package with the keys."""
    with serving() as files:
        files.contents["/debian/dists/trixie/InRelease"] = b""
        with pytest.raises(PackageError, match="install debian-archive-keyring, or set KEYS"):
            read_release(files.url, "debian", "trixie", tmp_path / "none", NOW_S)
