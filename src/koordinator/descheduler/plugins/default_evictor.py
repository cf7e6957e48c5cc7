"""DefaultEvictor: protection of pods, and eviction by the eviction API without PodMigrationJobs.

Source: kubernetes-sigs/descheduler pkg/framework/plugins/defaultevictor; koordinator
pkg/descheduler/framework/plugins/kubernetes/defaultevictor, pkg/descheduler/evictions.
"""

import logging
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final

from msgspec import field

from koordinator.api.annotations.scheduling import PREFERS_NO_EVICTION
from koordinator.api.core import Namespace
from koordinator.api.event import Event, new_event, reference_to
from koordinator.api.kubescheduler.structs import ConfigStruct, Count
from koordinator.api.meta import Int32, LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.policy import PodDisruptionBudget, PriorityClass
from koordinator.api.selectors import matches, parse_label_selector
from koordinator.api.volume import PersistentVolumeClaim
from koordinator.descheduler.candidates import (
    SYSTEM_CRITICAL_PRIORITY,
    has_local_storage,
    has_volume_claim,
    is_always_evictable,
    is_mirror,
    is_of_daemon_set,
    is_static,
    is_system_critical,
    is_terminating,
    selected_nodes,
)
from koordinator.descheduler.configuration import (
    DeschedulerPluginArgs,
    check_selector,
    field_error,
)
from koordinator.descheduler.contract import (
    ERROR,
    SUCCESS,
    DeschedulerPluginSpec,
    EvictOptions,
    Handle,
)
from koordinator.descheduler.node_fit import fits_beside, is_ready
from koordinator.foundation.clock import Duration, to_epoch_s
from koordinator.foundation.errors import ClusterError, InputError, NotFoundError
from koordinator.foundation.lazy_dataclass import dataclass

_LONGEST_NAME, _SHORT = 200, 8
_FEWEST_REPLICAS = 2  # smaller values of minReplicas have no effect

log = logging.getLogger(__name__)


class PodProtection(StrEnum):
    """Protection of pods from eviction."""

    LOCAL_STORAGE = "PodsWithLocalStorage"
    DAEMON_SET = "DaemonSetPods"
    SYSTEM_CRITICAL = "SystemCriticalPods"
    FAILED_BARE = "FailedBarePods"
    VOLUME_CLAIM = "PodsWithPVC"
    NO_BUDGET = "PodsWithoutPDB"
    RESOURCE_CLAIMS = "PodsWithResourceClaims"


_BY_DEFAULT: Final = (
    PodProtection.LOCAL_STORAGE,
    PodProtection.SYSTEM_CRITICAL,
    PodProtection.FAILED_BARE,
    PodProtection.DAEMON_SET,
)
_EXTRA: Final = (
    PodProtection.VOLUME_CLAIM,
    PodProtection.NO_BUDGET,
    PodProtection.RESOURCE_CLAIMS,
)


class PriorityThreshold(ConfigStruct, frozen=True, kw_only=True):
    """Priority from which on pods are protected: a number, or the name of a PriorityClass."""

    value: Int32 | None = None  # priority
    name: str = ""  # name of a PriorityClass, in place of the value


class ProtectedStorageClass(ConfigStruct, frozen=True, kw_only=True):
    """StorageClass whose volumes protect pods."""

    name: str  # name of the StorageClass


class PodsWithPVCConfig(ConfigStruct, frozen=True, kw_only=True):
    """Protected storage classes; an empty list means all."""

    #: storage classes that protect pods; empty means all
    protected_storage_classes: tuple[ProtectedStorageClass, ...] = ()


class PodProtectionsConfig(ConfigStruct, frozen=True, kw_only=True):
    """Configuration of single protections."""

    #: settings of the protection PodsWithPVC
    pods_with_pvc: PodsWithPVCConfig | None = field(name="PodsWithPVC", default=None)


class PodProtections(ConfigStruct, frozen=True, kw_only=True):
    """Changes to the default protections."""

    extra_enabled: tuple[str, ...] = ()  # protections to enable besides the defaults
    default_disabled: tuple[str, ...] = ()  # default protections to disable
    config: PodProtectionsConfig | None = None  # settings of protections


class DefaultEvictorArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Protected pods; the deprecated ``evict…`` and ``ignore…`` exclude ``podProtections``."""

    node_selector: str = ""  # nodes considered for node fit, such as a=b,!c
    label_selector: LabelSelector | None = None  # labels of pods that may be evicted
    #: labels of namespaces whose pods may be evicted
    namespace_label_selector: LabelSelector | None = None
    priority_threshold: PriorityThreshold | None = None
    node_fit: bool = False
    min_replicas: Count = 0  # least number of replicas of a workload whose pods may be evicted
    min_pod_age: Duration | None = None  # least age of pods that may be evicted
    no_eviction_policy: str = ""  # Preferred or Mandatory
    pod_protections: PodProtections = PodProtections()  # protected pods
    #: deprecated: use podProtections; whether pods with local storage may be evicted
    evict_local_storage_pods: bool = False
    #: deprecated: use podProtections; whether pods of DaemonSets may be evicted
    evict_daemon_set_pods: bool = False
    #: deprecated: use podProtections; whether pods of system-critical priority may be evicted
    evict_system_critical_pods: bool = False
    #: deprecated: use podProtections; whether pods with volume claims are protected
    ignore_pvc_pods: bool = False
    #: deprecated: use podProtections; whether pods without disruption budget are protected
    ignore_pods_without_pdb: bool = field(name="ignorePodsWithoutPDB", default=False)
    #: deprecated: use podProtections; whether failed pods without owner may be evicted
    evict_failed_bare_pods: bool = False

    def validate(self) -> None:
        threshold = self.priority_threshold
        if threshold is not None:
            check_priority_threshold(threshold, "priorityThreshold")
        if self.no_eviction_policy not in ("", "Preferred", "Mandatory"):
            message = 'noEvictionPolicy accepts only ["Preferred" "Mandatory"] values'
            raise field_error("noEvictionPolicy", self.no_eviction_policy, message)
        try:
            parse_label_selector(self.node_selector)
        except InputError as error:
            raise error.within(path="nodeSelector") from None
        check_selector(self.label_selector, "labelSelector")
        check_selector(self.namespace_label_selector, "namespaceLabelSelector")
        protections = self.pod_protections
        if any(self._former()) and (protections.extra_enabled or protections.default_disabled):
            message = (
                "cannot use Deprecated fields alongside PodProtections.ExtraEnabled or "
                "PodProtections.DefaultDisabled"
            )
            raise field_error("podProtections", "evict… or ignore… fields", message)
        _check_protections(protections.extra_enabled, _EXTRA, "extraEnabled")
        _check_protections(protections.default_disabled, _BY_DEFAULT, "defaultDisabled")

    def protections(self) -> frozenset[PodProtection]:
        """Return the enabled protections."""
        changes = self.pod_protections
        if changes.extra_enabled or changes.default_disabled:
            kept = (each for each in _BY_DEFAULT if each.value not in changes.default_disabled)
            return frozenset((*kept, *map(PodProtection, changes.extra_enabled)))
        local, daemon, critical, claims, budgets, bare = self._former()
        counts = {
            PodProtection.LOCAL_STORAGE: not local,
            PodProtection.DAEMON_SET: not daemon,
            PodProtection.SYSTEM_CRITICAL: not critical,
            PodProtection.VOLUME_CLAIM: claims,
            PodProtection.NO_BUDGET: budgets,
            PodProtection.FAILED_BARE: not bare,
        }
        return frozenset(each for each, is_on in counts.items() if is_on)

    def _former(self) -> tuple[bool, ...]:
        return (
            self.evict_local_storage_pods,
            self.evict_daemon_set_pods,
            self.evict_system_critical_pods,
            self.ignore_pvc_pods,
            self.ignore_pods_without_pdb,
            self.evict_failed_bare_pods,
        )


@dataclass(frozen=True, slots=True)
class DefaultEvictor:
    """Evict and filter plugin that passes unprotected pods."""

    args: DefaultEvictorArgs
    handle: Handle
    checks: tuple[
        Callable[[Pod], str], ...
    ]  # each returns why a pod is protected, else an empty text

    def filter(self, pod: Pod) -> bool:
        if is_always_evictable(pod):
            return True
        for check in self.checks:
            why = check(pod)
            if why:
                log.debug("pod protected", extra={"pod": pod.key, "why": why})
                return False
        return True

    def pre_eviction_filter(self, pod: Pod) -> bool:
        if self.args.node_fit:
            wanted, known = parse_label_selector(self.args.node_selector), self.handle.view
            nodes = selected_nodes(tuple(known.objects(Node).values()), wanted)
            ready = (node for node in nodes if is_ready(node))
            if not any(
                node.metadata.name != pod.spec.node_name and fits_beside(node, pod, known)
                for node in ready
            ):
                log.debug("pod fits on no other node", extra={"pod": pod.key})
                return False
        selector = self.args.namespace_label_selector
        if selector is None:
            return True
        namespace = self.handle.view.objects(Namespace).get(pod.metadata.namespace)
        return namespace is not None and matches(selector, namespace.metadata.labels)

    def evict(self, pod: Pod, options: EvictOptions) -> bool:
        meta, given = pod.metadata, options.delete_options
        grace_s = given.grace_period_seconds if given is not None else None
        try:
            self.handle.writer.evict(
                meta.namespace, meta.name, uid=meta.uid, grace_period_s=grace_s
            )
        except NotFoundError:
            log.info("pod does not exist any more", extra={"pod": pod.key})
            return False
        except ClusterError as error:
            self.handle.count(options.plugin, pod, ERROR)
            log.warning("pod not evicted", extra={"pod": pod.key, "error": str(error)})
            return False
        self.handle.count(options.plugin, pod, SUCCESS)
        self.handle.writer.report([_descheduled(pod, options, self.handle.clock.now_s())])
        return True


def _descheduled(pod: Pod, options: EvictOptions, now_s: float) -> Event:
    meta, note = pod.metadata, f"pod evicted by {options.reason or options.plugin}"
    return new_event(
        reference_to(pod),
        name=f"{meta.name[:_LONGEST_NAME]}.descheduled.{meta.uid[:_SHORT]}".rstrip("."),
        reason="Descheduled",
        action="Evicting",
        note=note,
        component=options.profile,
        now_s=now_s,
        is_warning=False,
    )


def build_default_evictor(args: DefaultEvictorArgs, handle: Handle) -> DefaultEvictor:
    """Build the plugin."""
    return DefaultEvictor(args, handle, tuple(_checks(args, handle)))


def check_priority_threshold(threshold: PriorityThreshold, path: str) -> None:
    """Raise InputError if both number and name are set, or if the number protects no pod."""
    if threshold.value is not None and threshold.name:
        message = "only one of priorityThreshold fields can be set"
        raise field_error(path, {"value": threshold.value, "name": threshold.name}, message)
    if threshold.value is not None and threshold.value > SYSTEM_CRITICAL_PRIORITY:
        message = f"priority threshold can't be greater than {SYSTEM_CRITICAL_PRIORITY}"
        raise field_error(f"{path}.value", threshold.value, message)


def _check_protections(
    names: tuple[str, ...], choices: tuple[PodProtection, ...], field_name: str
) -> None:
    path = f"podProtections.{field_name}"
    for index, each in enumerate(names):
        if each not in choices:
            message = f"invalid pod protection policy; must be one of {', '.join(choices)}"
            raise field_error(f"{path}[{index}]", each, message)
        if each in names[:index]:
            raise field_error(f"{path}[{index}]", each, "contains duplicate entries")


EvictionCheck = Callable[[Pod], str]


def _protected_if(holds: Callable[[Pod], bool], why: str) -> EvictionCheck:
    return lambda pod: why if holds(pod) else ""


def _is_bare(pod: Pod) -> bool:
    return not pod.metadata.owner_references


def _checks(args: DefaultEvictorArgs, handle: Handle) -> Iterator[EvictionCheck]:
    """Yield the enabled checks in order."""
    if args.no_eviction_policy == "Mandatory":
        yield _protected_if(
            lambda pod: PREFERS_NO_EVICTION in pod.metadata.annotations, "pod prefers no eviction"
        )
    yield _protected_if(is_mirror, "pod is a mirror pod")
    yield _protected_if(is_static, "pod is a static pod")
    yield _protected_if(is_terminating, "pod is terminating")
    on = args.protections()
    checks = _protection_checks(args, handle)
    yield from (check for protection, check in checks if protection in on)
    if PodProtection.FAILED_BARE not in on:
        yield _protected_if(
            lambda pod: _is_bare(pod) and pod.status.phase != "Failed",
            "pod has no owner and has not failed",
        )
    yield from _scope_checks(args, handle)


def _protection_checks(
    args: DefaultEvictorArgs, handle: Handle
) -> Iterator[tuple[PodProtection, EvictionCheck]]:
    critical = PodProtection.SYSTEM_CRITICAL
    yield critical, _protected_if(is_system_critical, "pod has system critical priority")
    if args.priority_threshold is not None:
        yield critical, _priority_check(args.priority_threshold, handle)
    yield PodProtection.FAILED_BARE, _protected_if(_is_bare, "pod has no owner")
    yield PodProtection.LOCAL_STORAGE, _protected_if(has_local_storage, "pod has local storage")
    yield PodProtection.DAEMON_SET, _protected_if(is_of_daemon_set, "pod is of a DaemonSet")
    yield PodProtection.VOLUME_CLAIM, _claim_check(args, handle)
    yield (
        PodProtection.NO_BUDGET,
        _protected_if(lambda pod: not _has_budget(pod, handle), "pod has no PodDisruptionBudget"),
    )
    yield (
        PodProtection.RESOURCE_CLAIMS,
        _protected_if(lambda pod: bool(pod.spec.resource_claims), "pod has ResourceClaims"),
    )


def _scope_checks(args: DefaultEvictorArgs, handle: Handle) -> Iterator[EvictionCheck]:
    selector, fewest, age = args.label_selector, args.min_replicas, args.min_pod_age
    if selector is not None:
        yield _protected_if(
            lambda pod: not matches(selector, pod.metadata.labels), "labels are not selected"
        )
    if fewest >= _FEWEST_REPLICAS:
        yield _protected_if(
            lambda pod: _has_few_siblings(pod, fewest, handle), "its owner has too few pods"
        )
    if age is not None:
        yield _protected_if(
            lambda pod: _age_s(pod, handle) < age.total_seconds(), "pod is too young"
        )


def _priority_check(threshold: PriorityThreshold, handle: Handle) -> EvictionCheck:
    def check(pod: Pod) -> str:
        limit = threshold.value
        if limit is None:
            priority_class = handle.view.objects(PriorityClass).get(threshold.name)
            if priority_class is None:
                return f"PriorityClass {threshold.name} of priorityThreshold does not exist"
            limit = priority_class.value
        priority = pod.spec.priority
        return "" if priority is None or priority < limit else "pod has too high a priority"

    return check


def _claim_check(args: DefaultEvictorArgs, handle: Handle) -> EvictionCheck:
    config = args.pod_protections.config
    given = config.pods_with_pvc if config is not None else None
    classes = {each.name for each in given.protected_storage_classes} if given else set[str]()

    def check(pod: Pod) -> str:
        if not classes:
            return "pod has a volume claim" if has_volume_claim(pod) else ""
        claims = handle.view.objects(PersistentVolumeClaim)
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is None:
                continue
            name = volume.persistent_volume_claim.claim_name
            claim = claims.get(f"{pod.metadata.namespace}/{name}")
            storage_class = claim.spec.storage_class_name if claim is not None else None
            if not storage_class or storage_class in classes:
                return f"volume claim {name} has a protected or unknown storage class"
        return ""

    return check


def _has_budget(pod: Pod, handle: Handle) -> bool:
    return any(
        budget.metadata.namespace == pod.metadata.namespace
        and matches(budget.spec.selector, pod.metadata.labels)
        for budget in handle.view.objects(PodDisruptionBudget).values()
    )


def _has_few_siblings(pod: Pod, fewest: int, handle: Handle) -> bool:
    owners = pod.metadata.owner_references
    return len(owners) == 1 and len(handle.view.pods_owned_by(owners[0].uid)) < fewest


def _age_s(pod: Pod, handle: Handle) -> float:
    """Return the time since the pod started; negative for a pod that has not started."""
    started = pod.status.start_time
    return handle.date_s() - to_epoch_s(started) if started is not None else -1.0


DEFAULT_EVICTOR = DeschedulerPluginSpec(
    "DefaultEvictor",
    DefaultEvictorArgs,
    build_default_evictor,
    watches=(Namespace, PriorityClass, PodDisruptionBudget, PersistentVolumeClaim),
)
