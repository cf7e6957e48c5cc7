"""Installation of the node agent: its rights, its flags, its folders."""

from typing import Any

import pytest
from tests.unit.deploy.installed import CHART, NAMESPACE, OBJECTS, VALUES
from tests.unit.deploy.test_flags import parsed
from tests.unit.deploy.test_rbac import READ, Rights, resource_of, rights_of

from koordinator.api.control_plane import SubjectAccessReview, TokenReview
from koordinator.api.device import Device
from koordinator.api.event import CoreEvent, Event
from koordinator.api.node import NodeResourceTopology
from koordinator.api.node_metric import NodeMetric
from koordinator.api.volume import PersistentVolumeClaim
from koordinator.host.port import CONTAINER
from koordinator.koordlet.app.node_state import KINDS
from koordinator.koordlet.app.options import OFF, gates_of

pytestmark = pytest.mark.skipif(
    ("DaemonSet", "koordlet") not in OBJECTS,
    reason="deploy/koordinator.yaml has to be rendered anew: see its first lines",
)

#: What reports and evictions do; ``update`` reads before it writes.
WRITES: Rights = {
    ("slo.koordinator.sh", f"{NodeMetric.PLURAL}/status"): {"update"},
    resource_of(NodeResourceTopology): {"create", "get", "update"},
    resource_of(Device): {"create", "get", "update"},
    resource_of(PersistentVolumeClaim): {"get"},
    ("", "pods/eviction"): {"create"},
    resource_of(Event): {"create"},
    resource_of(CoreEvent): {"patch"},
    resource_of(TokenReview): {"create"},
    resource_of(SubjectAccessReview): {"create"},
}


def agent_pod() -> Any:
    """Return the spec of the agent's pods."""
    return OBJECTS["DaemonSet", "koordlet"]["spec"]["template"]["spec"]


def agent_container() -> Any:
    """Return the only container of these pods."""
    (container,) = agent_pod()["containers"]
    return container


def test_the_cluster_role_allows_what_the_agent_does_and_nothing_else() -> None:
    """A kind that is watched in addition fails here until the role has it."""
    needed: Rights = {resource_of(kind): set(READ) for kind in KINDS} | WRITES

    assert rights_of(OBJECTS["ClusterRole", "koordlet"]["rules"]) == needed


def test_with_pods_from_the_kubelet_the_agent_reads_none_of_other_nodes() -> None:
    """The role grants no list of pods; claims of GPUs need the pod that they are for."""
    role = (CHART / "templates/koordlet/clusterrole.yaml").read_text("utf-8")
    assert "resources: [nodes{{ if not .Values.koordlet.podsFromKubelet }}, pods{{ end }}]" in role


def test_the_role_is_bound_to_the_account_of_the_pods() -> None:
    """In the namespace of the installation."""
    account = agent_pod()["serviceAccountName"]
    binding = OBJECTS["ClusterRoleBinding", "koordlet"]

    assert ("ServiceAccount", account) in OBJECTS
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    ]


def test_every_argument_is_a_flag_with_the_meaning_of_the_chart() -> None:
    """The port is where probes ask, and gates are known."""
    name, *flags = agent_container()["args"]
    parameters, defaults = parsed([name, *flags]), parsed([name])
    (port,) = agent_container()["ports"]

    assert {key for key, value in parameters.items() if value != defaults[key]} == {
        "addr",
        "feature_gates",
        "secure_port",
        "verbosity",
    }
    assert parameters["addr"] == ""
    assert parameters["secure_port"] == port["containerPort"]
    stated = dict(part.split("=") for part in parameters["feature_gates"].split(","))
    on = gates_of({gate: text == "true" for gate, text in stated.items()})
    assert on - gates_of({}) == set(stated) & OFF
    for probe in ("livenessProbe", "readinessProbe"):
        http_get = agent_container()[probe]["httpGet"]
        assert (http_get["port"], http_get["scheme"]) == (port["name"], "HTTPS")


def test_the_folders_of_the_machine_are_where_the_agent_looks() -> None:
    """Mount paths are the roots of its container mode."""
    mounts = {mount["name"]: mount for mount in agent_container()["volumeMounts"]}
    paths = {name: mount["mountPath"] for name, mount in mounts.items()}

    assert paths["host-cgroup"] == CONTAINER.cgroup
    assert paths["nri"] == f"{CONTAINER.var_run}/nri"
    assert paths["host-sys"] == CONTAINER.sys
    assert paths["host-sys-fs"] == CONTAINER.sys_fs
    assert paths["kubelet"] == CONTAINER.kubelet
    assert {volume["name"] for volume in agent_pod()["volumes"]} == set(paths)


def test_the_agent_writes_where_it_has_to_and_sees_no_secrets_of_pods() -> None:
    """Sysfs is writable for memory and resctrl only; an empty folder hides secrets of pods."""
    mounts = {mount["name"]: mount for mount in agent_container()["volumeMounts"]}
    written = {name for name, mount in mounts.items() if not mount.get("readOnly")}
    folders = {volume["name"]: volume for volume in agent_pod()["volumes"]}

    assert written == {
        "host-cgroup", "host-sys-mm", "host-sys-fs", "checkpoints", "audit", "tmp"
    }  # fmt: skip
    assert mounts["host-sys-mm"]["mountPath"] == f"{CONTAINER.sys}/kernel/mm"
    assert folders["host-sys-mm"]["hostPath"]["path"] == "/sys/kernel/mm"
    assert mounts["no-pods"]["mountPath"] == f"{CONTAINER.kubelet}/pods"
    assert "emptyDir" in folders["no-pods"]


def test_without_privilege_the_agent_has_some_capabilities() -> None:
    """The test on real cgroups runs with these capabilities; none of them is as good as root."""
    assert set(VALUES["koordlet"]["capabilities"]) == {
        "DAC_OVERRIDE", "KILL", "PERFMON", "SYS_PTRACE", "SYS_RESOURCE"
    }  # fmt: skip
    template = (CHART / "templates/koordlet/daemonset.yaml").read_text("utf-8")
    _, _, unprivileged = template.partition("{{- else }}")
    assert "drop: [ALL]" in unprivileged
    assert "privileged: true" not in unprivileged


def test_the_agent_tolerates_all_taints_and_has_no_cpu_limit() -> None:
    """Privileged, on every node, without a CPU limit, and unknown to its own runtime proxy."""
    labels = OBJECTS["DaemonSet", "koordlet"]["spec"]["template"]["metadata"]["labels"]

    assert agent_container()["securityContext"]["privileged"] is True
    assert agent_pod()["hostPID"] is True
    assert (
        agent_pod()["tolerations"] == VALUES["koordlet"]["tolerations"] == [{"operator": "Exists"}]
    )
    assert "cpu" not in agent_container()["resources"]["limits"]
    assert labels["runtimeproxy.koordinator.sh/skip-hookserver"] == "true"
