"""Feature for reservations: each is scheduled as a pod and then held for its owners.

The page of a node shows remaining amounts and users.

Source: koordinator pkg/scheduler/plugins/reservation/service.go; frameworkext/reservation_info.go
(fields; some are spelt as in Go).  There a host port can't be encoded, so its form here is ours.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, ClassVar

from koordinator.api.codec import encode_part
from koordinator.api.kubescheduler import ReservationArgs
from koordinator.api.labels import OPERATING_MODE
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.reservation import Reservation
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.domain.amounts import Amounts, go_amounts, to_texts
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.reserve_pod import is_for_others, is_reserve_pod, reservation_name
from koordinator.domain.transforms import reserve_pod_as_scheduled
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError
from koordinator.scheduler.binding import Assumed
from koordinator.scheduler.features.reservations.controller import ReservationController
from koordinator.scheduler.loop.feature import CallInLoop, StatePage
from koordinator.scheduler.loop.feature_kinds import BindingFeature, HolderFeature
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.loop.outcomes import Fact, UnschedulableReported
from koordinator.scheduler.rules.reservations.match import remaining
from koordinator.scheduler.rules.reservations.offer import (
    ReservationOffer,
    offer_of_pod,
    owner_candidate_of,
)
from koordinator.scheduler.snapshot import ClusterState, PlacedPod

#: The original may keep an index of labels; here there is none.
SELECTOR_INDEX = {"enabled": False, "prefixes": None, "indexedReservations": 0}


class ReservationFeature(HolderFeature, BindingFeature):
    """Scheduling of reservations as reserve pods, and their statuses."""

    holder_label: ClassVar[str] = OPERATING_MODE

    def __init__(
        self, handle: SchedulerHandle, args: ReservationArgs, *, cleans_users: bool, has_pages: bool
    ) -> None:
        """``cleans_users``: remove the annotation from users of a deleted reservation."""
        self._handle, self._has_pages = handle, has_pages
        self.is_idle = True  # until the first reservation, or pod that holds its place for others
        self._controller = ReservationController(
            handle.cluster,
            handle.state,
            handle.clock,
            args,
            cleans_users=cleans_users,
            isolation=handle.isolation,
        )

    # -- events --------------------------------------------------------------------------------

    def consume_pod_event(self, kind: EventType, pod: Pod, previous: Pod | None) -> None:
        """Handle a pod in reservation operating mode."""
        if self.is_idle:
            self._end_idleness()
        self._put_holder(kind, pod, previous)

    def _end_idleness(self) -> None:
        self.is_idle = False
        self._handle.hooks.refresh()

    def on_object_event(self, event: WatchEvent) -> None:
        """Handle a reservation as its reserve pod."""
        if isinstance(event.object, Reservation):
            if self.is_idle:
                self._end_idleness()
            self._put_reservation(event, event.object)
        elif isinstance(event.object, Node) and event.type is EventType.DELETED:
            self._controller.touch_node(event.object.metadata.name)

    def on_reservation_use(self, uid: str) -> None:
        """Update the reservation that a pod uses or used."""
        self._controller.touch_user(uid)

    def _put_reservation(self, event: WatchEvent, reservation: Reservation) -> None:
        """Update the reserve pod of a reservation.

        The response to our own write may be newer than the event.
        """
        state, previous = self._handle.state, event.previous
        deleted = event.type is EventType.DELETED
        if not deleted:
            reservation = state.objects.get(Reservation, reservation.key) or reservation
        old = reserve_pod_as_scheduled(previous) if isinstance(previous, Reservation) else None
        new = reserve_pod_as_scheduled(reservation)
        placed = state.placed(new.key)
        waits = not new.spec.node_name and not is_terminal(new)
        if waits and placed is not None and placed.pod.spec.node_name:
            self._put_holder(EventType.DELETED, placed.pod, None)  # it needs a node again
        self._put_holder(event.type, new, old)
        self._controller.touch(reservation.metadata.name)
        if deleted:
            self._controller.forget(reservation.metadata.uid)

    def _put_holder(self, kind: EventType, pod: Pod, previous: Pod | None) -> None:
        """Update a pod that may hold resources for others; activate its owners if it is new."""
        state = self._handle.state
        uid, by_uid = pod.metadata.uid, state.holds.by_uid
        before = by_uid.get(uid)
        self._handle.intake.put(kind, pod, previous)
        now = by_uid.get(uid)
        if now is not None and (before is None or before.offer != now.offer):
            ready = [
                key
                for key, (other, _) in state.unbound.items()
                if now.offer.is_for(owner_candidate_of(other))
            ]
            self._handle.queue.activate(ready, self._handle.clock.now_s())

    # -- outcomes ----------------------------------------------------------------------------

    def has_own_bind(self, pod: Pod) -> bool:
        """Return whether a pod is a reserve pod, whose status is written instead of a bind."""
        return is_reserve_pod(pod.metadata)

    def bind(self, assumed: Assumed) -> None:
        """Write the node of a reservation; it is usable before its event arrives."""
        pod = assumed.queued.pod
        error = self._controller.bind(pod, assumed.node, assumed.allocation)
        self._handle.binder.end_without_bind(assumed, error)
        name = reservation_name(pod.metadata)
        available = self._handle.state.objects.get(Reservation, name)
        if error is None and available is not None:
            self._put_holder(EventType.MODIFIED, reserve_pod_as_scheduled(available), pod)

    observed: ClassVar[tuple[type[Fact], ...]] = (UnschedulableReported,)

    def observe(self, fact: Fact) -> None:
        """Write why a reservation is pending."""
        if (
            isinstance(fact, UnschedulableReported)
            and is_reserve_pod(fact.pod.metadata)
            and self._handle.options.report
        ):
            self._controller.unschedulable(fact.pod, fact.message)

    # -- periodic work -----------------------------------------------------------------------

    def work(self, now_s: float) -> bool:
        """Write the statuses that are due."""
        return self._controller.step(now_s)

    def follow(self) -> None:
        """Drop pending work about deleted reservations, which the leader does."""
        self._controller.follow()

    def next_wakeup_s(self, *, synced: bool) -> float | None:  # noqa: ARG002 -- always
        """Return when the next expiry or write is due."""
        return self._controller.next_wakeup_s()

    def pages(self, in_loop: CallInLoop) -> Mapping[str, StatePage]:
        """Return the pages of reservations, where the plugin filters nodes."""
        if not self._has_pages:
            return {}
        state = self._handle.state
        return {
            "/plugins/Reservation/nodeReservations/{nodeName}": lambda given: in_loop(
                partial(_node_reservations_page, state, given["nodeName"])
            ),
            "/plugins/Reservation/reservationSelectorIndex": lambda _: SELECTOR_INDEX,
        }


def _node_reservations_page(state: ClusterState, name: str) -> dict[str, Any]:
    """Return the reservations and reserving pods on a node, ready or not."""
    row = state.nodes.rows.get(name)
    if row is None:
        return {}
    holds = state.holds.on_row.get(row, {})
    items = [
        _item(hold.placed, hold.offer, hold.used, hold.users.values(), available=True)
        for hold in holds.values()
    ]
    for placed in state.pods.on_row[row].values():
        if is_for_others(placed.pod.metadata.labels) and placed.pod.metadata.uid not in holds:
            try:
                offer = offer_of_pod(placed.pod)
            except InputError:
                continue  # malformed owners are reported by an event
            items.append(_item(placed, offer, {}, (), available=False))
    return {"items": sorted(items, key=lambda item: str(item["uid"]))} if items else {}


def _item(
    placed: PlacedPod,
    offer: ReservationOffer,
    used: Amounts,
    users: Collection[PlacedPod],
    *,
    available: bool,
) -> dict[str, Any]:
    assigned = [_user(user) for user in users]
    owner = offer.current_owner
    if owner is not None and all(user["UID"] != owner.uid for user in assigned):
        assigned.append(_requirement(owner.namespace, owner.name, owner.uid))
    item = {
        "name": offer.name,
        "namespace": placed.pod.metadata.namespace if offer.is_pod else "",
        "uid": offer.uid,
        "kind": "Pod" if offer.is_pod else "Reservation",
        "available": available,
        "allocateOnce": offer.allocate_once,
        "allocatable": to_texts(offer.amounts),
        "reserved": to_texts(offer.withheld),
        "allocated": to_texts(used),
        "allocatablePorts": _ports(placed),
        "allocatedPorts": _ports(*users),
        "availableResource": go_amounts(remaining(offer, used)),
        "allocatedResource": go_amounts(used),
        "owners": decode_json(encode_part(offer.owners)),
        "allocatePolicy": offer.policy.value,
        "assignedPods": sorted(assigned, key=lambda user: str(user["UID"])),
    }
    return {name: value for name, value in item.items() if value}


def _user(user: PlacedPod) -> dict[str, Any]:
    meta = user.pod.metadata
    requests = to_texts(pod_requests(user.pod.spec))
    return _requirement(meta.namespace, meta.name, meta.uid, requests, _ports(user))


def _requirement(
    namespace: str,
    name: str,
    uid: str,
    requests: dict[str, str] | None = None,
    ports: dict[str, list[str]] | None = None,
) -> dict[str, Any]:
    return {
        "Namespace": namespace,
        "Name": name,
        "UID": uid,
        "Requests": requests or {},
        "Ports": ports or None,
    }


def _ports(*pods: PlacedPod) -> dict[str, list[str]]:
    """Return the host ports that pods listen on, ``PROTOCOL/number``, by address."""
    by_address: dict[str, list[str]] = {}
    for placed in pods:
        for address, protocol, port in placed.pod_class.host_ports:
            by_address.setdefault(address, []).append(f"{protocol}/{port}")
    return {address: sorted(ports) for address, ports in sorted(by_address.items())}
