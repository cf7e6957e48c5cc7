"""The server of koord-queue's aggregated API, its certificate, and the APIService that names it.

Every replica answers: each follows the cluster.  A thread of its own looks after certificate,
authorities and APIService.
"""

import logging
import threading
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from koordinator.api.control_plane import ApiService
from koordinator.api.core import ConfigMap
from koordinator.api.meta import JsonObject
from koordinator.cli.manager.visibility_pages import visibility_application
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError, InputError, NotFoundError
from koordinator.manager.queue_units.visibility import (
    GROUP,
    GROUP_VERSION,
    VERSION,
    QueueVisibility,
)
from koordinator.process.authorization import Authorizer
from koordinator.process.certificates import ReplaceableContext
from koordinator.process.front_proxy import (
    CONFIG_NAME,
    CONFIG_NAMESPACE,
    FrontProxy,
    FrontProxyGuard,
)
from koordinator.process.http_server import STOPPED_WITHIN_S, HttpServer
from koordinator.process.serving_secret import ServingPair, ServingSecret

SERVICE: Final = "koord-queue-visibility-server"
SECRET: Final = "koord-queue-visibility-certs"  # noqa: S105 -- its name
API_SERVICE: Final = f"{VERSION}.{GROUP}"
_ORIGINAL_NAMESPACE: Final = "koord-queue"  # of the Service of the original's chart
_ANY_ADDRESS: Final = "::"
_CARE_S: Final = 60.0
_CARE_AGAIN_S: Final = 5.0

log = logging.getLogger(__name__)


class VisibilityServer:
    """Serves from ``start`` until the process ends."""

    def __init__(
        self,
        port: int,
        namespace: str,
        connect: Callable[[], Cluster],
        clock: Clock,
        *,
        visibility: Callable[[], QueueVisibility],
        ask: Callable[[Callable[[], Any]], Any],
    ) -> None:
        """``namespace`` has the Secret and the Service."""
        self._port = port
        self._cluster = connect()
        self._authorizer = Authorizer(connect(), clock)
        places = dict.fromkeys((namespace, _ORIGINAL_NAMESPACE))
        names = [name for it in places for name in (f"{SERVICE}.{it}.svc", f"{SERVICE}.{it}")]
        self._secret = ServingSecret(self._cluster, clock, namespace, SECRET, [*names, SERVICE])
        self._pages = visibility_application(visibility, ask)
        self._proxy: FrontProxy | None = None
        self._tls: ReplaceableContext | None = None
        self._server: HttpServer | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._care, name="visibility-care", daemon=True)

    def start(self, cleanup: ExitStack) -> None:
        """Serve as soon as there is a certificate and the API server is known."""
        cleanup.callback(self._stop)
        self._thread.start()

    def _stop(self) -> None:
        self._stopping.set()
        self._thread.join(STOPPED_WITHIN_S)
        if self._server is not None:
            self._server.stop()

    def _care(self) -> None:
        while not self._stopping.is_set():
            try:
                self._look_after()
                pause_s = _CARE_S
            except (ClusterError, InputError) as error:
                log.warning("visibility not looked after", extra={"error": str(error)})
                pause_s = _CARE_AGAIN_S
            self._stopping.wait(pause_s)

    def _look_after(self) -> None:
        serving = self._secret.current()
        config = self._cluster.get(ConfigMap, CONFIG_NAME, CONFIG_NAMESPACE)
        self._proxy = proxy = FrontProxy.of(config)
        if self._tls is None:
            tls = ReplaceableContext(serving.pair, proxy_ca=proxy.ca)
            guard = FrontProxyGuard(
                self._pages, self._authorizer, lambda: self._proxy or proxy, GROUP_VERSION
            )
            server = HttpServer(guard, _ANY_ADDRESS, self._port, tls.context)
            server.start()
            self._server, self._tls = server, tls
            log.info("serving visibility", extra={"port": server.port})
        else:
            self._tls.replace(serving.pair, proxy_ca=proxy.ca)
        self._name_authority(serving)

    def _name_authority(self, serving: ServingPair) -> None:
        """Set the CA certificate of this server in its APIService."""
        try:
            service = self._cluster.get(ApiService, API_SERVICE)
        except NotFoundError:
            log.warning("no APIService", extra={"service": API_SERVICE})
            return
        patch = authority_patch(service, serving.trusted)
        if patch:
            self._cluster.patch(ApiService, API_SERVICE, "", patch)


def authority_patch(service: ApiService, trusted: bytes) -> JsonObject:
    """Return the patch of an APIService; empty if it skips verification or is up to date."""
    bundle = b64encode(trusted).decode()
    if service.spec.get("insecureSkipTLSVerify") or service.spec.get("caBundle") == bundle:
        return {}
    return {"spec": {"caBundle": bundle}}
