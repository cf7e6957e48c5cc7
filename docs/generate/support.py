"""Page of tested versions, from recorded results of end-to-end tests and from their lock files."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from docs.generate.markdown import cell, code, page, table

ROOT = Path(__file__).parents[2]
E2E = ROOT / "tests/e2e"
RESULTS = E2E / "results.json"  # written by tests/e2e/compatibility.py

#: Components that the tests of a folder run; a folder that is missing here runs several of them.
COMPONENTS = {
    "controlplane": "test environment",
    "descheduler": "koord-descheduler",
    "host": "koordlet",
    "koordlet": "koordlet",
    "node": "koordlet on a real kubelet and containerd",
    "session": "koord commands",
    "stock": "koord-scheduler with unchanged objects of Kubernetes",
    "suites": "koord-scheduler, koord-manager",
    "vgpu": "koord vgpu-monitor",
    "yarn": "koord yarn-operator, koord yarn-copilot",
}
_SEVERAL = "several components"

#: What failed in the recorded run of a release, and why.
FAILURES: Mapping[str, str] = {}


class ReleaseResults(msgspec.Struct, frozen=True):
    """Outcomes of one run on a release of Kubernetes: counts by folder, then by outcome."""

    run: str  # month of the run
    folders: dict[str, dict[str, int]]


def read_results() -> Mapping[str, ReleaseResults]:
    """Return the recorded results by release, the newest release first."""
    found = msgspec.convert(json.loads(RESULTS.read_text("utf-8")), dict[str, ReleaseResults])  # noqa: TID251 -- a script
    return dict(sorted(found.items(), key=lambda it: _number(it[0]), reverse=True))


def compatibility() -> str:
    """Return the page of tested versions."""
    return page(
        "Tested versions",
        "Kubernetes releases by component, as the recorded runs of `tests/e2e` had them.",
        _releases(),
        *(f"Failed on Kubernetes {release}: {causes}." for release, causes in FAILURES.items()),
        "Programs that the tests build, install or read, at the versions of their files.",
        table(("program", "version", "used for"), list(_programs())),
    )


def _releases() -> str:
    results = read_results()
    folders = sorted({folder for each in results.values() for folder in each.folders})
    head = (
        "tests",
        "components",
        *(f"Kubernetes {name} ({it.run})" for name, it in results.items()),
    )
    rows = [
        (
            code(folder),
            cell(COMPONENTS.get(folder, _SEVERAL)),
            *(_outcome(each.folders.get(folder, {})) for each in results.values()),
        )
        for folder in folders
    ]
    return table(head, rows)


def _outcome(counts: Mapping[str, int]) -> str:
    text = ", ".join(f"{counts[name]} {name}" for name in ("passed", "failed") if counts.get(name))
    return text or "not run"


def _programs() -> Iterator[tuple[str, str, str]]:
    for version in read_results():  # other releases can be built, and were not run
        yield "kube-apiserver, kube-scheduler", version, "components against a real cluster"
    etcd = E2E / "controlplane/etcd/go.mod"
    yield "etcd", _required(etcd, "go.etcd.io/etcd/server/v3"), "of that cluster"
    kubelet = E2E / "real_node/kubelet/go.mod"
    yield "kubelet", _required(kubelet, "k8s.io/kubernetes"), "the agent on a real node"
    helm = E2E / "controlplane/helm/go.mod"
    yield "helm", _required(helm, "helm.sh/helm/v3"), "the charts"
    prometheus = E2E / "controlplane/promql/go.mod"
    used = "expressions of alerts"
    yield "Prometheus", _required(prometheus, "github.com/prometheus/prometheus"), used
    containerd = E2E / "real_node/containerd/go.mod"
    yield "containerd", _required(containerd, "github.com/containerd/containerd/v2"), "NRI, CRI"
    hadoop = (E2E / "yarn/real_yarn.py").read_text("utf-8")
    (version,) = re.findall(r'^VERSION = "([\d.]+)"', hadoop, re.MULTILINE)
    yield "Hadoop YARN", version, "the YARN operator and agent"
    migrate = (ROOT / "tests/unit/cli/migrate/test_chart_values.py").read_text("utf-8")
    (releases,) = re.findall(r"^RELEASES = \((.*)\)", migrate, re.MULTILINE)
    used = "values that the chart and `koord migrate` read; needs a checkout of these charts"
    yield "Koordinator charts", releases.replace('"', ""), used


def _required(modfile: Path, module: str) -> str:
    """Return the version of a module in a go.mod."""
    text = modfile.read_text("utf-8")
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (\S+)", text, re.MULTILINE)
    if found is None:
        raise LookupError(f"{modfile}: {module} is not required")
    return found[1].removeprefix("v")


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
