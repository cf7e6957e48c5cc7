"""Folders of regions are recreated and removed, with any content that containers put there."""

import os
import stat
from pathlib import Path

import pytest

from koordinator.foundation.errors import HostError
from koordinator.host.linux.vgpu_regions import LinuxRegionFolders


def test_recreated_folder_is_empty_and_world_writable(tmp_path: Path) -> None:
    """Regardless of the umask; the previous content is removed, and links are not followed."""
    outside = tmp_path / "outside"
    outside.write_text("kept")
    regions = LinuxRegionFolders(f"{tmp_path}/deep/containers")
    before = os.umask(0o077)
    try:
        regions.renew("u_main")
        own = tmp_path / "deep/containers/u_main"
        (own / "u_main.cache").write_text("limits of before")
        (own / "link").symlink_to(outside)
        (own / "a/b").mkdir(parents=True)
        regions.renew("u_main")
    finally:
        os.umask(before)

    assert list(own.iterdir()) == []
    assert stat.S_IMODE(own.stat().st_mode) == 0o777
    assert [path.name for path in own.parent.iterdir()] == ["u_main"]
    assert outside.read_text() == "kept"


def test_folder_with_a_thousand_files_is_moved_aside(tmp_path: Path) -> None:
    """The monitor removes the rest, under a name that no container has."""
    regions = LinuxRegionFolders(str(tmp_path))
    regions.renew("u_main")
    for number in range(1000):
        (tmp_path / f"u_main/{number}").touch()
    regions.renew("u_main")

    assert regions.files("u_main", 10) == []
    (rest,) = set(regions.names(10)) - {"u_main"}
    assert rest.endswith("_removed")
    assert regions.remove(rest, 2000)


def test_a_link_in_the_place_of_a_folder_is_put_away(tmp_path: Path) -> None:
    """The link is replaced, and not followed."""
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers/u_main").symlink_to(target)
    LinuxRegionFolders(f"{tmp_path}/containers").renew("u_main")

    assert not (tmp_path / "containers/u_main").is_symlink()
    assert target.is_dir()


def test_failure_to_create_a_folder_is_raised(tmp_path: Path) -> None:
    """As where a file is in the way."""
    (tmp_path / "containers").touch()
    with pytest.raises(HostError, match="cannot use"):
        LinuxRegionFolders(f"{tmp_path}/containers").renew("u_main")
