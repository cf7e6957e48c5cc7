"""Reservations of other pods on nodes that are short of a resource."""

from collections.abc import Iterator

from koordinator.api.reservation import Reservation, ReservationOwner
from koordinator.domain.reserve_pod import is_reserve_pod, reservation_name
from koordinator.scheduler.diagnosis import spoken
from koordinator.scheduler.explain.question import Question

NAMED = 2  # reservations listed per node


class ReservedRoom:
    """Reservations on the nodes of a question that its pod may not use."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._state = question.state

    def is_decisive(self, index: int, resource: str) -> bool:
        """Return whether a node would have enough of a resource without those reservations."""
        missing = self._question.lacking(index).get(resource, 0)
        return 0 < missing <= sum(amount for _, amount in self._kept(index, resource))

    def text(self, index: int, resource: str) -> str:
        """Return the reservations of a resource on a node with owners; empty without any."""
        parts = [
            f"{spoken(resource, amount)} of {resource} kept by reservation {name}"
            + self._owners(name)
            for name, amount in self._kept(index, resource)
        ]
        more = f" and {len(parts) - NAMED} more reservations" if len(parts) > NAMED else ""
        return ", ".join(parts[:NAMED]) + more

    def _kept(self, index: int, resource: str) -> Iterator[tuple[str, int]]:
        row = int(self._question.found.rows[index])
        own, names = self._question.reserved(row), self._state.axis.names
        for key, placed in sorted(self._state.pods.on_row[row].items()):
            if key in own or not is_reserve_pod(placed.pod.metadata):
                continue
            for column, amount in placed.pod_class.demand:
                if names[column] == resource:
                    yield reservation_name(placed.pod.metadata), amount

    def _owners(self, name: str) -> str:
        reservation = self._state.objects.get(Reservation, name)
        owners = reservation.spec.owners if reservation is not None else ()
        texts = filter(None, map(_owner_text, owners[:NAMED]))
        listed = " or ".join(texts)
        return f" for {listed}" if listed else ""


def _owner_text(owner: ReservationOwner) -> str:
    """Return an owner of a reservation as text: labels, a name, a controller."""
    selector, pod, controller = owner.label_selector, owner.object, owner.controller
    parts = []
    if selector is not None:
        parts += [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    if pod is not None and pod.name:
        parts.append(f"pod {pod.namespace}/{pod.name}" if pod.namespace else f"pod {pod.name}")
    if controller is not None and controller.name:
        parts.append(f"pods of {controller.kind or 'controller'} {controller.name}")
    return ", ".join(parts)
