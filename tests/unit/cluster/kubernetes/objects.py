"""Pods as a server sends them, whole and in events."""

import json
from typing import Any

from koordinator.api.meta import JsonObject

PODS = "/api/v1/pods"


def pod(name: str, version: str = "1", uid: str = "", **spec: Any) -> JsonObject:
    """Return a pod as a list has it: without apiVersion and kind."""
    meta = {"name": name, "namespace": "default", "resourceVersion": version, "uid": uid or name}
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}], **spec}}


def pod_list(*pods: JsonObject, version: str = "1", next_page: str = "") -> JsonObject:
    """Return a page."""
    return {"metadata": {"resourceVersion": version, "continue": next_page}, "items": list(pods)}


def event(kind: str, obj: JsonObject) -> bytes:
    """Return a line of a watch, spelled as the API server does."""
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode()


def bookmark(version: str) -> bytes:
    """Return a bookmark as pods have it."""
    meta = {"resourceVersion": version, "creationTimestamp": None}
    return event("BOOKMARK", {"metadata": meta, "spec": {"containers": None}})


def gone_error() -> bytes:
    """Return the event that ends a watch whose resourceVersion is too old."""
    return event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"})
