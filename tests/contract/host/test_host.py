"""Contract of the adapters of the host port."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.memory_host import MemoryHost

from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.host.linux.host import LinuxHost
from koordinator.host.port import Host


@pytest.fixture(params=["linux", "memory"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    """Make a machine with ``root/a/file`` that holds 1."""
    if request.param == "memory":
        yield MemoryHost({f"{tmp_path}/a/file": "1\n"})
        return
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_text("1\n")
    linux = LinuxHost(kept_open=2)
    yield linux
    linux.close()


def test_a_file_reads_as_it_was_written_last(host: Host, tmp_path: Path) -> None:
    """A file that is read twice, and kept open in between, shows the second write."""
    path = f"{tmp_path}/a/file"

    assert host.read(path) == "1\n"
    host.write(path, "22\n")
    assert host.read(path) == "22\n"


def test_a_missing_file_is_neither_read_nor_made(host: Host, tmp_path: Path) -> None:
    """Writing makes no file: one that the kernel has not is a feature that it has not."""
    path = f"{tmp_path}/a/none"

    with pytest.raises(MissingFileError, match=r"cannot read .*/a/none: No such file"):
        host.read(path)
    with pytest.raises(MissingFileError, match="cannot write"):
        host.write(path, "1")
    assert not host.exists(path)


def test_replace_makes_the_file_and_its_folder(host: Host, tmp_path: Path) -> None:
    """Files of our own appear whole."""
    path = f"{tmp_path}/new/own.json"
    host.replace(path, "{}")
    host.replace(path, "{1}")

    assert host.read(path) == "{1}"
    assert host.names(f"{tmp_path}/new") == ["own.json"]


def test_folders_are_listed_made_and_removed(host: Host, tmp_path: Path) -> None:
    """A missing folder has nothing in it, and may be removed again."""
    host.make_folder(f"{tmp_path}/b")
    host.make_folder(f"{tmp_path}/b")

    assert host.folders(str(tmp_path)) == ["a", "b"]
    assert host.names(f"{tmp_path}/a") == ["file"]
    host.remove_folder(f"{tmp_path}/b")
    host.remove_folder(f"{tmp_path}/b")
    assert host.folders(str(tmp_path)) == ["a"]
    assert not [*host.folders(f"{tmp_path}/b"), *host.names(f"{tmp_path}/b")]
    with pytest.raises(HostError, match="cannot make"):
        host.make_folder(f"{tmp_path}/none/b")


def test_a_file_can_be_removed_twice(host: Host, tmp_path: Path) -> None:
    """Removing a missing file is no error."""
    path = f"{tmp_path}/a/file"
    host.read(path)
    host.remove(path)
    host.remove(path)

    with pytest.raises(MissingFileError):
        host.read(path)


def test_many_files_can_be_read(host: Host, tmp_path: Path) -> None:
    """More than are kept open at a time."""
    paths = [f"{tmp_path}/many/{number}" for number in range(8)]
    for number, path in enumerate(paths):
        host.replace(path, f"{number}" * 20_000)

    for _ in range(2):
        assert [host.read(path)[0] for path in paths] == list("01234567")
        assert len(host.read(paths[0])) == 20_000


def test_replaced_file_is_reopened(tmp_path: Path) -> None:
    """The kubelet replaces its state file; the old one must not be read again."""
    linux = LinuxHost()
    path = f"{tmp_path}/state"
    for text in ("one", "two", ""):
        linux.replace(path, text)
        assert linux.read(path) == text


def test_linux_keeps_files_of_the_kernel_open() -> None:
    """Each read returns the current content."""
    linux = LinuxHost()
    first = linux.read("/proc/self/stat")
    sum(range(3_000_000))

    assert linux.read("/proc/self/stat") != first or first
    assert linux.read("/proc/uptime") <= linux.read("/proc/uptime")
    linux.close()


def test_linux_kills_a_process_and_returns_whether_it_existed() -> None:
    """A process that has ended meanwhile is no failure."""
    sleeper = subprocess.Popen(["/bin/sleep", "600"])
    linux = LinuxHost()
    lines = Path(f"/proc/{sleeper.pid}/cgroup").read_text().splitlines()
    own = lines[0].split(":", 2)[-1]

    assert linux.kill(sleeper.pid, own)
    assert sleeper.wait(60) == -9
    assert not linux.kill(sleeper.pid, own)


@pytest.mark.parametrize("cgroup", ["kubepods/poda/c0", "", "c0", "/"])
def test_linux_kills_no_process_of_another_cgroup(cgroup: str) -> None:
    """A number in a file named cgroup.procs proves nothing: the process itself is asked."""
    with subprocess.Popen(["/bin/sleep", "600"]) as sleeper:
        linux = LinuxHost()
        with pytest.raises(HostError, match="it is not in"):
            linux.kill(sleeper.pid, f"{cgroup}/none" if cgroup == "/" else cgroup)
        assert sleeper.poll() is None
        sleeper.kill()


def test_memory_kills_processes_of_a_cgroup() -> None:
    """The process leaves its cgroup."""
    memory = MemoryHost({"/cpu/x/cgroup.procs": "7\n9\n"})

    with pytest.raises(HostError, match="it is not in y"):
        memory.kill(7, "y")
    assert memory.kill(7, "x")
    assert memory.read("/cpu/x/cgroup.procs") == "9\n"
    assert not memory.kill(7, "x")
    assert memory.killed == [7]


def test_linux_mounts_file_systems_of_the_kernel(tmp_path: Path) -> None:
    """Anything else is refused with the kernel's words."""
    linux = LinuxHost()
    with pytest.raises(HostError, match=r"cannot mount nothing on"):
        linux.mount("nothing", str(tmp_path))
    try:
        linux.mount("tmpfs", str(tmp_path))
    except HostError as error:
        pytest.skip(str(error))
    is_mounted = tmp_path.is_mount()
    subprocess.run(["/bin/umount", str(tmp_path)], check=True)
    assert is_mounted


def test_memory_mounts_declared_file_systems() -> None:
    """The files of the file system appear."""
    memory = MemoryHost({"/sys/fs/x": ""})
    with pytest.raises(HostError, match="No such device"):
        memory.mount("resctrl", "/sys/fs/resctrl")
    memory.mountable["resctrl"] = {"schemata": "L3:0=ff\n"}
    memory.mount("resctrl", "/sys/fs/resctrl")
    assert memory.read("/sys/fs/resctrl/schemata") == "L3:0=ff\n"
