"""Objects that the API server refuses, each with the field that is wrong, and what they grow from.

``tests/unit`` holds our own validation to them, ``tests/e2e`` a real API server.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

Manifest = dict[str, Any]
APP: Final = {"matchLabels": {"app": "web"}}
LABELS: Final = {"app": "web"}
CLAIM: Final = {"requests": {"storage": "1Gi"}}
CONTAINER: Final = {"name": "main", "image": "i"}


def pod(**spec: Any) -> Manifest:
    return made("v1", "Pod", spec={"containers": [CONTAINER]} | spec)


def made(api_version: str, kind: str, **fields: Any) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}} | fields


def sized(requests: Any, limits: Any | None = None, **spec: Any) -> Manifest:
    both = {"requests": requests, "limits": limits or {}}
    return pod(containers=[CONTAINER | {"resources": both}], **spec)


def template(labels: Any = LABELS, **spec: Any) -> Any:
    return {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER]} | spec}


def workload(kind: str, **spec: Any) -> Manifest:
    return made("apps/v1", kind, spec={"selector": APP, "template": template()} | spec)


def job(used: Any, **spec: Any) -> Manifest:
    return made("batch/v1", "Job", spec={"template": used} | spec)


def claim(**spec: Any) -> Manifest:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": CLAIM}
    return made("v1", "PersistentVolumeClaim", spec=wanted | spec)


def volume(**spec: Any) -> Manifest:
    offered = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    return made("v1", "PersistentVolume", spec=offered | {"hostPath": {"path": "/x"}} | spec)


def zone(operator: str, *values: str) -> Manifest:
    term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": [*values]}]}
    required = {"nodeSelectorTerms": [term]}
    return pod(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    )


ONCE: Final = template(restartPolicy="Never")
CLAIMED: Final = {"name": "g", "resourceClaimName": "c"}
REFUSED: Final[Mapping[str, tuple[Manifest, str]]] = MappingProxyType(
    {
        "pod-request-below-its-containers": (
            sized({"cpu": 2}, resources={"requests": {"cpu": 1}}),
            "spec.resources.requests.cpu",
        ),
        "pod-request-below-a-sidecar-and-containers": (
            sized(
                {"cpu": 1},
                initContainers=[
                    {
                        "name": "s",
                        "image": "i",
                        "restartPolicy": "Always",
                        "resources": {"requests": {"cpu": 1}},
                    }
                ],
                resources={"requests": {"cpu": "1500m"}},
            ),
            "spec.resources.requests.cpu",
        ),
        "container-limit-above-the-pod": (
            sized({"memory": "1Gi"}, {"memory": "2Gi"}, resources={"limits": {"memory": "1Gi"}}),
            "spec.containers[0].resources.limits.memory",
        ),
        "pod-level-claims": (
            pod(resources={"claims": [{"name": "g"}]}, resourceClaims=[CLAIMED]),
            "spec.resources.claims",
        ),
        "huge-pages-in-parts": (
            sized({"cpu": 1, "hugepages-2Mi": "3Mi"}, {"cpu": 1, "hugepages-2Mi": "3Mi"}),
            "spec.containers[0].resources.requests.hugepages-2Mi",
        ),
        "resource-named-as-in-a-quota": (
            sized({"requests.x.io/gpu": 1}, {"requests.x.io/gpu": 1}),
            "spec.containers[0].resources",
        ),
        "overhead-of-an-unknown-resource": (
            pod(overhead={"pods": 1}, runtimeClassName="kata"),
            "spec.overhead",
        ),
        "node-label-that-is-none": (
            zone("In", "a b"),
            (
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
                "nodeSelectorTerms[0].matchExpressions[0].values[0]"
            ),
        ),
        "claim-without-source": (pod(resourceClaims=[{"name": "g"}]), "spec.resourceClaims[0]"),
        "claim-with-two-sources": (
            pod(resourceClaims=[CLAIMED | {"resourceClaimTemplateName": "t"}]),
            "spec.resourceClaims[0]",
        ),
        "claim-twice": (
            pod(resourceClaims=[CLAIMED, CLAIMED]),
            "spec.resourceClaims[1].name",
        ),
        "claim-used-twice": (
            pod(
                resourceClaims=[CLAIMED],
                containers=[
                    CONTAINER
                    | {"resources": {"claims": [{"name": "g"}, {"name": "g", "request": "r"}]}}
                ],
            ),
            "spec.containers[0].resources.claims[1]",
        ),
        "volume-with-two-sources": (
            pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
            "spec.volumes[0]",
        ),
        "deadline-of-zero": (pod(activeDeadlineSeconds=0), "spec.activeDeadlineSeconds"),
        "runtime-class-name": (pod(runtimeClassName="A_b"), "spec.runtimeClassName"),
        "service-account-name": (pod(serviceAccountName="A_b"), "spec.serviceAccountName"),
        "job-that-restarts": (job(template()), "spec.template.spec.restartPolicy"),
        "indexed-job-without-completions": (
            job(ONCE, completionMode="Indexed", parallelism=2),
            "spec.completions",
        ),
        "negative-completions": (job(ONCE, completions=-1), "spec.completions"),
        "cron-job-that-restarts": (
            made(
                "batch/v1",
                "CronJob",
                spec={"schedule": "@daily", "jobTemplate": {"spec": {"template": template()}}},
            ),
            "spec.jobTemplate.spec.template.spec.restartPolicy",
        ),
        "cron-job-of-a-long-name": (
            made(
                "batch/v1",
                "CronJob",
                metadata={"name": "a" * 53},
                spec={"schedule": "@daily", "jobTemplate": {"spec": {"template": ONCE}}},
            ),
            "metadata.name",
        ),
        "deployment-that-runs-once": (
            workload("Deployment", template=ONCE),
            "spec.template.spec.restartPolicy",
        ),
        "stateful-set-of-other-labels": (
            workload("StatefulSet", serviceName="a", template=template({"app": "x"})),
            "spec.template.metadata.labels",
        ),
        "daemon-set-without-selector": (
            workload("DaemonSet", selector=None),
            "spec.selector",
        ),
        "replica-set-of-an-empty-selector": (
            workload("ReplicaSet", selector={}),
            "spec.selector",
        ),
        "claim-of-two-exclusive-modes": (
            claim(accessModes=["ReadWriteOncePod", "ReadOnlyMany"]),
            "spec.accessModes",
        ),
        "claim-of-a-class-that-is-no-name": (
            claim(storageClassName="A_b"),
            "spec.storageClassName",
        ),
        "volume-of-other-resources": (
            volume(capacity={"storage": "1Gi", "cpu": 1}),
            "spec.capacity",
        ),
        "volume-of-nothing": (volume(capacity={"storage": 0}), "spec.capacity.storage"),
        "volume-policy": (
            volume(persistentVolumeReclaimPolicy="Keep"),
            "spec.persistentVolumeReclaimPolicy",
        ),
        "local-volume-anywhere": (
            volume(hostPath=None, local={"path": "/x"}),
            "spec.nodeAffinity",
        ),
        "storage-class-policy": (
            made("storage.k8s.io/v1", "StorageClass", provisioner="x", reclaimPolicy="Keep"),
            "reclaimPolicy",
        ),
    }
)

#: What is refused elsewhere or not at all, and looks much like the above.
ACCEPTED: Final[Mapping[str, Manifest]] = MappingProxyType(
    {
        "pod-request-of-its-containers": sized(
            {"cpu": 2},
            resources={"requests": {"cpu": 3}, "limits": {"cpu": 3}},
            initContainers=[
                {"name": "i", "image": "i", "resources": {"requests": {"cpu": 3}}},
            ],
        ),
        "huge-pages": sized({"cpu": 1, "hugepages-2Mi": "4Mi"}, {"cpu": 1, "hugepages-2Mi": "4Mi"}),
        "node-label": zone("In", "a", ""),
        "node-label-above-a-number": zone("Gt", "3"),
        "claims": pod(
            resourceClaims=[CLAIMED, {"name": "h", "resourceClaimTemplateName": "t"}],
            containers=[
                CONTAINER
                | {
                    "resources": {
                        "claims": [
                            {"name": "g", "request": "r"},
                            {"name": "g", "request": "s"},
                            {"name": "h"},
                        ]
                    }
                }
            ],
        ),
        "volumes": pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "w"}]),
        "indexed-job-of-one": job(ONCE, completionMode="Indexed"),
        "grace-period-below-zero": pod(terminationGracePeriodSeconds=-1),
        "indexed-job": job(ONCE, completionMode="Indexed", completions=2),
        "priority-class-of-zero": made("scheduling.k8s.io/v1", "PriorityClass"),
        "exclusive-claim": claim(accessModes=["ReadWriteOncePod"]),
    }
)
