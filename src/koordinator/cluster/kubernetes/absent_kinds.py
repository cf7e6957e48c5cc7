"""Warning about watched kinds that the API server does not serve: one line for all of them.

A component watches a dozen kinds whose CustomResourceDefinitions are installed by one command, so
that a line per kind would hide that command.
"""

import asyncio
import logging
from typing import Final

from koordinator.api.crd import CustomResource
from koordinator.api.meta import KubeObject

INSTALL_COMMAND: Final = "koord crds | kubectl apply --server-side -f -"
_COLLECTED_S = 1.0  # the first lists of all kinds are answered within this time

log = logging.getLogger(__name__)


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
        others = sorted(_name(kind) for kind in kinds if not issubclass(kind, CustomResource))
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
    """Return the name of the CustomResourceDefinition of a kind, or what it would be."""
    return f"{kind.PLURAL}.{kind.API_VERSION.rpartition('/')[0]}"
