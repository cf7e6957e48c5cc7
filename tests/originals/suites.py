"""Test suites of the originals: how each is built, its selected specs, and their results."""

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.controlplane.binaries import version_flags
from tests.e2e.controlplane.builds import (
    cached,
    folder_key,
    go_build,
    required_version,
    say,
)
from tests.e2e.controlplane.errors import ControlPlaneError

_KUBERNETES = Path(__file__).parent / "kubernetes"
_KOORDINATOR = Path(__file__).parent / "koordinator"
_MODULE = "github.com/koordinator-sh/koordinator"
_PARTS = ("apis", "pkg", "test")
#: As long as any of the suites may take on a slow machine.
_TIMEOUT_S = 4 * 3600


@dataclass(frozen=True, slots=True)
class Spec:
    """Result of a spec: ``state`` is passed, failed, skipped or another state of ginkgo."""

    name: str
    state: str
    why: str
    run_s: float


def kubernetes() -> Path:
    """Return the suite of Kubernetes; built once, in some minutes."""

    def build(folder: Path) -> None:
        version = required_version(_KUBERNETES, "k8s.io/kubernetes")
        say(f"building the suite of Kubernetes {version}; takes about 5 minutes, once")
        go_build(_KUBERNETES, ".", folder / "suite.test", version_flags(version), tests=True)

    return cached("suite-kubernetes", folder_key(_KUBERNETES), build) / "suite.test"


def koordinator(checkout: Path) -> Path:
    """Return the suite of a checkout of Koordinator; built once for each.

    Go's proxy does not have its module.  The suite is compiled with Kubernetes 1.35, for which it
    was written, from a copy whose go.mod requires nothing else.
    """
    if not (checkout / "test/e2e/e2e.go").is_file():
        raise ControlPlaneError(
            f"--checkout: {checkout} is no checkout of Koordinator: it has no test/e2e/e2e.go. "
            "git clone https://github.com/koordinator-sh/koordinator makes one."
        )

    def build(folder: Path) -> None:
        say("building the suite of Koordinator; takes about 3 minutes, once")
        with tempfile.TemporaryDirectory() as made:
            module = Path(made) / "suite"
            shutil.copytree(_KOORDINATOR, module)
            for part in _PARTS:
                shutil.copytree(checkout / part, module / "checkout" / part)
            (module / "checkout/go.mod").write_text(f"module {_MODULE}\n\ngo 1.25.0\n")
            go_build(module, ".", folder / "suite.test", [], tests=True)

    digest = hashlib.sha256(folder_key(_KOORDINATOR).encode())
    for file in sorted((checkout / "test/e2e").rglob("*.go")):
        digest.update(file.read_bytes())
    return cached("suite-koordinator", digest.hexdigest()[:12], build) / "suite.test"


def run(
    program: Path, kubeconfig: Path, folder: Path, focus: Sequence[str], flags: Sequence[str]
) -> list[Spec]:
    """Run the specs that match one of ``focus``; what the suite prints goes to ``suite.log``."""
    report = folder / "report.json"
    command = [
        str(program),
        f"--kubeconfig={kubeconfig}",
        "--provider=skeleton",
        "--ginkgo.v",
        "--ginkgo.no-color",
        f"--ginkgo.timeout={_TIMEOUT_S}s",
        f"--test.timeout={_TIMEOUT_S + 60}s",
        f"--ginkgo.json-report={report}",
        *(f"--ginkgo.focus={each}" for each in focus),
        *flags,
    ]
    with (folder / "suite.log").open("wb") as log:
        subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if not report.exists():
        tail = (folder / "suite.log").read_text(errors="replace").splitlines()[-30:]
        raise ControlPlaneError("the suite made no report:\n" + "\n".join(tail))
    return read(report)


def read(report: Path) -> list[Spec]:
    """Return the selected specs of ginkgo's report."""
    specs = []
    for suite in json.loads(report.read_text()):
        for each in suite["SpecReports"] or []:
            spec = _spec(each)
            if spec is not None:
                specs.append(spec)
    return specs


def _spec(report: dict[str, Any]) -> Spec | None:
    name = " ".join([*(report["ContainerHierarchyTexts"] or []), report["LeafNodeText"]])
    failure = report.get("Failure") or {}
    why = str(failure.get("Message", "")).strip()
    if report["LeafNodeType"] != "It":
        if report["State"] == "passed":
            return None  # what is done before and after all specs
        name = f"{report['LeafNodeType']} {name}"
    elif report["State"] == "skipped" and not why:
        return None  # not selected
    return Spec(name.strip(), str(report["State"]), why, report["RunTime"] / 1e9)
