"""Objects of manifests, and notices about the admission that they have not passed.

Pods that a cluster has stored carry a uid: they have passed admission, and no notice is given.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

from msgspec.structs import replace

from koordinator.api.colocation import ClusterColocationProfile
from koordinator.api.core import Namespace
from koordinator.api.dynamic_resources import ADMIN_ACCESS, ResourceClaim, ResourceClaimTemplate
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.pod import Pod, PodSpec, is_terminal
from koordinator.api.policy import PriorityClass
from koordinator.api.selectors import matches
from koordinator.api.workload import PodController
from koordinator.cluster.memory.admission import SYSTEM_PRIORITY_CLASSES, shipped_priority_classes
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.text import pluralized_names
from koordinator.simulator.operator_workloads import OperatorWorkload
from koordinator.simulator.pod_controllers import not_simulated, with_pods

SHOWN = 3  # names in a sentence

#: Kinds by which an API server's admission sets requests, overhead or selectors, or refuses pods.
_OF_ADMISSION: Final = {
    "LimitRange (v1)",
    "ResourceQuota (v1)",
    "RuntimeClass (node.k8s.io/v1)",
    "MutatingAdmissionPolicy (admissionregistration.k8s.io/v1)",
    "ValidatingAdmissionPolicy (admissionregistration.k8s.io/v1)",
    "MutatingWebhookConfiguration (admissionregistration.k8s.io/v1)",
    "ValidatingWebhookConfiguration (admissionregistration.k8s.io/v1)",
}


def admission_notices(objects: Sequence[KubeObject]) -> list[str]:
    """Return a sentence for each way in which objects differ from objects after admission."""
    notices = list(_of_admin_access(objects))
    pods = [obj for obj in objects if isinstance(obj, Pod) and _is_new(obj)]
    if pods:
        notices += [*_of_profiles(objects, pods), *_of_refusals(objects, pods)]
    return notices


def _is_new(pod: Pod) -> bool:
    return not pod.metadata.uid and not pod.spec.node_name and not is_terminal(pod)


def _namespace_labels(objects: Iterable[KubeObject]) -> dict[str, dict[str, str]]:
    return {obj.metadata.name: obj.metadata.labels for obj in objects if isinstance(obj, Namespace)}


def _of_admin_access(objects: Sequence[KubeObject]) -> Iterator[str]:
    """Yield a sentence for each claim or template that may not have administrative access."""
    claims = [
        obj
        for obj in objects
        if isinstance(obj, ResourceClaim | ResourceClaimTemplate) and not obj.metadata.uid
    ]
    labels = _namespace_labels(objects) if claims else {}
    for claim in claims:
        whole = claim.spec if isinstance(claim, ResourceClaim) else claim.spec.spec
        named = [
            request.name
            for request in whole.devices.requests
            if request.exactly is not None and request.exactly.admin_access
        ]
        namespace = claim.metadata.namespace
        if named and labels.get(namespace, {}).get(ADMIN_ACCESS) != "true":
            requests = pluralized_names(named, "request", SHOWN)
            yield (
                f"an API server would refuse {claim.KIND} {claim.key}: adminAccess of {requests} "
                f"requires the label {ADMIN_ACCESS}=true on namespace {namespace}; used as written "
                f"here. Set it: kubectl label namespace {namespace} {ADMIN_ACCESS}=true"
            )


def _of_profiles(objects: Sequence[KubeObject], pods: Sequence[Pod]) -> Iterator[str]:
    labels = _namespace_labels(objects)
    for profile in objects:
        if not isinstance(profile, ClusterColocationProfile):
            continue
        spec = profile.spec
        changed = [
            pod
            for pod in pods
            if (spec.selector is None or matches(spec.selector, pod.metadata.labels))
            and (
                spec.namespace_selector is None
                or matches(spec.namespace_selector, labels.get(pod.metadata.namespace, {}))
            )
        ]
        if changed:
            yield (
                f"ClusterColocationProfile {profile.metadata.name} is not applied: koord-manager's "
                f"webhook would change {_listed(changed)}; koord manager --once prints them changed"
            )


def _of_refusals(objects: Sequence[KubeObject], pods: Sequence[Pod]) -> Iterator[str]:
    classes = [obj for obj in objects if isinstance(obj, PriorityClass)]
    values = {one.metadata.name: one.value for one in (*SYSTEM_PRIORITY_CLASSES, *classes)}
    defaults = [one for one in classes if one.global_default]
    if len(defaults) > 1:
        names = ", ".join(one.metadata.name for one in defaults)
        yield f"an API server lets one PriorityClass be globalDefault, here are several: {names}"
    default = min((one.value for one in defaults), default=0)

    def has_other_priority(spec: PodSpec) -> bool:
        name, priority = spec.priority_class_name, spec.priority
        expected = values.get(name) if name else default
        return priority is not None and expected is not None and priority != expected

    checks: tuple[tuple[str, Callable[[PodSpec], bool]], ...] = (
        ("spec.priority differs from that of the PriorityClass", has_other_priority),
        (
            "spec.overhead is set without a runtimeClassName",
            lambda spec: bool(spec.overhead) and not spec.runtime_class_name,
        ),
        (
            "a container has no image",
            lambda spec: any(not one.image for one in (*spec.init_containers, *spec.containers)),
        ),
    )
    specs = {id(pod.spec): pod.spec for pod in pods}  # pods of one owner share theirs
    for problem, is_refused in checks:
        bad = {key for key, spec in specs.items() if is_refused(spec)}
        refused = [pod for pod in pods if id(pod.spec) in bad] if bad else []
        if refused:
            yield f"an API server would refuse {_listed(refused)}: {problem}; used as written here"


def runtime_class_notices(objects: Sequence[KubeObject], known: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each RuntimeClass that new pods name and that is not among ``known``."""
    missing: dict[str, list[str]] = {}
    for obj in objects:
        if isinstance(obj, Pod) and _is_new(obj):
            name = obj.spec.runtime_class_name
            if name and name not in known:
                missing.setdefault(name, []).append(obj.key)
    for name, keys in missing.items():
        verb = "names" if len(keys) == 1 else "name"
        yield (
            f"there is no RuntimeClass {name!r}, which {pluralized_names(keys, 'pod', SHOWN)} "
            f"{verb}: an API server would refuse new pods; used as written here. Add the "
            "RuntimeClass, or remove runtimeClassName"
        )


def _listed(pods: Sequence[Pod]) -> str:
    return pluralized_names([pod.key for pod in pods], "pod", SHOWN)


@dataclass(slots=True)
class InputObjects:
    """Objects in order, and how the workloads among them make pods."""

    objects: list[KubeObject] = field(default_factory=list)
    controllers: dict[tuple[type[KubeObject], str], PodController] = field(default_factory=dict)
    #: workloads of operators, each with the number of objects that stand before it
    workloads: list[tuple[int, OperatorWorkload]] = field(default_factory=list)
    #: objects of operators as they were read, such as queues
    custom: list[JsonObject] = field(default_factory=list)
    unknown_kinds: Counter[str] = field(default_factory=Counter)  # of operators and other add-ons
    left_out: Counter[str] = field(default_factory=Counter)  # kinds that scheduling never reads
    runtime_classes: set[str] = field(default_factory=set)  # names of those among them
    unknown: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # (kind, field): texts

    def notices(self) -> list[str]:
        """Return a sentence for each thing that was read and has no effect."""
        notices = [
            texts[0] + (f"; so in {len(texts)} places" if len(texts) > 1 else "")
            for texts in self.unknown.values()
        ]
        left_out = self.left_out.copy()
        for obj in self.objects:
            name = f"{obj.KIND} ({obj.API_VERSION})"
            left_out[name] += name in _OF_ADMISSION
        idle = {kind: n for kind, n in left_out.items() if n and kind not in _OF_ADMISSION}
        admitting = {kind: n for kind, n in left_out.items() if n and kind in _OF_ADMISSION}
        if idle:
            notices.append(f"left out, because no scheduling depends on them: {_counted(idle)}")
        if admitting:
            notices.append(
                f"left out: {_counted(admitting)}: an API server may change or refuse new pods by "
                "them; here pods count as they are written"
            )
        if self.unknown_kinds:
            notices.append(
                f"left out, because their kinds are not known: {_counted(self.unknown_kinds)}"
            )
        return [*notices, *self.not_simulated]

    @property
    def not_simulated(self) -> list[str]:
        """Return a sentence for each workload whose pods are not made here."""
        return not_simulated([*self.objects, *(workload for _, workload in self.workloads)])

    def completed(
        self, on_notice: Callable[[str], object], objects: Sequence[KubeObject] | None = None
    ) -> list[KubeObject]:
        """Return the objects with the pods of workloads, and report missing objects.

        ``on_notice`` receives a sentence for each input that has no effect or is missing.
        ``objects`` are the given objects and others before them, such as objects of a cluster.
        """
        for notice in self.notices():
            on_notice(notice)
        whole = with_pods(
            self._with_workloads(self.objects if objects is None else objects), self.controllers
        )
        whole, missing = with_known_priorities(whole)
        for sentence in (*missing, *admission_notices(whole)):
            on_notice(sentence)
        if objects is None or objects is self.objects:  # RuntimeClasses of a cluster are not read
            for sentence in runtime_class_notices(whole, self.runtime_classes):
                on_notice(sentence)
        return whole

    def _with_workloads(
        self, objects: Sequence[KubeObject]
    ) -> Sequence[KubeObject | OperatorWorkload]:
        """Return the objects, which end with the given ones, with workloads in their places."""
        if not self.workloads:
            return objects
        listed: list[KubeObject | OperatorWorkload] = [*objects]
        first = len(objects) - len(self.objects)
        for before, workload in reversed(self.workloads):
            listed.insert(first + before, workload)
        return listed


def _counted(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def with_known_priorities(
    objects: Sequence[KubeObject],
) -> tuple[list[KubeObject], list[str]]:
    """Return the objects so that each pod has a priority, and a sentence per class that lacks.

    A class of Koordinator's is added as the chart installs it; pods of any other have the priority
    of pods without class, where an API server would refuse them.
    """
    known = {obj.metadata.name for obj in (*SYSTEM_PRIORITY_CLASSES, *_classes(objects))}
    missing: dict[str, list[str]] = {}
    for obj in objects:
        if isinstance(obj, Pod) and _is_class_missing(obj, known):
            missing.setdefault(obj.spec.priority_class_name, []).append(obj.key)
    if not missing:
        return list(objects), []
    shipped = {obj.metadata.name: obj for obj in shipped_priority_classes(objects)}
    added = [shipped[name] for name in missing if name in shipped]
    default = min((c.value for c in _classes(objects) if c.global_default), default=0)
    completed = [
        replace(obj, spec=replace(obj.spec, priority=default))
        if isinstance(obj, Pod) and _is_class_missing(obj, known | shipped.keys())
        else obj
        for obj in objects
    ]
    return [*added, *completed], [
        _of_missing(name, keys, shipped, default) for name, keys in missing.items()
    ]


def _of_missing(
    name: str, keys: Sequence[str], shipped: Mapping[str, KubeObject], default: int
) -> str:
    pods = pluralized_names(keys, "pod", SHOWN)
    shipped_class = shipped.get(name)
    if isinstance(shipped_class, PriorityClass):
        treatment = f"taken as the chart installs it, with {shipped_class.value}"
    else:
        treatment = f"counted with priority {default}, while an API server would refuse"
    verb = "names" if len(keys) == 1 else "name"
    return f"there is no PriorityClass {name!r}, which {pods} {verb}: {treatment}"


def _classes(objects: Iterable[KubeObject]) -> list[PriorityClass]:
    return [obj for obj in objects if isinstance(obj, PriorityClass)]


def _is_class_missing(pod: Pod, known: Iterable[str]) -> bool:
    spec = pod.spec
    return bool(
        spec.priority_class_name and spec.priority is None and spec.priority_class_name not in known
    )
