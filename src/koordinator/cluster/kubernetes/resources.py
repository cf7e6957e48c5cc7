"""Resources of the API: their paths, and kinds that the API server does not have.

A component watches a dozen kinds whose CustomResourceDefinitions are installed by one command, so
that a line per kind would hide that command.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/.
"""

import asyncio
import logging
import re
from typing import Final
from urllib.parse import quote, urlencode

from koordinator.api.crd import CustomResource
from koordinator.api.defaults import DEFAULT_NAMESPACE
from koordinator.api.meta import KubeObject

_PLAIN = re.compile(r"[a-z0-9-]+([.][a-z0-9-]+)*")  # nearly all names are; quoting is not free

INSTALL_COMMAND: Final = "koord crds | kubectl apply --server-side -f -"
_COLLECTED_S = 1.0  # the first lists of all kinds are answered within this time

log = logging.getLogger(__name__)


def collection_path(kind_type: type[KubeObject], namespace: str | None) -> str:
    """Return the path of all objects of a kind, in one namespace or in all (None)."""
    version = kind_type.API_VERSION
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if kind_type.NAMESPACED and namespace is not None:
        return f"{root}/namespaces/{_segment(namespace or DEFAULT_NAMESPACE)}/{kind_type.PLURAL}"
    return f"{root}/{kind_type.PLURAL}"


def object_path(
    kind_type: type[KubeObject], name: str, namespace: str, subresource: str = ""
) -> str:
    """Return the path of one object or of a subresource of it."""
    path = f"{collection_path(kind_type, namespace)}/{_segment(name)}"
    return f"{path}/{subresource}" if subresource else path


def with_query(path: str, **parameters: str | int | None) -> str:
    """Return the path with those parameters that are not empty."""
    given = {key: value for key, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _segment(name: str) -> str:
    """Percent-encode a name as one segment of a path."""
    if _PLAIN.fullmatch(name):
        return name
    return quote(name, safe="") if name not in (".", "..") else name.replace(".", "%2E")


class AbsentKinds:
    """Kinds that were found to be absent; used on the event loop of one cluster."""

    def __init__(self, collected_s: float = _COLLECTED_S) -> None:
        self._collected_s = collected_s
        self._pending: set[type[KubeObject]] = set()

    def add(self, kind: type[KubeObject]) -> None:
        """Add a kind to the next warning, which is logged a second after its first kind."""
        if not self._pending:
            asyncio.get_running_loop().call_later(self._collected_s, self._warn)
        self._pending.add(kind)

    def _warn(self) -> None:
        kinds, self._pending = self._pending, set()
        custom = sorted(_name(kind) for kind in kinds if issubclass(kind, CustomResource))
        others = sorted({_name(kind) for kind in kinds if not issubclass(kind, CustomResource)})
        if custom:
            log.warning(
                "custom resources are not installed; install them with: %s",
                INSTALL_COMMAND,
                extra={"missing": ", ".join(custom)},
            )
        if others:
            log.warning(
                "the API server does not serve some kinds of Kubernetes; it works without them",
                extra={"missing": ", ".join(others)},
            )


def _name(kind: type[KubeObject]) -> str:
    """Return the name that the CustomResourceDefinition of a kind has, ``plural.group``."""
    return f"{kind.PLURAL}.{kind.API_VERSION.rpartition('/')[0]}"
