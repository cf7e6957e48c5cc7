"""Nothing but regular files below the agent's folders is opened, however a path is spelt."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.host.linux.host import LinuxHost
from koordinator.host.linux.trees import (
    Resolver,
    Tree,
    Trees,
    find_resolver,
    resolve_in_kernel,
    resolve_stepwise,
    trees_of,
)
from koordinator.host.port import CONTAINER, HIERARCHIES, Roots

Make = Callable[..., LinuxHost]
CANARY = "not for the agent\n"


@pytest.fixture(params=[resolve_in_kernel, resolve_stepwise])
def resolver(request: pytest.FixtureRequest) -> Resolver:
    """Return both ways to resolve a path; the first needs a kernel that has it."""
    if request.param is resolve_in_kernel and find_resolver() is not resolve_in_kernel:
        pytest.skip("the kernel has no openat2, or it is forbidden")
    return request.param


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a tree with a file, and a secret beside it."""
    (tmp_path / "root/a/b").mkdir(parents=True)
    (tmp_path / "root/a/file").write_text("1\n")
    (tmp_path / "secret").write_text(CANARY)
    return tmp_path / "root"


@pytest.fixture
def make(resolver: Resolver, root: Path) -> Make:
    """Return who makes a machine that has nothing but the tree."""

    def host(*, has_kernel_links: bool = False, folder: Path = root) -> LinuxHost:
        return LinuxHost(trees=Trees([Tree(str(folder), has_kernel_links)], resolver))

    return host


def refuses_all(host: LinuxHost, path: str) -> None:
    """Assert that a path can be neither read, written, replaced nor added to."""
    for attempt in (
        lambda: host.read(path),
        lambda: host.write(path, "2"),
        lambda: host.append(path, "2"),
    ):
        with pytest.raises(HostError):
            attempt()


def test_files_inside_are_read_and_written(make: Make, root: Path) -> None:
    """Paths with repeated slashes work as well."""
    host = make()
    host.write(f"{root}/a//file", "2\n")

    assert host.read(f"{root}/a/file") == "2\n"
    assert host.names(f"{root}/a/") == ["b", "file"]
    assert host.folders(str(root)) == ["a"]
    assert host.exists(f"{root}/a/b")
    assert host.exists(str(root))


@pytest.mark.parametrize(
    "path", ["../secret", "a/../../secret", "a/./file", "a/b/..", "/a/../../secret", "a\0/file"]
)
def test_path_with_parent_components_is_rejected(make: Make, root: Path, path: str) -> None:
    """A parent component is rejected even in a path that ends in the same folder."""
    host = make()
    refuses_all(host, f"{root}/{path}")
    assert not host.exists(f"{root}/{path}")
    assert (root.parent / "secret").read_text() == CANARY


def test_path_outside_of_all_trees_is_rejected(make: Make, root: Path) -> None:
    """A folder whose name begins alike is another one."""
    host = make()
    Path(f"{root}er").mkdir()
    Path(f"{root}er/file").write_text(CANARY)
    for path in (f"{root}er/file", str(root.parent / "secret"), "/etc/passwd", "relative", ""):
        with pytest.raises(HostError, match="not below a folder of the agent"):
            host.read(path)
        assert not host.exists(path)
        assert list(host.names(path)) == []
    with pytest.raises(HostError):
        host.replace(str(root.parent / "new"), "x")
    assert not (root.parent / "new").exists()


@pytest.mark.parametrize("target", ["../../secret", "file", "{above}/secret", "/etc"])
def test_no_link_is_followed(make: Make, root: Path, target: str) -> None:
    """Links are rejected at the end of a path and on the way, even those that stay inside."""
    host = make()
    (root / "a/link").symlink_to(target.format(above=root.parent))
    (root / "via").symlink_to("a")
    (root / "out").symlink_to(root.parent)
    for path in ("a/link", "via/file", "out/secret"):
        refuses_all(host, f"{root}/{path}")
        assert not host.exists(f"{root}/{path}")
    assert list(host.names(f"{root}/out")) == list(host.folders(f"{root}/via")) == []
    assert host.folders(str(root)) == ["a"]
    for attempt in (host.make_folder, host.remove_folder, host.remove):
        with pytest.raises(HostError):
            attempt(f"{root}/out/secret")
    with pytest.raises(HostError, match=r"it leads through a link"):
        host.replace(f"{root}/out/new", "x")
    assert sorted(path.name for path in root.parent.iterdir()) == ["root", "secret"]
    assert (root.parent / "secret").read_text() == CANARY


def test_a_link_of_the_kernel_is_followed_inside_its_tree(make: Make, root: Path) -> None:
    """As /sys/block/sda, or /proc/self; one that leads out, or nowhere, is not."""
    host = make(has_kernel_links=True)
    (root / "a/b/up").symlink_to("../../a/file")
    (root / "folder").symlink_to("a/b")
    (root / "out").symlink_to("../secret")
    (root / "far").symlink_to(root.parent / "secret")
    (root / "loop").symlink_to("loop")
    (root / "none").symlink_to("nothing")

    assert host.read(f"{root}/folder/up") == "1\n"
    assert host.names(f"{root}/folder") == ["up"]
    assert host.target(f"{root}/folder") == f"{root}/a/b"
    for name in ("out", "far", "loop"):
        with pytest.raises(HostError, match=r"it leads (through a link|out of its folder)"):
            host.read(f"{root}/{name}")
    with pytest.raises(MissingFileError):
        host.read(f"{root}/none")


def test_the_root_may_be_a_link(make: Make, root: Path) -> None:
    """The operator named it: /sys/fs/cgroup/cpu is one on many machines."""
    (root.parent / "cpu").symlink_to(root)
    host = make(folder=root.parent / "cpu")

    assert host.read(f"{root.parent}/cpu/a/file") == "1\n"


def test_non_regular_file_is_rejected_immediately(make: Make, root: Path) -> None:
    """A FIFO without a writer, a socket, a device, a folder: none is waited for."""
    host = make()
    os.mkfifo(root / "fifo")
    (root / "null").symlink_to("/dev/null")
    names = ["fifo", "a"]
    try:
        os.mknod(root / "device", 0o600 | 0o020000, os.makedev(1, 5))
        names.append("device")
    except PermissionError:
        pass
    for name in names:
        refuses_all(host, f"{root}/{name}")
    with pytest.raises(HostError, match="not a regular file"):
        host.read(f"{root}/fifo")


def test_magic_links_of_proc_are_not_followed(resolver: Resolver) -> None:
    """A magic link leads to the files of the process, wherever these are."""
    host = LinuxHost(trees=Trees([Tree("/proc", has_kernel_links=True)], resolver))

    assert host.read("/proc/self/stat").split()[0] == str(os.getpid())
    for path in ("/proc/self/exe", "/proc/self/cwd/x", "/proc/self/root/etc/passwd"):
        with pytest.raises(HostError):
            host.read(path)


def test_own_files_replace_a_link_instead_of_following_it(make: Make, root: Path) -> None:
    """A checkpoint is written atomically, and only its owner may read it."""
    host = make()
    (root / "own.tmp").symlink_to(root.parent / "secret")
    (root / "own").symlink_to(root.parent / "secret")
    host.replace(f"{root}/own", "mine")

    assert (root / "own").read_text() == "mine"
    assert not (root / "own").is_symlink()
    assert (root / "own").stat().st_mode & 0o777 == 0o600
    assert (root.parent / "secret").read_text() == CANARY


def test_own_folders_are_made(make: Make, root: Path) -> None:
    """The root, too; and a log grows by what is added."""
    host = make(folder=root / "logs")
    host.append(f"{root}/logs/deep/audit.log", "a\n")
    host.append(f"{root}/logs/deep/audit.log", "b\n")

    assert host.read(f"{root}/logs/deep/audit.log") == "a\nb\n"


def test_no_descriptor_is_left_open(make: Make, root: Path) -> None:
    """All descriptors are closed after any error."""
    host = make()
    (root / "link").symlink_to("a")
    before = len([*Path("/proc/self/fd").iterdir()])
    for path in ("a/file", "a/none", "none/x", "link/file", "a", "..", "a/file/x"):
        for attempt in (host.read, host.names, host.exists, host.remove_folder, host.target):
            try:
                attempt(f"{root}/{path}")
            except HostError:
                continue
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_both_ways_agree_on_any_path(root: Path) -> None:
    """On links, folders, files and what is missing, mixed at random."""
    if find_resolver() is not resolve_in_kernel:
        pytest.skip("the kernel has no openat2, or it is forbidden")
    for name, target in (("l1", "a"), ("a/l2", "../l1/file"), ("a/b/l3", "../../.."), ("l4", "/")):
        (root / name).symlink_to(target)
    names = ("a", "b", "file", "l1", "l2", "l3", "l4", "none")
    paths = [f"{x}/{y}/{z}" for x in names for y in names for z in names]
    for has_kernel_links in (False, True):
        one, other = (
            LinuxHost(trees=Trees([Tree(str(root), has_kernel_links)], resolver))
            for resolver in (resolve_in_kernel, resolve_stepwise)
        )
        for path in paths:
            assert outcome(one, f"{root}/{path}") == outcome(other, f"{root}/{path}"), path


def outcome(host: LinuxHost, path: str) -> tuple[object, ...]:
    """Return what a path leads to."""
    try:
        target: object = host.target(path)
    except MissingFileError:
        target = "missing"
    except HostError:
        target = "refused"
    return target, host.exists(path), tuple(host.names(path))


def test_every_root_and_hierarchy_is_a_tree() -> None:
    """A hierarchy that a cgroup file is in, or a root that is added, fails here until it is one."""
    assert {file.value.subsystem for file in CgroupFile} == set(HIERARCHIES)
    folders = {tree.folder: tree for tree in trees_of(CONTAINER, "/var/log/koordlet/", "")}
    assert {CONTAINER.cgroup, CONTAINER.sys, CONTAINER.proc, CONTAINER.kubelet} <= set(folders)
    assert {CONTAINER.resctrl, "/host-cgroup/cpu", "/var/log/koordlet"} <= set(folders)
    followed = {folder for folder, tree in folders.items() if tree.has_kernel_links}
    assert followed == {CONTAINER.sys, CONTAINER.proc}
    assert "" not in folders


def test_an_agent_opens_nothing_of_its_own_pod() -> None:
    """The token of its account is in none of the folders it may open."""
    host = LinuxHost(trees=Trees(trees_of(Roots())))
    with pytest.raises(HostError, match="not below a folder of"):
        host.read("/var/run/secrets/kubernetes.io/serviceaccount/token")


def test_an_old_kernel_is_noticed() -> None:
    """Where openat2 is forbidden, as by an old seccomp profile, paths are resolved stepwise."""
    code = (
        "import ctypes, errno\n"
        "from koordinator.host.linux import trees\n"
        "def refused(*_):\n"
        "    raise OSError(errno.EPERM, 'x')\n"
        "trees.resolve_in_kernel = refused\n"
        "assert trees.find_resolver() is trees.resolve_stepwise\n"
        "assert trees.Trees([trees.Tree('/')]).real_path('/proc') == '/proc'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
