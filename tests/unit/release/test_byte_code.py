"""Byte code of the image's modules."""

import importlib.util
import marshal
import sys
from pathlib import Path

import pytest
from release.archives import PROGRAM, Entry
from release.byte_code import Compiler, unpacked_compiler
from release.pins import PackageError

FOLDER = "opt/koordinator/site-packages"
SOURCE = b"def answer():\n    return {'a', 'b', 'c'} & {'b'}, 41 + 1\n"


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    """Return this Python as the compiler: the format is the same, the number of the version not."""
    return Compiler([sys.executable])


def compiled(compiler: Compiler, *entries: Entry) -> dict[str, Entry]:
    """Return the files that are added to the image."""
    added = [entry for entry in compiler.with_byte_code(entries) if entry not in entries]
    return {entry.path: entry for entry in added}


def module(path: str, source: bytes = SOURCE) -> Entry:
    return Entry(f"{FOLDER}/{path}", source)


def test_module_gets_byte_code_that_is_taken_without_its_source(compiler: Compiler) -> None:
    """PEP 552: the flag excludes a comparison with the hash of the source."""
    (added,) = compiled(compiler, module("x/answers.py")).values()

    assert added.path == f"{FOLDER}/x/__pycache__/answers.cpython-313.pyc"
    assert added.content is not None
    assert added.content[:4] == importlib.util.MAGIC_NUMBER
    assert added.content[4:8] == b"\x01\0\0\0"
    assert added.content[8:16] == importlib.util.source_hash(SOURCE)
    code = marshal.loads(added.content[16:])  # noqa: S302 -- just compiled
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102 -- as above
    assert names["answer"]() == ({"b"}, 42)  # type: ignore[operator]  # it is a function
    assert code.co_filename == f"/{FOLDER}/x/answers.py"


def test_byte_code_does_not_depend_on_other_modules(compiler: Compiler) -> None:
    """Byte code does not depend on names or constants of other modules, or on the process."""
    one = module("b.py", b"import os\nX = 'a name that others have, too'\nfirst_name = 1\n")
    others = [
        module(f"{name}.py", b"first_name = 'first_name'\nX = 'a name that others have, too'\n")
        for name in ("a", "c")
    ]
    path = f"{FOLDER}/__pycache__/b.cpython-313.pyc"
    alone = compiled(compiler, one)[path]

    assert compiled(compiler, *others, one)[path] == alone
    assert compiled(compiler, one, others[1])[path] == alone


def test_only_modules_that_are_imported_have_byte_code(compiler: Compiler) -> None:
    """No tests of packages, no programs elsewhere, no file with an error of syntax."""
    entries = (
        module("x/tests/test_x.py"),
        module("x/bad.py", b"print 'hello'"),
        module("x/bytes.py", b"'\xff'"),
        module("x/data.txt"),
        Entry("usr/share/gdb/x.py", SOURCE),
        Entry(f"{FOLDER}/link.py", target="x/answers.py"),
        Entry("usr/lib/python3.13/os.py", SOURCE),
    )

    assert list(compiled(compiler, *entries)) == [
        "usr/lib/python3.13/__pycache__/os.cpython-313.pyc"
    ]


def test_compiler_that_does_not_run_is_an_error() -> None:
    """The message has the output of the compiler."""
    with pytest.raises(PackageError, match="compiles no modules: cannot"):
        Compiler(["/bin/sh", "-c", "echo cannot >&2; exit 3"]).with_byte_code([module("x.py")])
    with pytest.raises(PackageError, match="No such file"):
        Compiler(["/nowhere/python3"]).with_byte_code([module("x.py")])


@pytest.mark.parametrize(
    ("machine", "loader"),
    [
        ("x86_64", "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
        ("aarch64", "usr/lib/aarch64-linux-gnu/ld-linux-aarch64.so.1"),
    ],
)
def test_compiler_runs_on_its_own_loader_and_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, loader: str
) -> None:
    """The machine needs neither this Python nor its C library."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    files = (
        Entry("usr/bin/python3.13", b"", mode=PROGRAM),
        Entry("usr/lib64/ld", target="../lib/ld"),
        Entry("usr/lib/absolute", target="/etc/x"),
        Entry(loader, b""),
    )
    command = unpacked_compiler(tmp_path, files).command

    assert command == [
        str(tmp_path / loader),
        "--library-path",
        str((tmp_path / loader).parent),
        str(tmp_path / "usr/bin/python3.13"),
    ]
    assert (tmp_path / "usr/lib64/ld").readlink() == Path("../lib/ld")
    assert not (tmp_path / "usr/lib/absolute").is_symlink()


def test_machine_without_packages_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the ones that have them."""
    with pytest.raises(PackageError, match=r"is in none of libc6, "):
        unpacked_compiler(tmp_path, ())
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(PackageError, match="x86_64 or aarch64, this machine is riscv64"):
        unpacked_compiler(tmp_path, ())
