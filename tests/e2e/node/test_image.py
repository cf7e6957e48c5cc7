"""The released image on a node: imported into containerd, and run by a kubelet."""

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from release.pins import ROOT
from tests.e2e.controlplane import ControlPlane
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.node import pod
from tests.e2e.released_image import Image

NAME = "node.test/koordinator"
MANIFESTS = ROOT / "examples/cluster.yaml"


def pod_of_the_image(version: str, *arguments: str) -> dict[str, Any]:
    """Return a pod with the restrictions of the chart's pods."""
    container = {
        "image": f"{NAME}:{version}",
        "command": [],  # the entry point of the image
        "args": [*arguments],
        "securityContext": {
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "manifests", "mountPath": "/manifests"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 -- of the container
        ],
    }
    volumes = [
        {"name": "manifests", "configMap": {"name": "manifests"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}},
    ]
    return pod("decider", container=container, volumes=volumes)


def test_image_runs_in_a_pod(
    node: RealNode, controlplane: ControlPlane, image: Image, tmp_path: Path
) -> None:
    """The kubelet finds that its user is not root; it decides as the source does."""
    archive = tmp_path / "image.tar"
    with tarfile.open(archive, "w") as layout:
        layout.add(image.folder, ".")
    ctr: list[str | Path] = [node.programs.ctr, "--namespace=k8s.io", "images"]
    imported = node.inside([*ctr, "import", f"--base-name={NAME}", archive])
    version = image.manifest["annotations"]["org.opencontainers.image.version"]
    assert f"{NAME}:{version}" in imported + node.inside([*ctr, "list", "--quiet"])
    data = {"cluster.yaml": MANIFESTS.read_text("utf-8")}
    controlplane.api.request(
        "POST",
        "/api/v1/namespaces/default/configmaps",
        {"metadata": {"name": "manifests"}, "data": data},
    )

    arguments = ("schedule", "-f", "/manifests/cluster.yaml", "-o", "json")
    (done,) = node.run(pod_of_the_image(version, *arguments), wait="Succeeded")
    koord = Path(sys.executable).with_name("koord")
    here = subprocess.run(
        [koord, "schedule", "-f", MANIFESTS, "-o", "json"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert node.printed(done).rstrip("\n") == here.stdout.rstrip("\n")
