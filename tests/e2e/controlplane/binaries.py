"""Programs of the control plane, from a folder or built from Go modules.

``KUBEBUILDER_ASSETS`` names a folder of ready programs, as for controller-runtime's envtest.  What
is not there is built, once per version and machine, from the Go modules beside this file.
``KUBERNETES_VERSION``, such as 1.35, chooses among the releases of Kubernetes whose go.mod is
there; without it go.mod itself counts.
"""

import os
from pathlib import Path

from tests.e2e.controlplane.builds import (
    cached,
    files_key,
    folder_key,
    go_build,
    required_version,
    say,
    version_in,
)
from tests.e2e.controlplane.errors import ControlPlaneError

from koordinator.api.kube_version import V1_37, KubeVersion
from koordinator.api.kubescheduler import FeatureGates

KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"

VERSION_VARIABLE = "KUBERNETES_VERSION"

_ETCD = Path(__file__).parent / "etcd"
_ETCD_SERVER = "go.etcd.io/etcd/server/v3"
_KUBERNETES = Path(__file__).parent / "kubernetes"
_HELM = Path(__file__).parent / "helm"
_PROMQL = Path(__file__).parent / "promql"


def find(program: str) -> Path:
    """Return the path of etcd, helm, promql or one of ``KUBERNETES_PROGRAMS``; build it if missing.

    Raises ControlPlaneError if it has to be built and can't be.
    """
    assets = os.environ.get(ASSETS_VARIABLE)
    if assets and (Path(assets) / program).is_file():
        return Path(assets) / program
    if program == "etcd":
        return cached("etcd", folder_key(_ETCD), _build_etcd) / "etcd"
    if program == "helm":
        return cached("helm", folder_key(_HELM), _build_helm) / "helm"
    if program == "promql":
        return cached("promql", folder_key(_PROMQL), _build_promql) / "promql"
    modfile = _modfile()
    sources = (modfile, modfile.with_suffix(".sum"), _KUBERNETES / "main.go")
    return cached("kubernetes", files_key(sources), _build_kubernetes) / program


def kubernetes_version() -> str:
    """Return the release that is built, such as v1.37.2."""
    return version_in(_modfile(), "k8s.io/kubernetes")


def kubernetes_minor() -> int:
    """Return the minor release that is built, such as 37."""
    return int(kubernetes_version().split(".")[1])


def kubernetes_gates(text: str = "") -> FeatureGates:
    """Return feature gates of the release that is built."""
    return FeatureGates.parse(text, KubeVersion(kubernetes_minor()))


def _modfile() -> Path:
    """Return the go.mod of the requested release.  Raises ControlPlaneError."""
    modfiles = [_KUBERNETES / "go.mod", *sorted(_KUBERNETES.glob("v*.mod"))]
    requested = os.environ.get(VERSION_VARIABLE, "").removeprefix("v")
    if not requested:
        return modfiles[0]
    versions = {version_in(it, "k8s.io/kubernetes").removeprefix("v"): it for it in modfiles}
    for version, modfile in versions.items():
        if f"{version}.".startswith(f"{requested}."):
            return modfile
    raise ControlPlaneError(
        f"{VERSION_VARIABLE}: must be one of {', '.join(sorted(versions))}, or its minor release, "
        f"got {requested!r}"
    )


def _build_kubernetes(folder: Path) -> None:
    version = kubernetes_version()
    say(f"building Kubernetes {version}; takes about 8 minutes, once")
    output = folder / "kubernetes"
    go_build(_KUBERNETES, ".", output, version_flags(version), modfile=_modfile())
    for program in KUBERNETES_PROGRAMS:
        (folder / program).symlink_to("kubernetes")  # the binary selects the program by argv[0]


def version_flags(version: str) -> list[str]:
    """Return the linker flags that set the version of Kubernetes, v0.0.0 without them.

    kubectl can't parse that.
    """
    major, minor, _ = version.removeprefix("v").split(".")
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return [f"-X k8s.io/component-base/version.{name}={it}" for name, it in stamps.items()]


def _build_etcd(folder: Path) -> None:
    version = required_version(_ETCD, _ETCD_SERVER)
    say(f"building etcd {version}; takes about a minute, once")
    go_build(_ETCD, _ETCD_SERVER, folder / "etcd", ())


def _build_helm(folder: Path) -> None:
    version = required_version(_HELM, "helm.sh/helm/v3")
    say(f"building helm {version}; takes about 3 minutes, once")
    # Without the last two ``helm template`` takes the cluster to be v1.20.
    _, kubernetes_minor, _ = required_version(_HELM, "k8s.io/client-go").split(".")
    flags = [
        f"-X helm.sh/helm/v3/internal/version.version={version}",
        "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1",
        f"-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={kubernetes_minor}",
    ]
    go_build(_HELM, "helm.sh/helm/v3/cmd/helm", folder / "helm", flags)


def _build_promql(folder: Path) -> None:
    version = required_version(_PROMQL, "github.com/prometheus/prometheus")
    say(f"building the engine of Prometheus {version}; takes about 2 minutes, once")
    go_build(_PROMQL, ".", folder / "promql", ())


#: Text about claims that kube-scheduler up to 1.36 puts before the text about preemption.
NOTHING_TO_FREE = "no new claims to deallocate, " if kubernetes_minor() < V1_37.minor else ""
