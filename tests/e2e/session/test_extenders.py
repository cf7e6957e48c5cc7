"""A scheduler with an extender over TLS that filters, scores and binds, on a real API server."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.session.manifests import node, pod
from tests.e2e.session.user import User
from tests.extender_server import extender_server

from koordinator.process.serving_secret import self_signed


@dataclass
class Licences:
    """An extender: which nodes have a licence, and what it was asked."""

    controlplane: ControlPlane
    folder: Path
    nodes: set[str] = field(default_factory=set)
    bound: list[str] = field(default_factory=list)

    def filter(self, question: dict[str, Any]) -> Any:
        names = [item["metadata"]["name"] for item in question["Nodes"]["items"]]
        items = [it for it in question["Nodes"]["items"] if it["metadata"]["name"] in self.nodes]
        failed = {name: "no licence" for name in names if name not in self.nodes}
        return {"nodes": {"items": items}, "failedNodes": failed}

    def prioritize(self, question: dict[str, Any]) -> Any:
        """Prefer the last in the alphabet."""
        names = sorted(item["metadata"]["name"] for item in question["Nodes"]["items"])
        return [{"host": names[-1], "score": 10}]

    def bind(self, question: dict[str, Any]) -> Any:
        space, name = question["PodNamespace"], question["PodName"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": question["PodUID"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": question["Node"]},
        }
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(binding))
        path = f"/api/v1/namespaces/{space}/pods/{name}/binding"
        self.controlplane.kubectl("create", "--raw", path, "-f", str(file))
        self.bound.append(name)
        return {}


@pytest.fixture(scope="module")
def licences(controlplane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Licences:
    return Licences(controlplane, tmp_path_factory.mktemp("extender"))


@pytest.fixture(scope="module")
def scheduler(controlplane: ControlPlane, licences: Licences) -> Iterator[SchedulerProcess]:
    made = self_signed(("127.0.0.1",), time.time())  # noqa: TID251 -- the clock of TLS
    certificate, key = licences.folder / "tls.crt", licences.folder / "tls.key"
    certificate.write_bytes(made.certificate)
    key.write_bytes(made.key)
    verbs = {
        "filter": licences.filter,
        "prioritize": licences.prioritize,
        "bind": licences.bind,
    }
    with extender_server(verbs, (certificate, key)) as url:
        configuration = {
            "leaderElection": {"leaderElect": False},
            "extenders": [
                {
                    "urlPrefix": url,
                    "filterVerb": "filter",
                    "prioritizeVerb": "prioritize",
                    "bindVerb": "bind",
                    "weight": 100,
                    "enableHTTPS": True,
                    "tlsConfig": {"caFile": str(certificate)},
                    "httpTimeout": "3s",
                }
            ],
        }
        with SchedulerProcess(controlplane, configuration) as running:
            yield running


def test_an_extender_has_its_say(user: User, licences: Licences) -> None:
    """The extender filters, scores and binds; a pod without a licence gets the reason."""
    user.apply(node("n0"), node("n1"), node("n2"))
    user.apply(pod("waits"))
    assert "3 no licence" in user.refusal_of("waits")["message"]

    licences.nodes = {"n0", "n1"}
    user.apply(pod("goes"))

    assert user.node_of("goes") == "n1"
    assert user.node_of("waits") == "n1"
    assert set(licences.bound) == {"goes", "waits"}
