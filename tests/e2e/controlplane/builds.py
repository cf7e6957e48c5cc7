"""Programs that tests build from source, once per version and machine."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e import network
from tests.e2e.controlplane.errors import ControlPlaneError


def folder_key(folder: Path) -> str:
    """Return a digest of the files of a folder: what is built from them is kept under it."""
    return files_key(sorted(it for it in folder.iterdir() if it.is_file()))


def files_key(files: Iterable[Path]) -> str:
    """Return a digest of what files contain, one after the other."""
    digest = hashlib.sha256()
    for source in files:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def cached(name: str, key: str, make: Callable[[Path], None]) -> Path:
    """Return the folder that ``make`` filled; it appears whole or not at all."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    made = Path(base) / "koordinator" / "controlplane" / f"{name}-{key}"
    if made.is_dir():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with locked(made.parent / f"{name}.lock"):
        if not made.is_dir():  # else another process made it while this one waited for the lock
            unfinished = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=made.parent))
            try:
                make(unfinished)
                unfinished.rename(made)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return made


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes; log if it is held by another one."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for the process that holds {path}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def required_version(module: Path, dependency: str) -> str:
    """Return the version of a dependency in the go.mod of a folder."""
    return version_in(module / "go.mod", dependency)


def version_in(modfile: Path, dependency: str) -> str:
    """Return the version of a dependency in a go.mod, whatever its name."""
    text = modfile.read_text()
    required = re.search(rf"^\t{re.escape(dependency)} (\S+)", text, re.MULTILINE)
    if required is None:
        raise ControlPlaneError(f"{dependency} is not in {modfile.name} of {modfile.parent.name}")
    return required[1]


def go_build(
    module: Path,
    package: str,
    output: Path,
    flags: Sequence[str],
    tags: Sequence[str] = (),
    *,
    tests: bool = False,
    modfile: Path | None = None,
) -> None:
    """Build a program of a Go module, or of its ``tests``; ``flags`` are the linker's.

    ``modfile`` replaces the go.mod of the folder; its go.sum is in the same folder.

    Raises ControlPlaneError without Go, and if it fails.
    """
    go = find_go()
    if go is None:
        raise ControlPlaneError(
            f"{output.name} has to be built and there is no go in PATH or /usr/local/go/bin. "
            "Install Go (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a folder that has "
            "the program, such as setup-envtest downloads."
        )
    link_flags = " ".join(["-s", "-w", *flags])  # without symbols: two thirds of the size
    verb = ["test", "-c", "-vet=off"] if tests else ["build"]
    command = [go, *verb, "-mod=readonly", "-trimpath", f"-ldflags={link_flags}"]
    if modfile is not None:
        command.append(f"-modfile={modfile}")
    if tags:
        command.append(f"-tags={','.join(tags)}")
    built = subprocess.run(
        network.on_machine([*command, "-o", str(output), package]),
        cwd=module,
        env=os.environ | {"CGO_ENABLED": "0"},  # no C compiler needed
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if built.returncode:
        last_lines = "\n".join(built.stdout.splitlines()[-20:])
        raise ControlPlaneError(f"go build {package} failed in {module}:\n{last_lines}")


def find_go() -> str | None:
    """Return the path of Go's own program, None if there is none."""
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def say(text: str) -> None:
    """Report the reason of a delay."""
    print(f"controlplane: {text}", file=sys.stderr, flush=True)  # noqa: T201 -- the only output
