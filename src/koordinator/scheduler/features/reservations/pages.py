"""Pages of reservations on a node: remaining amounts and users.

Source: koordinator pkg/scheduler/plugins/reservation/service.go; frameworkext/reservation_info.go
(fields; some are spelt as in Go).  There a host port can't be encoded, so its form here is ours.
"""

from collections.abc import Collection
from typing import Any

from koordinator.api.codec import encode_part
from koordinator.domain.amounts import Amounts, to_texts
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.reserve_pod import is_for_others
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError
from koordinator.scheduler.loop.go_amounts import go_amounts
from koordinator.scheduler.rules.reservations.match import remaining
from koordinator.scheduler.rules.reservations.offer import ReservationOffer, offer_of_pod
from koordinator.scheduler.snapshot import ClusterState, PlacedPod

#: The original may keep an index of labels; here there is none.
SELECTOR_INDEX = {"enabled": False, "prefixes": None, "indexedReservations": 0}


def node_reservations_page(state: ClusterState, name: str) -> dict[str, Any]:
    """Return the reservations and reserving pods on a node, ready or not."""
    row = state.nodes.rows.get(name)
    if row is None:
        return {}
    here = state.holds.on_row.get(row, {})
    items = [
        _item(hold.placed, hold.offer, hold.used, hold.users.values(), available=True)
        for hold in here.values()
    ]
    for placed in state.pods.on_row[row].values():
        if is_for_others(placed.pod.metadata.labels) and placed.pod.metadata.uid not in here:
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
    found: dict[str, list[str]] = {}
    for placed in pods:
        for address, protocol, port in placed.pod_class.host_ports:
            found.setdefault(address, []).append(f"{protocol}/{port}")
    return {address: sorted(ports) for address, ports in sorted(found.items())}
