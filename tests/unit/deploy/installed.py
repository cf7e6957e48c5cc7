"""Installed manifests, read from the repository as ``kubectl apply`` reads them."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts/koordinator"
NAMESPACE = "koordinator-system"

OBJECTS: dict[tuple[str, str], Any] = {
    (manifest["kind"], manifest["metadata"]["name"]): manifest
    for manifest in yaml.load_all(
        (ROOT / "deploy/koordinator.yaml").read_text("utf-8"), yaml.CSafeLoader
    )
}
VALUES: Any = yaml.load((CHART / "values.yaml").read_text("utf-8"), yaml.CSafeLoader)


def scheduler_configuration() -> Any:
    """Return the content of the scheduler's configuration file."""
    data = OBJECTS["ConfigMap", "koord-scheduler-config"]["data"]
    return yaml.load(data["koord-scheduler-config"], yaml.CSafeLoader)


def scheduler_pod() -> Any:
    """Return the spec of the scheduler's pods."""
    return OBJECTS["Deployment", "koord-scheduler"]["spec"]["template"]["spec"]


def scheduler_container() -> Any:
    """Return the only container of these pods."""
    (container,) = scheduler_pod()["containers"]
    return container
