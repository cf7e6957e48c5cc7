"""Reservations for tests, and a configuration whose scheduler knows them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from tests.worlds import Amount, configuration, made, node, pod

from koordinator.api.annotations.reservation import AFFINITY, ALLOCATED, EXACT_MATCH
from koordinator.api.codec import encode_part
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.pod import Pod
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
    stated = {"cpu": cpu, "memory": memory, **(requests or {})}
    amounts = {key: str(amount) for key, amount in stated.items() if amount is not None}
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


APPS = ("web", "db")


@st.composite
def reserved_rooms(draw: st.DrawFn) -> list[KubeObject]:
    """Return nodes with available reservations, some with a user."""
    nodes: list[KubeObject] = [
        node(f"n{index}", cpu=draw(st.integers(2, 8)), memory="8Gi")
        for index in range(draw(st.integers(1, 4)))
    ]
    made: list[KubeObject] = []
    for index in range(draw(st.integers(0, 4))):
        name, on = f"r{index}", f"n{draw(st.integers(0, len(nodes) - 1))}"
        reserved = reservation(
            name,
            draw(st.integers(1, 4)),
            "1Gi",
            on=on,
            for_app=draw(st.sampled_from(APPS)),
            once=draw(st.booleans()),
            policy=draw(st.sampled_from(("Aligned", "Restricted", ""))),
            labels={"pool": draw(st.sampled_from(("a", "b")))},
            unschedulable=draw(st.integers(0, 4)) == 0,
        )
        made.append(reserved)
        if draw(st.booleans()):
            used = {ALLOCATED.key: json.dumps({"name": name, "uid": uid(name)})}
            made.append(pod(f"u{index}", 1, on=on, labels={"app": "web"}, annotations=used))
    return [*nodes, *made]


@st.composite
def reserving_pods(draw: st.DrawFn) -> Pod:
    """Return a pod that may own some of these reservations, need one, or ignore them all."""
    labels = {"app": draw(st.sampled_from((*APPS, "other")))}
    if draw(st.integers(0, 5)) == 0:
        labels["scheduling.koordinator.sh/reservation-ignored"] = "true"
    needs = draw(st.sampled_from(({}, {}, affinity(), affinity(reservationSelector={"pool": "a"}))))
    return pod("p", draw(st.integers(0, 4)) or None, "1Gi", labels=labels, annotations=needs)


PARTS = ("preFilter", "filter", "score", "reserve")


def config(
    *more: str,
    at: Sequence[str] = PARTS,
    post_filter: Sequence[str] = ("Reservation", "DefaultPreemption"),
    off: Sequence[str] = (),
    **args: Any,
) -> KubeSchedulerConfiguration:
    """Return a profile with the plugin on, and others ``at`` their points.

    ``off`` are filters that are not on; ``args`` configure the plugin.
    """
    points: dict[str, list[JsonObject]] = {
        point: [{"name": "Reservation", "weight": 5000}] for point in PARTS
    }
    for point in at:
        points.setdefault(point, []).extend({"name": name} for name in more)
    plugins: JsonObject = {point: {"enabled": enabled} for point, enabled in points.items()}
    plugins["filter"]["disabled"] = [{"name": name} for name in off]
    plugins["postFilter"] = {
        "disabled": [{"name": "*"}],
        "enabled": [{"name": name} for name in post_filter],
    }
    return configuration(
        plugins=plugins,
        pluginConfig=[{"name": "Reservation", "args": args}] if args else [],
    )
