"""Pods of one node, polled from its kubelet instead of watched at the API server.

The kubelet has no watch: all of its pods are listed at an interval, and when ``running`` returns
other pods than before.  The kubelet must present a certificate of this node before credentials are
sent to it.
Source: koordinator pkg/koordlet/statesinformer/impl/kubelet_stub.go, states_pods.go; kubernetes
pkg/kubelet/server/server.go (``/pods``), pkg/kubelet/certificate/kubelet.go (kubelet.crt).
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from http import HTTPStatus
from pathlib import Path

import aiohttp
import msgspec
from yarl import URL

from koordinator.cluster.kubernetes.connection import ApiServer, Connection, Identity, Pem
from koordinator.cluster.kubernetes.credentials import Access, Credentials
from koordinator.cluster.kubernetes.mailbox import Follower, Mailbox
from koordinator.cluster.kubernetes.pages import ListPage, read_list_head
from koordinator.cluster.kubernetes.transport import Request, Transport
from koordinator.foundation.clock import Clock
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.foundation.lazy_dataclass import dataclass

PATH = "/pods/"
ADDRESS_TYPES = ("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")
_LOOK_S = 0.25  # between two looks at what runs
_SOON_S = 2.0  # after a failure, and after a pod came: its containers have no ids yet
_MOST_BYTES = 64 << 20  # of 110 pods with all that they may have
_FAILED = "<error>"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSource:
    """Kubelet to poll, and callbacks.

    ``read_only_port`` 0 uses TLS and the credentials of the API server; another port uses plain
    HTTP without credentials.  ``authorities`` are files of certificates that are trusted besides
    the API server's authority; missing files are ignored.  ``running`` returns UIDs of pods that
    have processes on this machine; ``observe`` is called with path, status and seconds of each
    request, ``on_problem`` with the reason why the kubelet can't be polled, empty when it can
    again.  Callbacks run in threads of their own.
    """

    node_name: str
    address_type: str = "InternalIP"
    interval_s: float = 10.0
    timeout_s: float = 3.0
    read_only_port: int = 0
    authorities: tuple[Path, ...] = ()
    running: Callable[[], Collection[str]] = frozenset
    observe: Callable[[str, str, float], None] = lambda _path, _status, _seconds: None
    on_problem: Callable[[str], None] = lambda _: None


class _RawPodList(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] | None = None


class _NodeAddress(msgspec.Struct, frozen=True):
    type: str = ""
    address: str = ""


class _DaemonPort(msgspec.Struct, frozen=True):
    port: int = msgspec.field(name="Port", default=0)  # the one name of the API in capitals


class _DaemonEndpoints(msgspec.Struct, frozen=True):
    kubelet: _DaemonPort = msgspec.field(name="kubeletEndpoint", default=_DaemonPort())


class _NodeStatus(msgspec.Struct, frozen=True):
    addresses: tuple[_NodeAddress, ...] = ()
    endpoints: _DaemonEndpoints = msgspec.field(name="daemonEndpoints", default=_DaemonEndpoints())


class _AddressedNode(msgspec.Struct, frozen=True):
    status: _NodeStatus = _NodeStatus()


class KubeletFollower(Follower):
    """Follower that delivers all pods of the kubelet as one page; must start on a loop.

    While the kubelet does not answer, no page is delivered, and readers keep the last one.
    """

    def __init__(
        self,
        transport: Transport,
        connection: Connection,
        clock: Clock,
        source: KubeletSource,
        mailbox: Mailbox,
    ) -> None:
        super().__init__(mailbox)
        self._transport = transport
        self._connection = connection
        self._clock = clock
        self._source = source
        self._client: KubeletClient | None = None
        self._is_doubted = False  # its address, port or certificate may be others by now
        self._handed_over: tuple[bytes, Collection[str], int] | None = None
        self._problem = ""

    async def _run(self) -> None:
        seen: Collection[str] = ()
        try:
            while True:
                running = (
                    await self._running_pods()
                )  # before the kubelet: who ends meanwhile is kept once
                has_news = running != seen
                seen = running
                problem = await self._try(running)
                self._report_problem(problem)
                call_soon = problem or has_news
                await self._wait(_SOON_S if call_soon else self._source.interval_s, running)
        finally:
            await self._close()

    async def _running_pods(self) -> Collection[str]:
        return await asyncio.to_thread(self._source.running)

    async def _wait(self, longest_s: float, running: Collection[str]) -> None:
        """Wait until it is time to ask again, or the machine has other pods."""
        left_s = min(longest_s, self._source.interval_s)
        while left_s > 0:
            await asyncio.sleep(min(left_s, _LOOK_S))
            left_s -= _LOOK_S
            if await self._running_pods() != running:
                return

    async def _try(self, running: Collection[str]) -> str:
        """Ask once; return what went wrong."""
        try:
            body = await self._request_pods()
        except (ClusterError, InputError) as error:
            self._is_doubted = True
            return str(error)
        state = (body, running, self._refresh)
        if state != self._handed_over:
            page = ListPage(
                body,
                is_first=True,
                refresh=self._refresh,
                kept=frozenset(running),
                versioned=False,  # statuses are newer than the versions, which belong to the specs
            )
            await self._mailbox.put(page)
            self._handed_over = state
        return ""

    async def _request_pods(self) -> bytes:
        """Return the kubelet's list; after a failure, read the address from its Node again."""
        if self._client is None or self._is_doubted:
            try:
                connected = await self._find()
            except (ClusterError, InputError):
                if self._client is None:
                    raise
            else:
                await self._close()
                self._client, self._is_doubted = connected, False
        client = self._client
        body, _ = read_list_head(await client.get(PATH), f"{client.url}{PATH}")
        try:
            decode_json(body, _RawPodList)
        except msgspec.DecodeError as error:
            raise ClusterError(f"{client.url}{PATH}: the answer is no list: {error}") from None
        return body

    async def _find(self) -> "KubeletClient":
        """Return a client of the kubelet at the address in its Node."""
        source = self._source
        request = Request("GET", f"/api/v1/nodes/{source.node_name}")
        try:
            body = await self._transport.call(request, patience_s=source.timeout_s)
            status = decode_json(body, _AddressedNode).status
        except msgspec.DecodeError as error:
            raise ClusterError(f"{request}: {error}") from None
        host = _address(status, source.address_type)
        host = f"[{host}]" if ":" in host else host
        if source.read_only_port:
            server = ApiServer(f"http://{host}:{source.read_only_port}")
            connection = Connection(server, Identity(), "--kubelet-read-only-port")
        else:
            port = status.endpoints.kubelet.port
            if not 0 < port < 1 << 16:
                raise ClusterError("the Node does not tell the kubelet's port (daemonEndpoints)")
            connection = Connection(
                ApiServer(
                    f"https://{host}:{port}",
                    ca=await asyncio.to_thread(_bundle, self._connection.server.ca, source),
                    tls_server_name=source.node_name,
                ),
                self._connection.identity,
                self._connection.source,
            )
        credentials = await asyncio.to_thread(Credentials, connection, self._clock)
        return KubeletClient(credentials, source)

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _report_problem(self, problem: str) -> None:
        if problem == self._problem:
            return
        if not problem:
            log.info("kubelet answers again")
        elif not self._problem:
            log.warning("kubelet cannot be asked for pods: trying again", extra={"error": problem})
        self._problem = problem
        self._source.on_problem(problem)


class KubeletClient:
    """Asks one kubelet.  Must be made on the loop."""

    def __init__(self, credentials: Credentials, source: KubeletSource) -> None:
        self.url = credentials.connection.server.url
        self._credentials = credentials
        self._source = source
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, keepalive_timeout=2 * source.interval_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=source.timeout_s),
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        """Close its connection."""
        await self._session.close()

    async def get(self, path: str) -> bytes:
        """Return the answer; raises ClusterError if there is none, or it is no good one."""
        access = self._credentials.current()
        if access is None:
            access = await asyncio.to_thread(self._credentials.renewed)
        status, body = await self._send(path, access)
        if status == HTTPStatus.UNAUTHORIZED:
            newer = await asyncio.to_thread(self._credentials.renewed, access)
            if newer is not access:
                status, body = await self._send(path, newer)
        if status == HTTPStatus.OK:
            return body
        shown = body[:200].decode(errors="replace").strip()
        hint = ""
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            hint = (
                "; the user must be allowed to get nodes/proxy (or nodes/pods, from "
                "Kubernetes 1.33)"
            )
        raise ClusterError(f"{self.url}{path} answered {status}: {shown}{hint}")

    async def _send(self, path: str, access: Access) -> tuple[int, bytes]:
        server = self._credentials.connection.server
        loop = asyncio.get_running_loop()
        began_s, status = loop.time(), _FAILED
        try:
            async with self._session.get(
                URL(f"{self.url}{path}", encoded=True),
                headers=list(access.headers),
                ssl=access.tls or True,
                server_hostname=server.tls_server_name or None,
                allow_redirects=False,
            ) as response:
                body = bytearray()
                while chunk := await response.content.readany():
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        raise ClusterError(f"{self.url}{path}: more than {_MOST_BYTES} bytes")
                status = str(response.status)
                return response.status, bytes(body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            within = f" within {self._source.timeout_s:g} s" * isinstance(error, TimeoutError)
            text = str(error) or type(error).__name__
            raise ClusterError(f"{self.url}{path} does not answer{within}: {text}") from error
        finally:
            self._source.observe(path, status, loop.time() - began_s)


def _address(status: _NodeStatus, wanted: str) -> str:
    by_type = {each.type: each.address for each in reversed(status.addresses) if each.address}
    if wanted not in by_type:
        known_types = ", ".join(sorted(by_type)) or "none"
        raise ClusterError(f"the Node has no address of type {wanted}; it has {known_types}")
    return by_type[wanted]


def _bundle(of_cluster: Pem, source: KubeletSource) -> bytes | None:
    """Return all certificates that are trusted; None, what the system trusts, without any."""
    texts = [of_cluster.read_bytes() if isinstance(of_cluster, Path) else of_cluster or b""]
    for file in source.authorities:
        try:
            texts.append(file.read_bytes())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", source=str(file)) from None
    return b"\n".join(filter(None, texts)) or None
