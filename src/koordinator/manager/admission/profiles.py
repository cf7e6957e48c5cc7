"""Colocation profiles that apply to a pod or to the template of a Reservation, and their effect.

Source: koordinator pkg/webhook/pod/mutating/cluster_colocation_profile.go;
pkg/webhook/reservation/mutating/cluster_colocation_profile.go.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeVar

from koordinator.api.annotations.pod_qos import SKIP_UPDATE_RESOURCES
from koordinator.api.colocation import (
    ClusterColocationProfile,
    ClusterColocationProfileSpec,
)
from koordinator.api.json_merge import strategic_merge
from koordinator.api.labels import POD_PRIORITY, POD_QOS_CLASS
from koordinator.api.meta import JsonObject, LabelSelector
from koordinator.api.selectors import matches
from koordinator.foundation.errors import (
    ClusterError,
    FaultHandler,
    InputError,
    fault_of,
    raise_fault,
)
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.lookup import (
    AdmissionOperation,
    AdmissionRequest,
    Denial,
    Lookup,
)

STAGE: Final = "review"

ResultT = TypeVar("ResultT")

_WHOLE = 100
_INTERNAL = 500


@dataclass(frozen=True, slots=True)
class MatchedProfiles:
    """Profiles that apply to an object, sorted by name."""

    profiles: tuple[ClusterColocationProfile, ...]

    @property
    def translates(self) -> bool:
        """Whether CPU and memory are translated to batch or mid resources.

        As in the original, a profile that its probability skips counts here, too.
        """
        return bool(self.profiles) and not any(
            SKIP_UPDATE_RESOURCES in profile.metadata.annotations for profile in self.profiles
        )


def match_profiles(
    labels: Mapping[str, str],
    namespace: str | None,
    lookup: Lookup,
    on_fault: FaultHandler = raise_fault,
) -> MatchedProfiles:
    """Return the profiles whose selectors match the labels and the namespace.

    With ``namespace`` None, the namespace selector is ignored.  As in the original, an invalid
    selector and an unknown namespace match.  A profile that raises an unexpected error is skipped
    and reported to ``on_fault``.
    """
    matched = []
    for profile in lookup.profiles():
        try:
            if _fits(profile.spec.selector, labels) and (
                namespace is None or _fits_namespace(profile.spec, namespace, lookup)
            ):
                matched.append(profile)
        except Exception as error:  # noqa: BLE001 -- reported to on_fault
            on_fault(fault_of(STAGE, error, about=f"{profile.KIND} {profile.key}"))
    return MatchedProfiles(tuple(sorted(matched, key=lambda profile: profile.metadata.name)))


def made_with(
    matched: MatchedProfiles, make: Callable[[MatchedProfiles], ResultT], on_fault: FaultHandler
) -> ResultT:
    """Return the result of ``make`` with all profiles that it can process.

    A profile with which ``make`` raises an unexpected error is skipped and reported to
    ``on_fault``.  An error that occurs without any profile is raised, since the object causes it.
    Raises Denial, InputError and ClusterError as ``make`` does.
    """
    try:
        return make(matched)
    except (Denial, InputError, ClusterError, MemoryError):
        raise
    except Exception:
        if not matched.profiles:
            raise
    result = make(MatchedProfiles(()))
    refusal: Denial | InputError | None = None
    kept: tuple[ClusterColocationProfile, ...] = ()
    for profile in matched.profiles:
        more = (*kept, profile)
        try:
            result, refusal = make(MatchedProfiles(more)), None
        except (Denial, InputError) as error:
            refusal = error  # raised unless a later profile corrects it
        except Exception as error:  # noqa: BLE001 -- reported to on_fault
            on_fault(fault_of(STAGE, error, about=f"{profile.KIND} {profile.key}"))
            continue
        kept = more
    if refusal is not None:
        try:
            raise refusal
        finally:
            del refusal  # the traceback refers to this frame
    return result


def applied(
    obj: JsonObject, profiles: Iterable[ClusterColocationProfile], lookup: Lookup
) -> JsonObject:
    """Return a pod or pod template with the profiles applied in order.

    Raises Denial for a probability, a priority class or a patch that can't be used.
    """
    for profile in profiles:
        if not is_left_out(profile, lookup.percent):
            obj = _applied_one(obj, profile.spec, lookup)
    return obj


def is_left_out(profile: ClusterColocationProfile, draw: Callable[[], int]) -> bool:
    """Return whether the profile's probability skips an object, by a number drawn from 0..99.

    The profile is skipped if the number is greater than the percentage, so 99 acts as 100.
    Raises Denial for a probability that can't be parsed.
    """
    percent = _percent(profile)
    return percent == 0 or (percent != _WHOLE and draw() > percent)


def with_entries(obj: JsonObject, part: str, entries: Mapping[str, str]) -> JsonObject:
    """Return the object with labels or annotations added."""
    if not entries:
        return obj
    meta = obj.get("metadata") or {}
    return {**obj, "metadata": {**meta, part: {**(meta.get(part) or {}), **entries}}}


def relabelled(
    spec: ClusterColocationProfileSpec, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations that a profile adds to the given ones."""
    new_labels, new_annotations = dict(spec.labels), dict(spec.annotations)
    for source, target in sorted(spec.label_keys_mapping.items()):
        new_labels[target] = {**labels, **new_labels}.get(source, "")
    for source, target in sorted(spec.annotation_keys_mapping.items()):
        new_annotations[target] = {**annotations, **new_annotations}.get(source, "")
    for key, suffix in sorted(spec.label_suffixes.items()):
        known = {**labels, **new_labels}
        if key in known:
            new_labels[key] = known[key] + suffix
    if spec.qos_class is not None:
        new_labels[POD_QOS_CLASS] = spec.qos_class
    if spec.koordinator_priority is not None:
        new_labels[POD_PRIORITY] = str(spec.koordinator_priority)
    return new_labels, new_annotations


def _applied_one(obj: JsonObject, spec: ClusterColocationProfileSpec, lookup: Lookup) -> JsonObject:
    meta = obj.get("metadata") or {}
    labels, annotations = relabelled(spec, meta.get("labels") or {}, meta.get("annotations") or {})
    obj = with_entries(with_entries(obj, "labels", labels), "annotations", annotations)
    changes: dict[str, Any] = {}
    if spec.scheduler_name:
        changes["schedulerName"] = spec.scheduler_name
    if spec.priority_class_name:
        changes |= _priority(spec.priority_class_name, lookup)
    if changes:
        merged = {**(obj.get("spec") or {}), **changes}
        kept = {key: value for key, value in merged.items() if value is not None}
        obj = {**obj, "spec": kept}
    if spec.patch:
        try:
            obj = strategic_merge(obj, spec.patch)
        except InputError as error:
            raise Denial(f"spec.patch: {error}", _INTERNAL) from None
    return obj


def _priority(name: str, lookup: Lookup) -> dict[str, Any]:
    priority_class = lookup.priority_class(name)
    if priority_class is None:
        raise Denial(f'PriorityClass.scheduling.k8s.io "{name}" not found', _INTERNAL)
    return {
        "priorityClassName": name,
        "priority": priority_class.value,
        "preemptionPolicy": priority_class.preemption_policy,
    }


def _percent(profile: ClusterColocationProfile) -> int:
    probability = profile.spec.probability
    if probability is None:
        return _WHOLE
    if isinstance(probability, int):
        return probability
    digits = probability.removesuffix("%") if probability.endswith("%") else ""
    try:
        return int(digits)
    except ValueError:
        raise Denial(
            f"profile {profile.metadata.name}: spec.probability: must be 0..100 or 0%..100%, "
            f"got {probability!r}",
            _INTERNAL,
        ) from None


def _fits_namespace(spec: ClusterColocationProfileSpec, name: str, lookup: Lookup) -> bool:
    selector = spec.namespace_selector
    if selector is None or selector == LabelSelector():
        return True
    namespace = lookup.namespace(name)
    return namespace is None or _fits(selector, namespace.metadata.labels)


def _fits(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return True
    try:
        return matches(selector, labels)
    except InputError:
        return True


def mutate_reservation(
    request: AdmissionRequest,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],  # noqa: ARG001 -- the signature of a hook
    on_fault: FaultHandler = raise_fault,
) -> JsonObject:
    """Return the reservation with the profiles that match its template applied.

    A profile that raises an unexpected error is skipped and reported to ``on_fault``.
    Raises Denial if a profile can't be applied.
    """
    spec = request.obj.get("spec") or {}
    template = spec.get("template")
    if request.operation != AdmissionOperation.CREATE or not template:
        return request.obj
    labels = (template.get("metadata") or {}).get("labels") or {}
    matched = match_profiles(labels, None, lookup, on_fault)
    changed = made_with(matched, lambda some: applied(template, some.profiles, lookup), on_fault)
    if changed == template:
        return request.obj
    return {**request.obj, "spec": {**spec, "template": changed}}
