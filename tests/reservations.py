"""Reservations for tests, and a configuration whose scheduler knows them."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.worlds import Amount, configuration, made

from koordinator.api.annotations.reservation import AFFINITY, EXACT_MATCH
from koordinator.api.codec import encode_part
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import JsonObject
from koordinator.api.reservation import Reservation

UID = "00000000-0000-4000-8000-"


def uid(name: str) -> str:
    """Return the uid that ``reservation`` gives."""
    return UID + name.encode().hex().zfill(12)[-12:]


def reservation(
    name: str,
    cpu: Amount | None = None,
    memory: Amount | None = None,
    *,
    on: str = "",
    for_app: str = "web",
    owners: Sequence[JsonObject] = (),
    once: bool = False,
    policy: str = "Aligned",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    requests: Mapping[str, Amount] | None = None,
    template: Mapping[str, Any] | None = None,
    created: str = "2023-11-14T22:00:00Z",
    **spec: Any,
) -> Reservation:
    """Return a reservation for the pods of an app: available ``on`` a node, or pending.

    ``template`` are further fields of the template's pod spec.
    """
    asked = {"cpu": cpu, "memory": memory, **(requests or {})}
    amounts = {key: str(amount) for key, amount in asked.items() if amount is not None}
    container = {"name": "hold", "resources": {"requests": amounts}}
    status: JsonObject = {"phase": "Pending"}
    if on:
        status = {"phase": "Available", "nodeName": on, "allocatable": amounts}
    obj = made(
        "Reservation",
        name,
        Reservation.API_VERSION,
        metadata={
            "uid": uid(name),
            "creationTimestamp": created,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        spec={
            "owners": list(owners) or [{"labelSelector": {"matchLabels": {"app": for_app}}}],
            "allocateOnce": once,
            **({"allocatePolicy": policy} if policy else {}),
            "template": {"spec": {"containers": [container], **(template or {})}},
            **spec,
        },
        status=status,
    )
    assert isinstance(obj, Reservation)
    return obj


def affinity(**fields: Any) -> dict[str, str]:
    """Return the annotation of a pod that needs a reservation."""
    return {AFFINITY.key: encode_part(fields).decode()}


def exactly(*names: str) -> dict[str, str]:
    """Return the annotation of a pod that wants a reservation of just its own amounts."""
    return {EXACT_MATCH.key: encode_part({"resourceNames": names}).decode()}


def config(
    *more: str, post_filter: Sequence[str] = ("Reservation", "DefaultPreemption"), **args: Any
) -> KubeSchedulerConfiguration:
    """Return a profile with the plugin on, and others; ``args`` are those of the plugin."""
    enabled = [{"name": name} for name in ("Reservation", *more)]
    return configuration(
        plugins={
            "preFilter": {"enabled": enabled},
            "filter": {"enabled": enabled},
            "postFilter": {
                "disabled": [{"name": "*"}],
                "enabled": [{"name": name} for name in post_filter],
            },
            "score": {
                "enabled": [
                    {"name": "Reservation", "weight": 5000},
                    *({"name": name} for name in more),
                ]
            },
            "reserve": {"enabled": enabled},
        },
        pluginConfig=[{"name": "Reservation", "args": args}] if args else [],
    )
