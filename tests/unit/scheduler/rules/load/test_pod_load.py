"""Estimated usage of pods."""

from typing import Any

import pytest
from tests.worlds import pod

from koordinator.api.codec import decode_object, to_manifest
from koordinator.api.pod import Pod
from koordinator.domain.pod_requests import pod_limits
from koordinator.scheduler.rules.load.pod_load import PodLoad, pod_load
from koordinator.scheduler.rules.load.rules import Limits, LoadRules

MIB = 1 << 20
BAND = "koordinator.sh/priority-class"
FACTORS = (("cpu", 85), ("memory", 70))
RULES = LoadRules(
    resources=("cpu", "memory"), factors=FACTORS, limits=Limits((0, 0), (0, 0)), expiration_s=180.0
)


def load(pending: Pod, rules: LoadRules = RULES) -> PodLoad:
    return pod_load(pending.metadata.labels, pending.metadata.annotations, pending.spec, rules)


def limited(pending: Pod, **limits: str) -> Pod:
    """Return the pod with limits on its container."""
    manifest = to_manifest(pending)
    manifest["spec"]["containers"][0]["resources"]["limits"] = {
        name.replace("_", "-"): amount for name, amount in limits.items()
    }
    made = decode_object(manifest)
    assert isinstance(made, Pod)
    return made


def test_a_share_of_the_requests_is_used() -> None:
    """85 % of the CPU and 70 % of the memory, rounded half away from zero."""
    assert load(pod("p", cpu="3", memory="1000")).estimate == (2550, 700)
    assert load(pod("p", cpu="10m", memory="5")).estimate == (9, 4)  # 8.5 and 3.5


def test_a_limit_above_the_request_counts_in_its_place() -> None:
    """The estimate never exceeds the limit, whatever the factor."""
    pending = limited(pod("p", cpu="1"), cpu="4", memory="2000")
    most = LoadRules(
        resources=RULES.resources,
        factors=(("cpu", 100), ("memory", 100)),
        limits=RULES.limits,
        expiration_s=1.0,
    )

    assert load(pending).estimate == (3400, 1400)
    assert load(pending, most).estimate == (4000, 2000)


def test_a_pod_that_asks_for_nothing_uses_a_little() -> None:
    """A quarter of a CPU and 200 MiB: also one of band batch, but none of mid or free."""
    little = (250, 200 * MIB)

    assert load(pod("p")).estimate == little
    assert load(pod("p", labels={BAND: "koord-batch"})).estimate == little
    assert load(pod("p", labels={BAND: "koord-mid"})).estimate == (0, 0)
    assert load(pod("p", cpu=3, labels={BAND: "koord-free"})).estimate == (0, 0)


def test_bands_ask_for_their_own_kinds_of_resources() -> None:
    """Batch CPU is in thousandths already."""
    batch = {"kubernetes.io/batch-cpu": 2000, "kubernetes.io/batch-memory": 1000}
    mid = {"kubernetes.io/mid-cpu": 1000, "kubernetes.io/mid-memory": 100}

    assert load(pod("p", requests=batch, labels={BAND: "koord-batch"})).estimate == (1700, 700)
    assert load(pod("p", requests=mid, labels={BAND: "koord-mid"})).estimate == (850, 70)


@pytest.mark.parametrize(
    ("text", "estimate"),
    [('{"cpu": 50}', (500, 700)), ("{", (850, 700)), ('{"cpu": -1, "foo": 3}', (0, 700))],
)
def test_pods_may_say_themselves_what_share_they_use(text: str, estimate: tuple[int, int]) -> None:
    """If that is allowed; factors that they don't name, or can't be read, are the general ones."""
    key = "scheduling.koordinator.sh/load-estimated-scaling-factors"
    pending = pod("p", cpu=1, memory=1000, annotations={key: text})
    allowed = LoadRules(
        resources=RULES.resources,
        factors=FACTORS,
        limits=RULES.limits,
        expiration_s=1.0,
        customised=True,
    )

    assert load(pending).estimate == (850, 700)
    assert load(pending, allowed).estimate == estimate


@pytest.mark.parametrize(
    ("labels", "fields", "is_prod"),
    [
        ({BAND: "koord-prod"}, {}, True),
        ({}, {"priority": 9000}, True),
        ({"koordinator.sh/qosClass": "LS"}, {}, True),
        ({"koordinator.sh/qosClass": "BE"}, {}, False),
        ({}, {}, False),
        ({BAND: "koord-mid"}, {"priority": 9000}, False),
    ],
)
def test_which_pods_are_prod(labels: dict[str, str], fields: dict[str, Any], is_prod: bool) -> None:
    """By label, else by priority, else by QoS class."""
    assert load(pod("p", labels=labels, **fields)).is_prod is is_prod


def test_a_pod_that_stands_for_a_reservation_adds_nothing() -> None:
    """The reservation's amounts are used by its owners; its own placement is decided normally."""
    pending = pod("p", cpu=1, annotations={"scheduling.koordinator.sh/reserve-pod": "true"})

    assert load(pending).estimate[0] == 850
    assert not any(load(pending).unreported())


def test_limits_of_a_pod_are_combined_as_requests_are() -> None:
    """Pod-level limits replace the sum; overhead comes on top of what is limited."""
    pending = limited(pod("p", overhead={"cpu": "100m", "memory": "10"}), cpu="2")
    whole = limited(pod("p", resources={"limits": {"cpu": "3"}}), cpu="2")

    assert pod_limits(pending.spec) == {"cpu": 2100}
    assert pod_limits(whole.spec) == {"cpu": 3000}
