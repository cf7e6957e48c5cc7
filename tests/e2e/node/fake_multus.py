"""Multus and sriov-cni in one program: a CNI plugin that attaches the VF in PodResources.

Like Multus 4 it calls List on the kubelet's socket (here the proxy's) with a timeout of ten
seconds, finds the pod by name, and uses the first id of the network's resource.  Then, like
sriov-cni, it creates an interface ``net1`` in the pod, here a veth whose alias is the VF.
Source: Multus pkg/kubeletclient/kubeletclient.go, pkg/k8sclient/k8sclient.go
``getKubernetesDelegate``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc

from koordinator.foundation.protobuf import decode_message, encode_message
from koordinator.koordlet.pod_resources import PodResources, PodResourcesList

NETWORKS = "k8s.v1.cni.cncf.io/networks"
_LIST, _GET = (f"/v1.PodResourcesLister/{name}" for name in ("List", "Get"))
_TIMEOUT_S = 10.0


def list_pods(socket: str) -> tuple[PodResources, ...]:
    """Return the pods of List."""
    return decode_message(PodResourcesList, _call(socket, _LIST, b"")).pods


def get_pod(socket: str, name: str, namespace: str = "default") -> PodResources:
    """Return the pod of Get; the request has its name and namespace in the same fields."""
    request = encode_message(PodResources(name=name, namespace=namespace))
    (pod,) = decode_message(PodResourcesList, _call(socket, _GET, request)).pods
    return pod


def devices(pod: PodResources) -> dict[str, list[str]]:
    """Return ids by resource, of all containers."""
    by_resource: dict[str, list[str]] = {}
    for container in pod.containers:
        for each in container.devices:
            by_resource.setdefault(each.resource_name, []).extend(each.device_ids)
    return by_resource


def _call(socket: str, method: str, request: bytes) -> bytes:
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        answer: bytes = channel.unary_unary(method)(request, timeout=_TIMEOUT_S)
    return answer


def main() -> None:
    """Do what the runtime asks, by variables and standard input; print the result."""
    settings, command = json.load(sys.stdin), os.environ["CNI_COMMAND"]
    pairs = (text.split("=", 1) for text in os.environ.get("CNI_ARGS", "").split(";") if text)
    pod = dict(pairs)
    try:
        if command == "ADD":
            _add(settings, pod)
            sys.stdout.write(json.dumps(settings["prevResult"]) + "\n")
        elif command == "DEL":
            _log(settings, pod, "DEL", "")
        elif command == "VERSION":
            sys.stdout.write(
                json.dumps({"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}) + "\n"
            )
    except Exception as error:  # noqa: BLE001 -- returned to the runtime, which retries
        _log(settings, pod, "FAILED", str(error))
        sys.stdout.write(json.dumps({"cniVersion": "1.0.0", "code": 100, "msg": str(error)}) + "\n")
        sys.exit(1)


def _add(settings: dict[str, Any], pod: dict[str, str]) -> None:
    namespace, name = pod["K8S_POD_NAMESPACE"], pod["K8S_POD_NAME"]
    response = subprocess.run(
        [*settings["kubectl"], "get", "pod", f"--namespace={namespace}", name, "--output=json"],
        capture_output=True,
        text=True,
        check=True,
    )
    network = json.loads(response.stdout)["metadata"].get("annotations", {}).get(NETWORKS)
    if network is None:
        return
    resource = settings["resourceNames"][network]
    reported = [each for each in list_pods(settings["socket"])
            if (each.namespace, each.name) == (namespace, name)]  # fmt: skip
    ids = devices(reported[0]).get(resource, []) if reported else []
    if not ids:
        raise RuntimeError(f"VF pci addr is required: no {resource} of {namespace}/{name}")
    _attach(os.environ["CNI_NETNS"], ids[0])
    _log(settings, pod, "ADD", ids[0])


def _attach(namespace: str, function: str) -> None:
    for words in (
        ("link", "add", "net1", "type", "veth", "peer", "name", "net1-card"),
        ("link", "set", "net1", "alias", function),
    ):
        subprocess.run(["nsenter", f"--net={namespace}", "ip", *words], check=True)  # noqa: S607


def _log(settings: dict[str, Any], pod: dict[str, str], event: str, text: str) -> None:
    line = {"event": event, "pod": pod.get("K8S_POD_NAME"), "uid": pod.get("K8S_POD_UID")}
    with Path(settings["log"]).open("a") as log:
        log.write(json.dumps({**line, "text": text}) + "\n")


if __name__ == "__main__":
    main()
