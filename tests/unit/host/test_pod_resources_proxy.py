"""The socket before the kubelet's, and what becomes of it when either side goes."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from koordinator.foundation.clock import SystemClock
from koordinator.host.linux.sockets import PodResourcesProxy, PodResourcesSettings

grpc = pytest.importorskip("grpc", reason="the extra pod-resources is not installed")
pytestmark = pytest.mark.slow

SERVICE = "v1.PodResourcesLister"
LIST, GET, REST = (f"/{SERVICE}/{name}" for name in ("List", "Get", "GetAllocatableResources"))
PATIENCE_S = 60.0


class Kubelet:
    """Answers every call with its name and the request; Get with an error."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._server: Any = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(f"unix:{folder}/kubelet.sock")
        self._server.start()

    def service(self, details: Any) -> Any:
        def answer(request: bytes, context: Any) -> bytes:
            if details.method == GET:
                context.abort(grpc.StatusCode.NOT_FOUND, "pod not found")
            return details.method.encode() + b" " + request

        return grpc.unary_unary_rpc_method_handler(answer)

    def end(self) -> None:
        self._server.stop(0).wait(PATIENCE_S)


def call(folder: Path, method: str, request: bytes = b"") -> bytes:
    """Ask as a client that has just started."""
    with grpc.insecure_channel(
        f"unix:{folder}/kubelet.sock", options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        answer: bytes = channel.unary_unary(method)(
            request, timeout=PATIENCE_S, wait_for_ready=True
        )
    return answer


Start = Callable[[], PodResourcesProxy]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """``start()`` puts a proxy, in ``ours``, before the kubelet in ``theirs``."""
    started = []

    def begin() -> PodResourcesProxy:
        proxy = PodResourcesProxy(
            bytes.upper,
            PodResourcesSettings(
                folder=f"{tmp_path}/ours",
                kubelet_folder=f"{tmp_path}/theirs",
                services=[SERVICE],
                completed=[LIST[1:], GET[1:]],
            ),
        )
        proxy.start()
        started.append(proxy)
        return proxy

    yield begin
    for proxy in started:
        proxy.stop()


def test_calls_are_passed_on_and_some_answers_completed(start: Start, tmp_path: Path) -> None:
    """Calls of later kubelet versions are passed on; calls of other services are not."""
    kubelet = Kubelet(tmp_path / "theirs")
    start()
    ours = tmp_path / "ours"
    assert call(ours, LIST, b"all") == f"{LIST} all".upper().encode()
    assert call(ours, REST, b"all") == f"{REST} all".encode()
    assert call(ours, f"/{SERVICE}/Watch") == f"/{SERVICE}/Watch ".encode()
    with pytest.raises(grpc.RpcError) as caught:
        call(ours, "/v1beta1.Registration/Register")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    kubelet.end()


def test_the_kubelets_refusal_is_passed_on(start: Start, tmp_path: Path) -> None:
    """The caller gets code and message of the kubelet."""
    kubelet = Kubelet(tmp_path / "theirs")
    start()
    with pytest.raises(grpc.RpcError, match="pod not found") as caught:
        call(tmp_path / "ours", GET)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    kubelet.end()


def test_a_kubelet_that_starts_later_or_again_is_found(start: Start, tmp_path: Path) -> None:
    """The original ends if there is none at the start."""
    start()
    for _ in range(3):
        kubelet = Kubelet(tmp_path / "theirs")
        assert call(tmp_path / "ours", LIST) == f"{LIST} ".upper().encode()
        kubelet.end()


def test_stale_or_removed_socket_is_recreated(start: Start, tmp_path: Path) -> None:
    """A killed agent leaves its socket; an agent that ends late removes its successor's."""
    kubelet = Kubelet(tmp_path / "theirs")
    ours = tmp_path / "ours"
    start()
    start()  # as a second agent does while the first is ending
    (ours / "kubelet.sock").unlink()
    began_s = SystemClock().now_s()
    assert call(ours, LIST)
    assert SystemClock().now_s() - began_s < PATIENCE_S
    kubelet.end()
