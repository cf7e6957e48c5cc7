"""Pods of the scheduler as installed."""

from tests.unit.deploy.installed import (
    NAMESPACE,
    OBJECTS,
    scheduler_container,
    scheduler_pod,
)


def test_everything_is_in_the_one_namespace() -> None:
    """One ``kubectl delete -f`` takes away all that was installed."""
    assert ("Namespace", NAMESPACE) in OBJECTS
    namespaces = {manifest["metadata"].get("namespace", NAMESPACE) for manifest in OBJECTS.values()}

    assert namespaces == {NAMESPACE}


def test_pods_pass_the_restricted_pod_security_standard() -> None:
    """No root, no capabilities, no writing but to what is mounted for it."""
    pod, container = scheduler_pod(), scheduler_container()

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert all(set(volume) & {"configMap", "emptyDir"} for volume in pod["volumes"])


def test_replicas_are_spread_over_nodes() -> None:
    """Two replicas, apart where possible, and never both drained at once."""
    deployment = OBJECTS["Deployment", "koord-scheduler"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    selectors = [
        deployment["selector"],
        OBJECTS["PodDisruptionBudget", "koord-scheduler"]["spec"]["selector"],
        *(each["labelSelector"] for each in scheduler_pod()["topologySpreadConstraints"]),
    ]

    assert deployment["replicas"] == 2
    assert scheduler_pod()["priorityClassName"] == "system-cluster-critical"
    for selector in selectors:
        assert selector["matchLabels"].items() <= labels.items()


def test_probes_ask_the_port_that_the_command_serves() -> None:
    """Health is served over TLS, on the port of kube-scheduler."""
    container = scheduler_container()
    (port,) = container["ports"]
    probes = {name: container[name]["httpGet"] for name in container if name.endswith("Probe")}

    assert f"--secure-port={port['containerPort']}" in container["args"]
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    for probe in probes.values():
        assert (probe["port"], probe["scheme"]) == (port["name"], "HTTPS")
