"""Our client of a real API server: who we are, and what outages do to bindings and watches."""

import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.contract.cluster.objects import node, pod
from tests.e2e.controlplane import ControlPlane
from tests.e2e.waiting import eventually

from koordinator.api.device import Device
from koordinator.api.event import Event
from koordinator.api.meta import Condition, KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.connection import Connection, find_connection
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.cluster.port import Binding, EventType, PodReport, Watch
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import ClusterError, InvalidError

PODS = 300


def client(connection: Connection, **options: float) -> KubernetesCluster:
    clock = SystemClock()
    return KubernetesCluster(Credentials(connection, clock), clock, **options)  # type: ignore[arg-type]  # by name


@pytest.fixture
def cluster(controlplane: ControlPlane) -> Iterator[KubernetesCluster]:
    with client(find_connection(str(controlplane.kubeconfig()))) as running:
        yield running


def follow(
    cluster: KubernetesCluster, watch: Watch, state: dict[str, KubeObject], until: int
) -> None:
    """Apply events until so many objects are there and bound or there is silence."""
    while sum(bool(obj.spec.node_name) for obj in state.values() if isinstance(obj, Pod)) < until:
        assert cluster.wait(30), "nothing comes any more"
        for event in watch.poll():
            if event.type is EventType.DELETED:
                del state[event.object.key]
            elif event.type is not EventType.BOOKMARK:
                state[event.object.key] = event.object


def test_client_certificate_authenticates(controlplane: ControlPlane) -> None:
    """The user has no rights: the message has the user and the forbidden request."""
    kubeconfig = controlplane.kubeconfig("jane", ["readers"])
    with (
        client(find_connection(str(kubeconfig))) as cluster,
        pytest.raises(InvalidError, match='User "jane" cannot list resource "pods"'),
    ):
        cluster.list(Pod)


def test_admin_may_impersonate_another_user(controlplane: ControlPlane) -> None:
    """An admin may act as another user."""
    path = controlplane.write_kubeconfig("jim", {"token": controlplane.api.token, "as": "jim"})
    with (
        client(find_connection(str(path))) as cluster,
        pytest.raises(InvalidError, match='User "jim" cannot get resource "nodes"'),
    ):
        cluster.get(Node, "n")


def test_a_plugin_gives_a_token(controlplane: ControlPlane, tmp_path: Path) -> None:
    """As in the kubeconfigs of cloud providers."""
    plugin = tmp_path / "plugin"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": controlplane.api.token},
    }
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    entry = {
        "command": str(plugin),
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    path = controlplane.write_kubeconfig("plugin", {"exec": entry})
    with client(find_connection(str(path))) as cluster:
        assert cluster.list(Node).items == []


def test_the_service_account_of_a_pod(
    controlplane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """In a pod neither a file nor an argument is needed."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    controlplane.api.request("POST", path, {"metadata": {"name": "robot"}})
    token = controlplane.service_account_token(namespace, "robot")
    (tmp_path / "token").write_text(token)
    (tmp_path / "ca.crt").write_bytes(controlplane.authority.ca_path.read_bytes())
    address = urlsplit(controlplane.api.url)
    environ = {
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
        "HOME": str(tmp_path),
    }
    with (
        client(find_connection(environ=environ, service_account=tmp_path)) as cluster,
        pytest.raises(InvalidError, match=f"system:serviceaccount:{namespace}:robot"),
    ):
        cluster.list(Pod)


@pytest.mark.parametrize("change", [{"certificate-authority-data": ""}, {"tls-server-name": "x"}])
def test_untrusted_server_is_rejected_immediately(
    controlplane: ControlPlane, tmp_path: Path, change: dict[str, str]
) -> None:
    """A wrong authority or name is found out at once, not after half a minute of trying."""
    config = json.loads(controlplane.kubeconfig().read_text())
    config["clusters"][0]["cluster"] |= change
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    with (
        client(find_connection(str(path))) as cluster,
        pytest.raises(ClusterError, match="its certificate cannot be verified"),
    ):
        cluster.list(Node)


def test_bindings_survive_the_end_of_the_server(
    controlplane: ControlPlane, cluster: KubernetesCluster
) -> None:
    """Killed amid bindings and started again: every result is the truth, and all get their node."""
    for i in range(PODS):
        cluster.create(pod(f"p{i}"))
    watch, state = cluster.watch([Pod]), dict[str, KubeObject]()
    bindings = [Binding("default", f"p{i}", f"n{i}", annotations={"k": "v"}) for i in range(PODS)]

    binds = cluster.bind(bindings)
    ended = 0
    while ended < PODS // 4:
        cluster.wait(1)
        ended += len(binds.finished())
    controlplane.stop_apiserver()
    restart = threading.Thread(target=controlplane.start_apiserver)
    restart.start()
    results = binds.results()
    restart.join()

    assert results == [None] * PODS
    nodes = {p.metadata.name: p.spec.node_name for p in cluster.list(Pod).items}
    assert nodes == {binding.name: binding.node for binding in bindings}
    follow(cluster, watch, state, until=PODS)


def test_a_watch_survives_restart_and_compaction(
    controlplane: ControlPlane, cluster: KubernetesCluster
) -> None:
    """Many kinds at once; after each outage it shows what exists."""
    watch, state = cluster.watch([Node, Pod, Device, Event]), dict[str, KubeObject]()
    cluster.create(node("n1"))
    bound: list[str] = []
    for outage in (controlplane.restart_apiserver, controlplane.compact_history):
        name = f"p{len(bound)}"
        cluster.create(pod(name))
        outage()
        assert cluster.bind([Binding("default", name, "n1")]).results() == [None]
        bound.append(name)
        follow(cluster, watch, state, until=len(bound))

    assert {key for key, obj in state.items() if isinstance(obj, Pod)} == {
        f"default/{name}" for name in bound
    }


def test_etcd_away_is_an_error_in_time(
    controlplane: ControlPlane, cluster: KubernetesCluster
) -> None:
    """A failing server answers with an error; afterwards the same client continues."""
    cluster.create(pod("a"))
    with client(find_connection(str(controlplane.kubeconfig())), timeout_s=2) as hasty:
        controlplane.stop_etcd()
        with pytest.raises(ClusterError):
            hasty.create(pod("b"))
        (result,) = hasty.bind([Binding("default", "a", "n1")]).results()
        assert isinstance(result, ClusterError)
        controlplane.start_etcd()
        eventually(lambda: hasty.list(Pod).items)


def test_a_condition_is_not_written_over_that_of_a_binding(cluster: KubernetesCluster) -> None:
    """Reports and bindings of many pods at once: bound pods end as scheduled."""
    for i in range(100):
        cluster.create(pod(f"p{i}"))
    waiting = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    binds = []
    for i in range(100):
        cluster.report([PodReport("default", f"p{i}", condition=waiting)])
        binds.append(cluster.bind([Binding("default", f"p{i}", "n1")]))
    assert all(bind.results() == [None] for bind in binds)
    last = Condition(type="Last", status="True")
    cluster.report([PodReport("default", "p0", condition=last)])  # after all that waits

    def conditions() -> set[tuple[str, str]]:
        pods = cluster.list(Pod).items
        return {(c.type, c.status) for p in pods for c in p.status.conditions}

    eventually(lambda: ("Last", "True") in conditions())
    assert conditions() == {("PodScheduled", "True"), ("Last", "True")}
