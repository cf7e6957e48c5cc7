"""Helm charts as reproducible archives and as OCI artefacts.

Source: https://helm.sh/docs/topics/registries/; helm pkg/registry/client.go.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from release.archives import compressed, entries_below, tar
from release.layout import Layout, encoded

_CONFIG: Final = "application/vnd.cncf.helm.config.v1+json"
_CONTENT: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def chart_archive(chart: Path, time_s: int) -> bytes:
    """Return a chart as ``helm package`` does, with the same bytes every time."""
    return compressed(tar(entries_below(chart, chart.name), time_s))


def write_chart(folder: Path, chart: Path, time_s: int) -> str:
    """Write an image layout with a chart, as ``helm push`` stores it, and return its digest."""
    layout = Layout(folder)
    meta: Mapping[str, Any] = yaml.safe_load((chart / "Chart.yaml").read_text("utf-8"))
    manifest = layout.add_manifest(
        {
            "config": layout.add(encoded(meta), _CONFIG),
            "layers": [layout.add(chart_archive(chart, time_s), _CONTENT)],
            "annotations": {
                "org.opencontainers.image.title": meta["name"],
                "org.opencontainers.image.version": meta["version"],
                "org.opencontainers.image.description": meta.get("description", ""),
            },
        }
    )
    tag = {"org.opencontainers.image.ref.name": meta["version"]}
    layout.write_index([{**manifest, "annotations": tag}])
    digest: str = manifest["digest"]
    return digest
