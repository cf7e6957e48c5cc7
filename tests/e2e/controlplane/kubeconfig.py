"""Writes kubeconfig files."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(path: Path, server: str, ca_path: Path, credentials: Mapping[str, Any]) -> Path:
    """Write a kubeconfig with one context; ``credentials`` are the fields of its user."""
    cluster = {"server": server, "certificate-authority-data": encoded(ca_path)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": cluster}],
        "users": [{"name": "e2e", "user": dict(credentials)}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        "current-context": "e2e",
    }
    path.write_text(json.dumps(content, indent=2))  # JSON is YAML
    return path


def encoded(path: Path) -> str:
    """Return the file's content as the ``-data`` fields of a kubeconfig have it."""
    return base64.b64encode(path.read_bytes()).decode()
