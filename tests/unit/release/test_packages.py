"""Release packages: reproducible archives, OCI layouts, links of the README."""

import gzip
import io
import json
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from release.archives import (
    Entry,
    compressed,
    entries_below,
    recompress_gzip,
    recompress_zip,
    tar,
)
from release.chart import write_chart
from release.distributions import with_absolute_links, with_urls, without_scripts
from release.image import USER, Base, ImageParts, write_image
from release.layout import MANIFEST, Layout, LayoutError, digest_of, encoded
from tests.unit.deploy.installed import CHART, ROOT

TIME_S = 1_700_000_000
SBOM = b'{"bomFormat":"CycloneDX"}'


def wheel(folder: Path) -> Path:
    """Write a wheel of one module."""
    path = folder / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/__init__.py", "A = 1\n")
    return path


def parts(folder: Path, **changes: Any) -> ImageParts:
    fields = {
        "wheel": wheel(folder),
        "dependencies": None,
        "sbom": SBOM,
        "time_s": TIME_S,
        "version": "1.2.3",
        "annotations": {"a": "b"},
    }
    return ImageParts(**(fields | changes))


def base(folder: Path) -> Base:
    """Write a synthetic base image: an index with one platform."""
    layout = Layout(folder)
    layer = tar([Entry("usr/bin/python3", b"#!", mode=0o755)], TIME_S)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/bin", "LANG=C.UTF-8"], "User": "0", "Cmd": ["python3"]},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer)]},
    }
    media = "application/vnd.oci.image."
    manifest = layout.add_manifest(
        {
            "config": layout.add(encoded(config), f"{media}config.v1+json"),
            "layers": [layout.add(compressed(layer), f"{media}layer.v1.tar+gzip")],
        }
    )
    platform = {"os": "linux", "architecture": "amd64"}
    index = {"schemaVersion": 2, "manifests": [manifest | {"platform": platform}]}
    return Base(layout, layout.add(encoded(index), f"{media}index.v1+json")["digest"])


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def image_of(folder: Path) -> tuple[Layout, dict[str, Any], dict[str, Any]]:
    """Return layout, manifest and configuration of the image in a layout."""
    layout = Layout(folder)
    index = json.loads((folder / "index.json").read_bytes())
    manifest = json.loads(layout.read(index["manifests"][0]["digest"]))
    return layout, manifest, json.loads(layout.read(manifest["config"]["digest"]))


def test_archive_depends_on_names_and_contents_only(tmp_path: Path) -> None:
    """The order of entries, times and owners of files have no effect."""
    for name, order in (("a", ("x", "y")), ("b", ("y", "x"))):
        (tmp_path / name).mkdir()
        for file in order:
            (tmp_path / name / file).write_text(file)
    first = tar(entries_below(tmp_path / "a", "p"), TIME_S)
    second = tar(reversed(entries_below(tmp_path / "b", "p")), TIME_S)

    assert compressed(first) == compressed(second)
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        members = archive.getmembers()
    assert [each.name for each in members] == ["p", "p/x", "p/y"]
    assert {(each.uid, each.mtime) for each in members} == {(0, TIME_S)}


def test_compression_does_not_depend_on_zlib(tmp_path: Path) -> None:
    """Archives of other compressions become equal ones, which any reader takes."""
    date = (2026, 11, 29, 18, 30, 2)
    folders = [tmp_path / str(level) for level in (1, 9)]
    for level, folder in zip((1, 9), folders, strict=True):
        folder.mkdir()
        (folder / "a.tar.gz").write_bytes(gzip.compress(b"text " * 999, level))
        with zipfile.ZipFile(folder / "a.whl", "w", compresslevel=level) as archive:
            for name in ("x/ü.py", "x/data", "empty"):
                info = zipfile.ZipInfo(name, date)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o100755 << 16
                archive.writestr(info, name * 999 * (name != "empty"))
        recompress_gzip(folder / "a.tar.gz")
        recompress_zip(folder / "a.whl")

    assert files_of(folders[0]) == files_of(folders[1])
    assert gzip.decompress((folders[0] / "a.tar.gz").read_bytes()) == b"text " * 999
    with zipfile.ZipFile(folders[0] / "a.whl") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["x/ü.py", "x/data", "empty"]
        assert archive.read("x/ü.py").decode() == "x/ü.py" * 999
        info = archive.getinfo("x/data")
    assert (info.date_time, info.external_attr, info.create_system) == (date, 0o100755 << 16, 3)


@pytest.mark.parametrize("has_base", [True, False])
def test_image_is_the_same_every_time(tmp_path: Path, has_base: bool) -> None:
    """Equal input gives equal files and an equal digest."""
    beneath = base(tmp_path / "base") if has_base else None
    digests = {write_image(tmp_path / name, parts(tmp_path), beneath) for name in ("1", "2")}

    assert len(digests) == 1
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")


def test_image_changes_with_its_input(tmp_path: Path) -> None:
    """With the wheel, the version, and the bill of materials beside it."""
    first = write_image(tmp_path / "1", parts(tmp_path), None)
    second = write_image(tmp_path / "2", parts(tmp_path, version="1.2.4"), None)

    assert first != second


def test_image_runs_on_the_base_as_another_user_than_root(tmp_path: Path) -> None:
    """The layers of the base come first; its variables stay."""
    beneath = base(tmp_path / "base")
    write_image(tmp_path / "image", parts(tmp_path), beneath)
    layout, manifest, config = image_of(tmp_path / "image")

    assert config["config"]["User"] == USER
    assert config["config"]["Entrypoint"] == ["koord"]
    assert not config["config"]["Cmd"]
    assert config["config"]["Env"][0] == "PATH=/opt/koordinator/bin:/usr/bin"
    assert "LANG=C.UTF-8" in config["config"]["Env"]
    assert "PYTHONPATH=/opt/koordinator/site-packages" in config["config"]["Env"]
    annotations = manifest["annotations"]
    assert annotations["org.opencontainers.image.base.digest"] == beneath.digest
    assert annotations["org.opencontainers.image.version"] == "1.2.3"
    unpacked = [gzip.decompress(layout.read(each["digest"])) for each in manifest["layers"]]
    assert [digest_of(each) for each in unpacked] == config["rootfs"]["diff_ids"]
    assert len(unpacked) == 2


def test_image_has_wheel_and_programs(tmp_path: Path) -> None:
    """The programs of the original are links to ours; dependencies are a layer of their own."""
    dependencies = tmp_path / "dependencies"
    dependencies.mkdir()
    (dependencies / "y.py").write_text("")
    write_image(tmp_path / "image", parts(tmp_path, dependencies=dependencies), None)
    layout, manifest, _ = image_of(tmp_path / "image")
    names = []
    for each in manifest["layers"]:
        data = gzip.decompress(layout.read(each["digest"]))
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            names.append({member.name: member for member in archive.getmembers()})

    assert "opt/koordinator/site-packages/y.py" in names[0]
    assert "opt/koordinator/site-packages/x/__init__.py" in names[1]
    assert names[1]["opt/koordinator/bin/koord"].mode == 0o755
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        program = archive.extractfile("opt/koordinator/bin/koord")
        assert program is not None
        assert program.read().startswith(b"#!/usr/bin/env python3\n")
    assert names[1]["koord-scheduler"].linkname == "/opt/koordinator/bin/koord"


def test_bill_of_materials_refers_to_the_image(tmp_path: Path) -> None:
    """Registries list it as a referrer."""
    digest = write_image(tmp_path / "image", parts(tmp_path), None)
    layout = Layout(tmp_path / "image")
    index = json.loads((tmp_path / "image/index.json").read_bytes())
    bill = json.loads(layout.read(index["manifests"][1]["digest"]))

    assert bill["subject"]["digest"] == digest
    assert layout.read(bill["layers"][0]["digest"]) == SBOM


def test_broken_base_is_rejected(tmp_path: Path) -> None:
    """A blob that is missing or another one, and a platform that the index lacks."""
    beneath = base(tmp_path / "base")
    with pytest.raises(LayoutError, match="linux/arm64"):
        write_image(tmp_path / "1", parts(tmp_path, architecture="arm64"), beneath)
    blob = next((tmp_path / "base/blobs/sha256").glob(f"{beneath.digest.partition(':')[2]}"))
    blob.write_bytes(b"{}")
    with pytest.raises(LayoutError, match="has the digest"):
        write_image(tmp_path / "2", parts(tmp_path), beneath)
    blob.unlink()
    with pytest.raises(LayoutError, match=beneath.digest):
        write_image(tmp_path / "3", parts(tmp_path), beneath)
    with pytest.raises(LayoutError, match="64 hexadecimal"):
        write_image(tmp_path / "4", parts(tmp_path), Base(beneath.layout, "sha256:../../x"))


def test_chart_is_an_artefact_that_is_the_same_every_time(tmp_path: Path) -> None:
    """The artefact's only layer is the archive of ``helm package``."""
    digests = {write_chart(tmp_path / name, CHART, TIME_S) for name in ("1", "2")}
    layout = Layout(tmp_path / "1")
    (digest,) = digests
    manifest = json.loads(layout.read(digest))
    data = gzip.decompress(layout.read(manifest["layers"][0]["digest"]))

    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")
    assert manifest["mediaType"] == MANIFEST
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert "koordinator/Chart.yaml" in archive.getnames()


def test_records_do_not_name_scripts_that_are_left_out() -> None:
    """A script's digest depends on the path of Python on the machine that builds."""
    files = "typer/main.py,sha256=x,1\n", "typer-1.dist-info/RECORD,,\n"

    assert without_scripts(f"{files[0]}bin/typer,sha256=y,305\n{files[1]}") == "".join(files)


def test_links_of_the_readme_become_absolute() -> None:
    """Of files and pictures; links to other sites and to sections stay."""
    text = "[a](docs/a.md) ![b](docs/b.png) [c](https://c) [d](#d)"
    result = with_absolute_links(text, "https://example.com/k", "1.0")

    assert result == (
        "[a](https://example.com/k/blob/v1.0/docs/a.md) "
        "![b](https://example.com/k/raw/v1.0/docs/b.png) [c](https://c) [d](#d)"
    )


def test_project_gets_its_urls() -> None:
    """The result is a valid pyproject.toml with all former settings."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    document = tomllib.loads(with_urls(text, {"Homepage": "https://example.com"}))

    assert document["project"].pop("urls") == {"Homepage": "https://example.com"}
    assert document == tomllib.loads(text)
