"""Queues of Kueue and Volcano as elastic quotas, so that their workloads run here.

A ClusterQueue is a quota with its nominal amounts as minimum and, in a cohort, what it may borrow
above them; the cohort is its parent.  A Queue of Volcano is a quota with its guarantee and its
capability.  Jobs that Kueue suspends start; the members of a Volcano Job are a gang of
``minAvailable``.
Source: kueue apis/kueue/v1beta1/clusterqueue_types.go; volcano apis scheduling/v1beta1/types.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaSpec
from koordinator.api.labels import POD_GROUP, QUOTA_IS_PARENT, QUOTA_NAME, QUOTA_PARENT
from koordinator.api.meta import JsonObject, KubeObject, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup, PodGroupSpec
from koordinator.api.workload import Job
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.simulator.manifests.input_objects import InputObjects

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
_NAMESPACE: Final = "default"  # of the quotas
_VOLCANO_JOB: Final = "volcano.sh/job-name"


def is_queue_kind(kind: str) -> bool:
    """Return whether a kind, as in ``ClusterQueue (kueue.x-k8s.io/v1beta1)``, is of a queue."""
    return any(f"({group}/" in kind for group in ("kueue.x-k8s.io", "scheduling.volcano.sh"))


class Queues:
    """Queues among the objects of operators."""

    def __init__(self, trees: Iterable[JsonObject]) -> None:
        trees = list(trees)
        self._cluster_queues = [t for t in trees if _is(t, "kueue.x-k8s.io", "ClusterQueue")]
        self._local = {
            (_meta(t).get("namespace") or "default", _meta(t).get("name")): _spec(t).get(
                "clusterQueue"
            )
            for t in trees
            if _is(t, "kueue.x-k8s.io", "LocalQueue")
        }
        self._volcano = [t for t in trees if _is(t, "scheduling.volcano.sh", "Queue")]
        self._jobs = {
            (_meta(t).get("namespace") or "default", _meta(t).get("name")): _spec(t)
            for t in trees
            if _is(t, "batch.volcano.sh", "Job")
        }

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a queue nor a Volcano Job."""
        return not (self._cluster_queues or self._volcano or self._jobs)

    def start_suspended(self, given: InputObjects) -> None:
        """Unsuspend the Jobs of a queue, which Kueue keeps suspended until it admits them."""
        for obj in given.objects:
            key = type(obj), obj.key
            if isinstance(obj, Job) and QUEUE_NAME in obj.metadata.labels:
                controller = given.controllers[key]
                spec = replace(controller.spec, suspend=False)
                given.controllers[key] = replace(controller, spec=spec)

    def quotas(self) -> list[ElasticQuota]:
        """Return a quota per ClusterQueue, cohort and Queue.  Raises InputError."""
        cohorts: dict[str, dict[str, Quantity]] = {}
        for tree in self._cluster_queues:
            total = cohorts.setdefault(_cohort(tree), {})
            for name, amount in _nominal(tree).items():
                total[name] = total.get(name, Quantity.from_int(0)) + amount
        quotas = [
            _quota(cohort, amounts, amounts, {QUOTA_IS_PARENT: "true"})
            for cohort, amounts in cohorts.items()
            if cohort
        ]
        for tree in self._cluster_queues:
            cohort, nominal = _cohort(tree), _nominal(tree)
            most: ResourceList = nominal if not cohort else _borrowing(tree, cohorts[cohort])
            labels = {QUOTA_PARENT: cohort} if cohort else {}
            quotas.append(_quota(_meta(tree)["name"], nominal, most, labels))
        for tree in self._volcano:
            spec = _spec(tree)
            least = _amounts((spec.get("guarantee") or {}).get("resource") or spec.get("deserved"))
            most = _amounts(spec.get("capability"))
            quotas.append(_quota(_meta(tree)["name"], least, most, {}))
        return quotas

    def completed(self, objects: Sequence[KubeObject]) -> list[KubeObject]:
        """Return the objects with quotas and gangs, and pods that name theirs."""
        owners = {
            (obj.metadata.namespace, obj.metadata.name): obj.metadata.labels
            for obj in objects
            if isinstance(obj, Job)
        }
        queues = {_meta(tree).get("name") for tree in self._volcano}
        gangs: dict[str, PodGroup] = {}
        made: list[KubeObject] = []
        for obj in objects:
            if not isinstance(obj, Pod):
                made.append(obj)
                continue
            pod, namespace = obj, obj.metadata.namespace
            labels = dict(pod.metadata.labels)
            for owner in pod.metadata.owner_references:
                labels = {**owners.get((namespace, owner.name), {}), **labels}
            if QUEUE_NAME in labels:
                cluster_queue = self._local.get((namespace, labels[QUEUE_NAME]))
                pod = _labelled(pod, {QUOTA_NAME: cluster_queue} if cluster_queue else {})
            job = labels.get(_VOLCANO_JOB, "")
            spec = self._jobs.get((namespace, job))
            if spec is not None:
                gang = _gang(namespace, job, spec)
                gangs[gang.key] = gang
                queue = spec.get("queue") or "default"
                own = {QUOTA_NAME: queue} if queue in queues else {}
                pod = _labelled(pod, {**own, POD_GROUP: job})
            made.append(pod)
        return [*self.quotas(), *gangs.values(), *made]


def _gang(namespace: str, name: str, spec: Mapping[str, Any]) -> PodGroup:
    tasks = [task for task in spec.get("tasks") or () if isinstance(task, dict)]
    replicas = sum(int(task.get("replicas") or 1) for task in tasks)
    least = spec.get("minAvailable") or replicas
    meta = ObjectMeta(name=name, namespace=namespace)
    return PodGroup(metadata=meta, spec=PodGroupSpec(min_member=int(least)))


def _labelled(pod: Pod, labels: Mapping[str, str]) -> Pod:
    """Return a pod of the first profile, without the gates of Kueue, with more labels."""
    meta = replace(pod.metadata, labels={**pod.metadata.labels, **labels})
    gates = tuple(g for g in pod.spec.scheduling_gates if not g.name.startswith("kueue.x-k8s.io/"))
    return replace(
        pod, metadata=meta, spec=replace(pod.spec, scheduler_name="", scheduling_gates=gates)
    )


def _quota(
    name: str, least: ResourceList, most: ResourceList, labels: Mapping[str, str]
) -> ElasticQuota:
    meta = ObjectMeta(name=name, namespace=_NAMESPACE, labels=dict(labels))
    return ElasticQuota(metadata=meta, spec=ElasticQuotaSpec(min=least, max=most))


def _nominal(tree: JsonObject) -> dict[str, Quantity]:
    """Return the nominal amounts of a ClusterQueue over all its flavors."""
    total: dict[str, Quantity] = {}
    for resource in _resources(tree):
        amount = _quantity(resource.get("nominalQuota"), tree)
        name = str(resource.get("name"))
        total[name] = total.get(name, Quantity.from_int(0)) + amount
    return total


def _borrowing(tree: JsonObject, cohort: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Return the most that a ClusterQueue of a cohort may use."""
    most = dict(cohort)
    nominal = _nominal(tree)
    for resource in _resources(tree):
        name = str(resource.get("name"))
        if resource.get("borrowingLimit") is not None:
            most[name] = nominal[name] + _quantity(resource["borrowingLimit"], tree)
    return {name: most[name] for name in nominal}


def _resources(tree: JsonObject) -> Iterable[Mapping[str, Any]]:
    for group in _spec(tree).get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            yield from flavor.get("resources") or ()


def _cohort(tree: JsonObject) -> str:
    spec = _spec(tree)
    return str(spec.get("cohortName") or spec.get("cohort") or "")


def _amounts(given: Any) -> dict[str, Quantity]:
    if not isinstance(given, dict):
        return {}
    return {name: Quantity.parse(str(amount)) for name, amount in given.items()}


def _quantity(given: Any, tree: JsonObject) -> Quantity:
    try:
        return Quantity.parse(str(given))
    except InputError as error:
        raise error.within(subject=f"ClusterQueue {_meta(tree).get('name')}") from None


def _is(tree: JsonObject, group: str, kind: str) -> bool:
    return tree.get("kind") == kind and str(tree.get("apiVersion")).startswith(f"{group}/")


def _meta(tree: JsonObject) -> dict[str, Any]:
    metadata = tree.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _spec(tree: JsonObject) -> dict[str, Any]:
    spec = tree.get("spec")
    return spec if isinstance(spec, dict) else {}
