"""Ingest of API objects into the state: each watch event becomes a ``ClusterEvent`` for plugins."""

from collections.abc import Mapping
from dataclasses import replace

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.annotations.gang import NETWORK_TOPOLOGY_SELECTOR
from koordinator.api.annotations.pod_qos import (
    ESTIMATED_SCALING_FACTORS,
    ESTIMATED_SECONDS_AFTER_INITIALIZED,
    ESTIMATED_SECONDS_AFTER_SCHEDULED,
)
from koordinator.api.annotations.reservation import RESERVATION_NAME
from koordinator.api.core import Namespace
from koordinator.api.device import Device
from koordinator.api.labels import OPERATING_MODE
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import TERMINAL_PHASES, ContainerStatus, Pod, PodStatus
from koordinator.api.reservation import Reservation
from koordinator.domain.reserve_pod import display_name, holds_for_others, is_reserve_pod
from koordinator.domain.resized_pods import why_pending
from koordinator.domain.transforms import transform_node
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import Action, ClusterEvent
from koordinator.scheduler.rules.reservations.offer import ReservationOffer, offer_of, offer_of_pod
from koordinator.scheduler.snapshot import ClusterState, PlacedPod, PodAllocation, PodClass
from koordinator.scheduler.snapshot.pod_allocation import KEYS, NO_ALLOCATION, read_pod_allocation

#: Annotations of placed pods that plugins read, besides what the pods hold.
_READ_WHEN_PLACED = (
    NETWORK_TOPOLOGY_SELECTOR,
    ESTIMATED_SCALING_FACTORS.key,
    ESTIMATED_SECONDS_AFTER_INITIALIZED,
    ESTIMATED_SECONDS_AFTER_SCHEDULED,
)


@dataclass(frozen=True, slots=True)
class ObjectWarning:
    """Invalid part of an object, which is ignored; the rest of the object counts."""

    about: KubeObject
    problem: str  # names the object

    def __str__(self) -> str:
        return self.problem


class Ingest:
    """Applies the objects of the cluster to a ``ClusterState``."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.warnings: list[ObjectWarning] = []  # for the shell to report and clear

    # -- nodes, devices, the rest ------------------------------------------------------------

    def put(self, new: KubeObject, old: KubeObject | None = None) -> ClusterEvent:
        """Store an object that is no pod; ``old`` is its former version, None if it is new."""
        if isinstance(new, Node):
            return self._put_node(new, old if isinstance(old, Node) else None)
        if not self._is_outdated(new):
            self._state.objects.put(new)
        if isinstance(new, Device):
            self._set_devices(new.metadata.name)
        elif isinstance(new, NodeResourceTopology):
            self._set_topology(new.metadata.name)
        elif isinstance(new, NodeMetric):
            self._set_load(new.metadata.name)
        elif isinstance(new, Namespace):
            self._set_namespace(new.metadata.name, new.metadata.labels)
        action = Action.ADD if old is None else Action.UPDATE
        return ClusterEvent(new.KIND, action, old, new)

    def _put_node(self, new: Node, old: Node | None) -> ClusterEvent:
        new, old = self._transformed(new), transform_node(old).node if old is not None else None
        name = new.metadata.name
        self._state.put_node(new)
        if old is None:
            self._set_devices(name)
            self._set_topology(name)
            self._set_load(name)
            self._complain_about_load(new)
            return ClusterEvent("Node", Action.ADD, old, new)
        action = node_changes(old, new)
        if action & Action.UPDATE_LABELS:
            self._set_devices(name)
        if action & (Action.UPDATE_LABELS | Action.UPDATE_ANNOTATIONS):
            self._set_topology(name)
        if action & Action.UPDATE_ANNOTATIONS:
            self._complain_about_load(new)
        return ClusterEvent("Node", action, old, new)

    def _transformed(self, node: Node) -> Node:
        transformed = transform_node(node)
        if transformed.warning:
            self.warnings.append(ObjectWarning(node, transformed.warning))
        return transformed.node

    def _is_outdated(self, new: KubeObject) -> bool:
        """Return whether the state has the result of a write that is newer than this version.

        The result may be of a new object of that name.
        """
        known = self._state.objects.get(type(new), new.key)
        return known is not None and _version(known) > _version(new)

    def _is_replaced(self, deleted: KubeObject) -> bool:
        """Return whether we know already of another object that has the name now."""
        known = self._state.objects.stored(type(deleted), deleted.key)
        return (
            known is not None
            and known.metadata.uid != deleted.metadata.uid
            and _version(known) > _version(deleted)
        )

    def drop(self, deleted: KubeObject) -> ClusterEvent:
        """Forget an object that is no pod."""
        if isinstance(deleted, Node):
            if deleted.metadata.name in self._state.nodes.rows:
                self._state.drop_node(deleted.metadata.name)
        else:
            if not self._is_replaced(deleted):
                self._state.objects.drop(deleted)
            if isinstance(deleted, Device):
                self._set_devices(deleted.metadata.name)
            elif isinstance(deleted, NodeResourceTopology):
                self._set_topology(deleted.metadata.name)
            elif isinstance(deleted, NodeMetric):
                self._set_load(deleted.metadata.name)
            elif isinstance(deleted, Namespace):
                self._set_namespace(deleted.metadata.name, None)
        return ClusterEvent(deleted.KIND, Action.DELETE, deleted, None)

    def _set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        if self._state.pods.set_namespace(name, labels):
            self._state.touch_cluster()

    def _set_devices(self, node: str) -> None:
        if node in self._state.nodes.rows:
            problems = self._state.set_devices(node)
            device = self._state.objects.get(Device, node)
            if device is not None:
                self.warnings += (ObjectWarning(device, str(problem)) for problem in problems)

    def _set_topology(self, node: str) -> None:
        problem = self._state.set_topology(node) if node in self._state.nodes.rows else None
        topology = self._state.objects.get(NodeResourceTopology, node)
        if problem is not None and topology is not None:
            self.warnings.append(ObjectWarning(topology, str(problem)))

    def _set_load(self, node: str) -> None:
        if node in self._state.nodes.rows:
            self._state.set_load(node)

    def _complain_about_load(self, node: Node) -> None:
        name = node.metadata.name
        problems = self._state.load.problems.get(self._state.nodes.rows[name], ())
        self.warnings += (ObjectWarning(node, f"node {name}: {problem}") for problem in problems)

    # -- placed pods -------------------------------------------------------------------------

    def put_placed(
        self, new: Pod, placed: PlacedPod | None, old: Pod | None = None
    ) -> ClusterEvent | None:
        """Store a pod that has a node; ``placed`` is its current place, if any.

        None: nothing that scheduling looks at has changed.
        """
        state = self._state
        if placed is None:
            state.displace(new.key)  # it may wait for its node to appear
            allocation = self._pod_allocation_of(new)
            state.place_on(new.key, new, state.classes.of(new), new.spec.node_name, allocation)
            return ClusterEvent("AssignedPod", Action.ADD, None, new)
        before = placed.pod
        if state.nodes.names[placed.row] == new.spec.node_name and not self._holds_otherwise(
            placed, new
        ):
            if _same_to_plugins(before, new):
                state.renew(placed, new)
                return None
            pod_class = state.classes.of(new)
            if pod_class is placed.pod_class:
                state.renew(placed, new)
                return None
            before_class = placed.pod_class
            if state.update_placed(placed, new, pod_class):
                return _updated(old or before, new, before_class, pod_class)
        state.displace(new.key)
        allocation = self._pod_allocation_of(new)
        if placed.pod_allocation.takes_over:  # until these pods say so themselves
            allocation = replace(allocation, takes_over=placed.pod_allocation.takes_over)
        before_class, pod_class = placed.pod_class, state.classes.of(new)
        state.place_on(new.key, new, pod_class, new.spec.node_name, allocation)
        return _updated(old or before, new, before_class, pod_class)

    def is_bare_bind(self, placed: PlacedPod, new: Pod) -> bool:
        """Return whether a pod has been bound where it is placed, without any other change.

        Compares by identity: parts that are not the same object may differ.  Annotations that state
        the devices and CPUs charged for the pod are part of the bind.
        """
        old, a, b = placed.pod, placed.pod.spec, new.spec
        return (
            b.node_name == self._state.nodes.names[placed.row]
            and not a.node_name
            and a.containers is b.containers
            and a.init_containers is b.init_containers
            and a.overhead is b.overhead
            and a.resources is b.resources
            and a.priority == b.priority
            and old.metadata.labels is new.metadata.labels
            and _states(placed.pod_allocation, old.metadata.annotations, new.metadata.annotations)
            and OPERATING_MODE not in new.metadata.labels
            and new.metadata.deletion_timestamp is None
            and not new.status.container_statuses
            and new.status.phase not in TERMINAL_PHASES
        )

    def _holds_otherwise(self, placed: PlacedPod, new: Pod) -> bool:
        """Return whether the annotations differ from the charged allocation."""
        annotations, known = new.metadata.annotations, placed.pod_allocation
        if known.offer != self._offer_of(new, []):
            return True
        if known is NO_ALLOCATION and annotations.keys().isdisjoint(KEYS):
            return False
        if all(annotations.get(key) == known.annotations.get(key) for key in KEYS):
            return False
        charged = replace(known, offer=None, takes_over=frozenset())
        return read_pod_allocation(new.metadata, []) != charged

    def _pod_allocation_of(self, pod: Pod) -> PodAllocation:
        """Return the pod's allocation on its node; unreadable annotations become warnings."""
        problems: list[InputError] = []
        allocation = read_pod_allocation(pod.metadata, problems)
        offer = self._offer_of(pod, problems)
        if offer is not None:
            allocation = replace(allocation, offer=offer)
        self.warnings += (ObjectWarning(pod, f"pod {pod.key}: {problem}") for problem in problems)
        if allocation.devices:
            self._check_devices(pod, allocation)
        return allocation

    def _offer_of(self, pod: Pod, problems: list[InputError]) -> ReservationOffer | None:
        """Return the amounts of the pod that others may use; None: nothing."""
        meta = pod.metadata
        try:
            if is_reserve_pod(meta):
                name = meta.annotations.get(RESERVATION_NAME, "")
                reservation = self._state.objects.get(Reservation, name)
                offer = None if reservation is None else offer_of(reservation)
            else:
                offer = offer_of_pod(pod) if holds_for_others(pod) else None
        except InputError as error:
            problems.append(error)
            return None
        hold = None if offer is None else self._state.holds.by_uid.get(offer.uid)
        if hold is not None and hold.placed.key != pod.key:
            problem = f"{meta.uid} is the uid of {display_name(hold.placed.pod)}, too"
            problems.append(InputError(problem, path="metadata.uid"))
            return None
        return offer

    def _check_devices(self, pod: Pod, allocation: PodAllocation) -> None:
        """Warn about allocated devices that the pod's node lacks; they count as taken."""
        row = self._state.nodes.rows.get(pod.spec.node_name)
        report = None if row is None else self._state.nodes.devices.reports.get(row)
        if report is None:
            return
        for kind, devices in allocation.devices.items():
            group = report.model.group(kind)
            present = group.mask if group else 0
            missing = [taken.minor for taken in devices if not present >> taken.minor & 1]
            if missing:
                problem = (
                    f"pod {pod.key}: {ALLOCATED.path} names {kind} devices {missing}, which node "
                    f"{pod.spec.node_name} does not report"
                )
                self.warnings.append(ObjectWarning(pod, problem))

    def drop_placed(self, deleted: Pod) -> ClusterEvent:
        """Release the amounts of a pod that was deleted or has ended."""
        self._state.displace(deleted.key)
        return ClusterEvent("AssignedPod", Action.DELETE, deleted, None)


def _version(obj: KubeObject) -> int:
    """Return the resourceVersion, which Kubernetes 1.35 promises to be a growing number."""
    text = obj.metadata.resource_version
    return int(text) if text.isdecimal() else 0


def _states(known: PodAllocation, old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Return whether the new annotations are the old ones with exactly this allocation."""
    if known is NO_ALLOCATION:
        return old is new
    if known.uses or known.offer is not None or known.takes_over or known.claimed:
        return False  # other pods or objects depend on it
    return bool(known.annotations) and new == {**old, **known.annotations}


def _same_to_plugins(old: Pod, new: Pod) -> bool:
    """Return whether plugins cannot distinguish two versions, by a cheap sufficient test.

    A bind changes the node name and the status only.
    """
    a, b = old.spec, new.spec
    return (
        a.containers == b.containers
        and a.resources == b.resources
        and a.overhead == b.overhead
        and a.init_containers == b.init_containers
        and a.priority == b.priority
        and _same_amounts(old.status, new.status)
        and old.metadata.labels == new.metadata.labels
        and _same_annotations(old.metadata.annotations, new.metadata.annotations)
        and old.metadata.owner_references == new.metadata.owner_references
        and old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
    )


def _same_annotations(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Return whether plugins read the same from the annotations of a placed pod."""
    return old == new or all(old.get(key) == new.get(key) for key in _READ_WHEN_PLACED)


def _same_amounts(old: PodStatus, new: PodStatus) -> bool:
    """Return whether both versions of a pod's status name the same amounts in the same state."""
    return (
        _same_in_containers(old.container_statuses, new.container_statuses)
        and _same_in_containers(old.init_container_statuses, new.init_container_statuses)
        and old.allocated_resources == new.allocated_resources
        and old.resources == new.resources
        and old.node_allocatable_resource_claim_statuses
        == new.node_allocatable_resource_claim_statuses
        and (old.conditions == new.conditions or why_pending(old) == why_pending(new))
    )


def _same_in_containers(old: tuple[ContainerStatus, ...], new: tuple[ContainerStatus, ...]) -> bool:
    if old == new:
        return True
    return len(old) == len(new) and all(
        a.name == b.name
        and a.allocated_resources == b.allocated_resources
        and a.resources == b.resources
        for a, b in zip(old, new, strict=True)
    )


def node_changes(old: Node, new: Node) -> Action:
    """Return the changes of a node that queueing hints distinguish."""
    changes = Action(0)
    if old.spec.unschedulable != new.spec.unschedulable or old.spec.taints != new.spec.taints:
        changes |= Action.UPDATE_TAINTS
    if old.status.allocatable != new.status.allocatable:
        changes |= Action.UPDATE_ALLOCATABLE
    if old.metadata.labels != new.metadata.labels:
        changes |= Action.UPDATE_LABELS
    if old.metadata.annotations != new.metadata.annotations:
        changes |= Action.UPDATE_ANNOTATIONS
    if [(c.type, c.status) for c in old.status.conditions] != [
        (c.type, c.status) for c in new.status.conditions
    ]:
        changes |= Action.UPDATE_CONDITION
    if old.status.declared_features != new.status.declared_features:
        changes |= Action.UPDATE_DECLARED_FEATURES
    return changes or Action.UPDATE_OTHER


def _updated(old: Pod, new: Pod, before: PodClass, after: PodClass) -> ClusterEvent:
    return ClusterEvent("AssignedPod", placed_pod_changes(old, new, before, after), old, new)


def placed_pod_changes(old: Pod, new: Pod, before: PodClass, after: PodClass) -> Action:
    """Return what changed of a placed pod, whose class was ``before`` and is ``after``.

    A pod is scaled down when it holds less; a spec with smaller requests is not enough.
    """
    changes = Action(0)
    if old.metadata.labels != new.metadata.labels:
        changes |= Action.UPDATE_LABELS
    now = dict(after.demand)
    if any(amount > now.get(column, 0) for column, amount in before.demand):
        changes |= Action.UPDATE_SCALE_DOWN
    return changes or Action.UPDATE_OTHER
