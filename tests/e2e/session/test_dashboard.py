"""``koord dashboard`` on a real cluster: live, read only, limited to the rights of each reader."""

import http.client
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint, free_port
from tests.e2e.controlplane.errors import ApiError
from tests.e2e.guarded import unverified
from tests.e2e.koord_process import KOORD
from tests.e2e.session.manifests import node, pod
from tests.e2e.session.user import User
from tests.e2e.waiting import eventually


@dataclass
class Pages:
    """The ports of a dashboard that runs."""

    plain: Endpoint
    secure: Endpoint

    def frame(self, token: str = "") -> Any:
        """Return what a reader is given first, nothing if refused; with a token by HTTPS."""
        endpoint = self.secure if token else self.plain
        connection: http.client.HTTPConnection = endpoint.connect(20)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", "/api/events", headers=headers)
        response = connection.getresponse()
        try:
            while line := response.readline():
                if line.startswith(b"data: "):
                    return json.loads(line.removeprefix(b"data: "))
        finally:
            connection.close()
        return {}


@pytest.fixture
def pages(controlplane: ControlPlane, tmp_path: Path) -> Iterator[Pages]:
    """Run a local dashboard with a port for other readers."""
    plain, secure = free_port(), free_port()
    command = [
        str(KOORD),
        "dashboard",
        f"--kubeconfig={controlplane.kubeconfig()}",
        "--no-browser",
        f"--listen=127.0.0.1:{plain}",
        f"--secure-port={secure}",
        "--bind-address=127.0.0.1",
    ]
    errors = tmp_path / "dashboard.log"
    with (
        errors.open("wb") as log,
        subprocess.Popen(
            command, stdout=log, stderr=log, process_group=controlplane.process_group
        ) as process,
    ):
        dashboard = Pages(Endpoint(plain), Endpoint(secure, unverified()))
        try:
            eventually(lambda: errors.read_text().count("Dashboard:") == 2, 60)
            eventually(lambda: dashboard.frame().get("totals") is not None, 60)
            yield dashboard
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, errors.read_text()


def waiting(frame: Any) -> dict[str, str]:
    """Return the cause of each pod that waits."""
    return {pod["pod"]: one["cause"] for one in frame["waiting"] for pod in one["named"]}


def test_page_follows_pods(user: User, pages: Pages) -> None:
    """The page shows the scheduler's decisions; the dashboard decides nothing."""
    user.apply(node("only", "2"))
    user.apply(pod("fits", "1"), pod("waits", "64"))
    user.node_of("fits")
    key = f"{user.namespace}/waits"

    def shown(condition: Callable[[Any], bool]) -> Any:
        return eventually(lambda: next((f for f in [pages.frame()] if condition(f)), None), 30)

    frame = shown(lambda f: key in waiting(f) and f["totals"]["placed"] == 1)
    assert frame["nodes"]["names"] == ["only"]
    explained = pages.plain.request("GET", f"/api/pod?name={key}")
    assert explained["nearest"][0]["node"] == "only"
    user.kubectl("delete", "pod", "waits")
    shown(lambda f: key not in waiting(f))


def test_two_tenants_see_their_own(
    controlplane: ControlPlane, user: User, pages: Pages, namespace: str
) -> None:
    """A service account that may list pods of one namespace sees these pods and no nodes."""
    user.apply(node("only", "2"), pod("waits", "64"))
    other = f"{namespace}-other"
    controlplane.kubectl("create", "namespace", other)
    tokens = {}
    for where in (namespace, other):
        at = f"--namespace={where}"
        controlplane.kubectl("create", "serviceaccount", "viewer", at)
        controlplane.kubectl("create", "role", "see", "--verb=list", "--resource=pods", at)
        account = f"--serviceaccount={where}:viewer"
        controlplane.kubectl("create", "rolebinding", "see", "--role=see", account, at)
        tokens[where] = controlplane.service_account_token(where, "viewer")
    controlplane.kubectl(
        "apply", f"--namespace={other}", "--filename=-", stdin=json.dumps(pod("hidden", "64"))
    )
    eventually(lambda: len(waiting(pages.frame())) == 2, 30)

    for where, key in ((namespace, f"{namespace}/waits"), (other, f"{other}/hidden")):
        frame = eventually(partial(pages.frame, tokens[where]), 60)
        assert set(waiting(frame)) == {key}
        assert frame["nodes"]["names"] == []
        secure = replace(pages.secure, token=tokens[where])
        with pytest.raises(ApiError, match="HTTP 404"):
            secure.request("GET", "/api/node?name=only")
    for token, status in (("made-up", 401), ("", 403)):
        with pytest.raises(ApiError, match=f"HTTP {status}"):
            replace(pages.secure, token=token).request("GET", "/api/quotas")
    controlplane.kubectl("delete", "namespace", other, "--wait=false")
