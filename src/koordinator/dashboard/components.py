"""Health of Koordinator's components, derived from their Leases and webhook configurations.

A separate thread checks it at intervals, as each check sends several requests.
"""

from collections.abc import Iterable, Iterator

from koordinator.api.control_plane import Lease
from koordinator.api.meta import KubeObject
from koordinator.cluster.port import Cluster
from koordinator.domain.component_health import (
    LEASES,
    WEBHOOKS,
    ComponentFinding,
    lease_findings,
    webhook_findings,
)
from koordinator.foundation.errors import ClusterError, NotFoundError


class ComponentHealth:
    """Result of the last check; ``unread`` is the reason where there is none."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self.findings: tuple[ComponentFinding, ...] = ()
        self.unread = "the first check has not finished"

    def check(self, now_s: float) -> None:
        """Read the objects and update ``findings``; may block on the API server."""
        try:
            leases = [*self._existing(Lease, LEASES, self._namespace)]
            webhooks = [
                one for kind, name in WEBHOOKS.items() for one in self._existing(kind, (name,), "")
            ]
        except ClusterError as error:
            self.findings, self.unread = (), str(error)
            return
        self.findings = (*lease_findings(leases, now_s), *webhook_findings(webhooks))
        self.unread = (
            "" if leases or webhooks else f"no component is installed in {self._namespace}"
        )

    def _existing(
        self, kind: type[KubeObject], names: Iterable[str], namespace: str
    ) -> Iterator[KubeObject]:
        for name in names:
            try:
                yield self._cluster.get(kind, name, namespace)
            except NotFoundError:
                continue
