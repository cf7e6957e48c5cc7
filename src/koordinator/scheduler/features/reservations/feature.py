"""Feature for reservations: each is scheduled as a pod and then held for its owners."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from koordinator.api.kubescheduler import ReservationArgs
from koordinator.api.labels import OPERATING_MODE
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.reservation import Reservation
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.domain.reserve_pod import is_reserve_pod, reservation_name
from koordinator.domain.transforms import reserve_pod_as_scheduled
from koordinator.scheduler.binding import Assumed
from koordinator.scheduler.features.reservations.controller import ReservationController
from koordinator.scheduler.features.reservations.pages import (
    SELECTOR_INDEX,
    node_reservations_page,
)
from koordinator.scheduler.loop.feature import Ask, Page
from koordinator.scheduler.loop.feature_kinds import BindingFeature, HolderFeature
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.loop.outcomes import Fact, PodTold
from koordinator.scheduler.rules.reservations.offer import owner_candidate_of


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
        held = state.placed(new.key)
        waits = not new.spec.node_name and not is_terminal(new)
        if waits and held is not None and held.pod.spec.node_name:
            self._put_holder(EventType.DELETED, held.pod, None)  # it needs a node again
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
        self._handle.binder.settle(assumed, error)
        name = reservation_name(pod.metadata)
        available = self._handle.state.objects.get(Reservation, name)
        if error is None and available is not None:
            self._put_holder(EventType.MODIFIED, reserve_pod_as_scheduled(available), pod)

    observed: ClassVar[tuple[type[Fact], ...]] = (PodTold,)

    def observe(self, fact: Fact) -> None:
        """Write why a reservation is pending."""
        if (
            isinstance(fact, PodTold)
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

    def pages(self, ask: Ask) -> Mapping[str, Page]:
        """Return the pages of reservations, where the plugin filters nodes."""
        if not self._has_pages:
            return {}
        state = self._handle.state
        return {
            "/plugins/Reservation/nodeReservations/{nodeName}": lambda given: ask(
                partial(node_reservations_page, state, given["nodeName"])
            ),
            "/plugins/Reservation/reservationSelectorIndex": lambda _: SELECTOR_INDEX,
        }
