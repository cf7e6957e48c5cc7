"""Takes away what a test left in the cluster, so that the next one finds it as the first did."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.controlplane.errors import ApiError

Metadata = dict[str, Any]

_PATIENCE_S = 60.0
_NOT_FOUND, _CONFLICT = 404, 409
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_AT_ONCE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
_DERIVED = "apiregistration.k8s.io"  # the API server makes and deletes these after CRDs
_FIRST = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")  # they'd be asked
_LAST = ("customresourcedefinitions", "namespaces")  # what they hold goes before them


@dataclass(frozen=True, slots=True)
class Resource:
    """All objects of one kind."""

    prefix: str  # /api/v1 or /apis/<group>/<version>
    plural: str
    deletes_collections: bool

    def path(self, namespace: str = "") -> str:
        """Return the path of the objects of one namespace, or of all."""
        scope = f"namespaces/{namespace}/" if namespace else ""
        return f"{self.prefix}/{scope}{self.plural}"


class Leftovers:
    """Knows what was there when it was made; ``clear`` deletes everything else.

    What was there and has been changed is left as it is.
    """

    def __init__(self, api: Endpoint) -> None:
        self._api = api
        self._connection = api.connect()
        self._kept: set[str] = set()
        with closing(self._connection):
            self._kept.update(it["uid"] for each in self._resources() for it in self._list(each))

    def clear(self) -> None:
        """Delete, finalizers or not, until a look at every kind finds nothing.

        Raises AssertionError if something is still there after a minute.
        """
        give_up = time.monotonic() + _PATIENCE_S
        with closing(self._connection):
            while remaining := [it for each in self._resources() for it in self._delete_all(each)]:
                assert time.monotonic() < give_up, f"cannot be deleted: {remaining}"

    def _resources(self) -> list[Resource]:
        by_plural: dict[tuple[str, str], Resource] = {}
        for group, prefix in self._group_versions():
            for served in (self._request("GET", prefix) or {"resources": ()})["resources"]:
                verbs, plural = served["verbs"], served["name"]
                if "list" in verbs and "delete" in verbs and group != _DERIVED:
                    resource = Resource(prefix, plural, "deletecollection" in verbs)
                    by_plural.setdefault((group, plural), resource)
        return sorted(
            by_plural.values(), key=lambda it: (it.plural in _LAST) - (it.plural in _FIRST)
        )

    def _group_versions(self) -> Iterator[tuple[str, str]]:
        yield "", "/api/v1"
        for group in self._request("GET", "/apis")["groups"]:
            for version in group["versions"]:
                yield group["name"], f"/apis/{version['groupVersion']}"

    def _list(self, resource: Resource) -> list[Metadata]:
        listed = self._request("GET", resource.path()) or {"items": ()}
        return [item["metadata"] for item in listed["items"] or ()]  # no items are null

    def _delete_all(self, resource: Resource) -> list[str]:
        """Begin to delete what was not there at first; return what that is."""
        present = self._list(resource)
        strange = [it for it in present if it["uid"] not in self._kept]
        present_in = Counter(it.get("namespace", "") for it in present)
        strange_in = Counter(it.get("namespace", "") for it in strange)
        together = {
            namespace
            for namespace, count in strange_in.items()
            if count == present_in[namespace] and resource.deletes_collections
        }
        for namespace in together:
            self._request("DELETE", resource.path(namespace), _AT_ONCE)
        for item in strange:
            namespace = item.get("namespace", "")
            path = f"{resource.path(namespace)}/{item['name']}"
            if namespace not in together:
                self._request("DELETE", path, _AT_ONCE)
            if resource.plural == "namespaces":
                emptied = {"metadata": {"name": item["name"]}, "spec": {"finalizers": []}}
                self._request("PUT", f"{path}/finalize", emptied)
            elif "deletionTimestamp" in item and resource.plural not in _LAST:
                self._request("PATCH", path, {"metadata": {"finalizers": None}})
        return [f"{resource.path(it.get('namespace', ''))}/{it['name']}" for it in strange]

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer, None if the object is deleted or being changed."""
        is_patch, is_read = method == "PATCH", method == "GET"
        try:
            return self._api.request(
                method,
                path,
                body,
                content_type="application/merge-patch+json" if is_patch else "application/json",
                accept=f"{_METADATA_ONLY},application/json" if is_read else "application/json",
                over=self._connection,
            )
        except ApiError as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise
            return None
