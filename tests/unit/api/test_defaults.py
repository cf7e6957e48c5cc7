"""Objects get what the API server would fill in."""

from typing import Any

from koordinator.api.codec import decode
from koordinator.api.core import Namespace, Toleration
from koordinator.api.defaults import NOT_READY, UNREACHABLE, with_defaults
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.policy import PriorityClass
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim, StorageClass
from koordinator.api.workload import Deployment


def pod(**spec: Any) -> Pod:
    data = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main"}], **spec}}
    return with_defaults(decode(data, Pod))


def requests(resources: Any) -> dict[str, str]:
    return {resource: str(amount) for resource, amount in resources.requests.items()}


def test_a_pod_gets_the_defaults_of_the_server() -> None:
    """Namespace, scheduler, restarts, grace period, phase."""
    filled = pod()

    assert filled.key == "default/a"
    assert filled.spec.scheduler_name == "default-scheduler"
    assert filled.spec.restart_policy == "Always"
    assert filled.spec.termination_grace_period_seconds == 30
    assert filled.status.phase == "Pending"


def test_an_object_that_has_everything_is_returned_itself() -> None:
    """Nothing is copied when nothing is missing."""
    filled = pod(containers=[{"name": "a", "ports": [{"containerPort": 1}]}])

    assert with_defaults(filled) is filled


def test_a_container_requests_its_limits() -> None:
    """Requests of the container's own stay; init containers follow the same rule."""
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    filled = pod(
        containers=[{"name": "a", "resources": resources}],
        initContainers=[{"name": "b", "resources": {"limits": {"x.io/gpu": 1}}}],
    )

    assert requests(filled.spec.containers[0].resources) == {"cpu": "1", "memory": "1Gi"}
    assert requests(filled.spec.init_containers[0].resources) == {"x.io/gpu": "1"}


def test_pod_level_requests_default_to_containers_and_limits() -> None:
    """Sidecars count beside the containers, other init containers only while they run."""

    def asking(name: str, cpu: str, **more: str) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}

    filled = pod(
        resources={"limits": {"cpu": "8", "memory": "4Gi"}},
        containers=[asking("a", "1"), asking("b", "500m")],
        initContainers=[asking("side", "250m", restartPolicy="Always"), asking("init", "3")],
    )

    assert filled.spec.resources is not None
    assert requests(filled.spec.resources) == {"cpu": "3250m", "memory": "4Gi"}


def test_ports_are_tcp_and_those_of_the_host_network_host_ports() -> None:
    """A pod on the host network takes the node's port of the same number."""
    containers = [
        {"name": "a", "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}]}
    ]

    ports = pod(containers=containers).spec.containers[0].ports
    host_ports = pod(containers=containers, hostNetwork=True).spec.containers[0].ports

    assert [(port.protocol, port.host_port) for port in ports] == [("TCP", 0), ("UDP", 0)]
    assert [(port.protocol, port.host_port) for port in host_ports] == [("TCP", 80), ("UDP", 53)]


def test_pod_stays_five_minutes_on_a_lost_node_by_default() -> None:
    """The two tolerations are appended one by one; a toleration of everything makes up for both."""
    own = {"key": NOT_READY.key, "operator": "Exists", "effect": "NoExecute"}

    assert pod().spec.tolerations == (NOT_READY, UNREACHABLE)
    assert pod(tolerations=[own]).spec.tolerations[1:] == (UNREACHABLE,)
    assert pod(tolerations=[{"operator": "Exists"}]).spec.tolerations == (
        Toleration(operator="Exists"),
    )


def test_other_kinds_get_theirs() -> None:
    """Node, namespace, priority class, storage and workloads."""
    name = {"metadata": {"name": "a"}}
    node = with_defaults(decode({**name, "status": {"capacity": {"cpu": 4}}}, Node))
    namespace = with_defaults(Namespace(metadata=ObjectMeta(name="a")))
    claim = with_defaults(decode(name, PersistentVolumeClaim))
    volume = with_defaults(decode(name, PersistentVolume))
    storage_class = with_defaults(decode({**name, "provisioner": "p"}, StorageClass))

    assert node.status.allocatable == node.status.capacity
    assert namespace.metadata.labels == {"kubernetes.io/metadata.name": "a"}
    assert namespace.status.phase == "Active"
    assert (claim.key, claim.spec.volume_mode, claim.status.phase) == (
        "default/a",
        "Filesystem",
        "Pending",
    )
    assert volume.spec.persistent_volume_reclaim_policy == "Retain"
    assert storage_class.volume_binding_mode == "Immediate"
    assert with_defaults(decode({**name, "value": 1}, PriorityClass)).preemption_policy == (
        "PreemptLowerPriority"
    )
    assert with_defaults(decode(name, Deployment)).spec.replicas == 1
    for obj in (node, namespace, claim, volume, storage_class):
        assert with_defaults(obj) is obj
