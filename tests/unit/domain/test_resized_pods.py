"""Amounts of pods that are resized in place."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.api.codec import decode, to_manifest
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.domain.pod_requests import NONZERO_DEFAULTS, pod_limits, pod_requests
from koordinator.domain.resized_pods import (
    EffectiveAmounts,
    ResizeRules,
    effective_amounts,
    effective_limits,
    effective_requests,
    least_requests,
    with_least_requests,
)

V1_35 = ResizeRules(sums_per_pod=False, pod_level=False)
V1_36 = ResizeRules(sums_per_pod=False, pod_level=True)
V1_37 = ResizeRules(sums_per_pod=True, pod_level=True)
RULES = [V1_35, V1_36, V1_37]
MIB = 1 << 20


def container(name: str, cpu: int | None, **more: Any) -> JsonObject:
    requests = {} if cpu is None else {"cpu": str(cpu)}
    return {"name": name, "resources": {"requests": requests}, **more}


def status(name: str, granted: int | None, in_force: int | None) -> JsonObject:
    made: JsonObject = {"name": name}
    if granted is not None:
        made["allocatedResources"] = {"cpu": str(granted)}
    if in_force is not None:
        made["resources"] = {"requests": {"cpu": str(in_force)}}
    return made


def pending(reason: str, state: str = "True") -> list[JsonObject]:
    return [{"type": "PodResizePending", "status": state, "reason": reason}]


def resized(
    *containers: JsonObject,
    statuses: list[JsonObject],
    conditions: list[JsonObject] | None = None,
    whole: JsonObject | None = None,
    on: str = "n",
    **spec: Any,
) -> Pod:
    manifest: JsonObject = {
        "metadata": {"name": "p"},
        "spec": {"containers": list(containers), "nodeName": on, **spec},
        "status": {
            "containerStatuses": statuses,
            "conditions": conditions or [],
            **(whole or {}),
        },
    }
    return decode(manifest, Pod)


def cpus(pod: Pod) -> list[int]:
    """Return the CPUs that it holds in 1.35, 1.36 and 1.37."""
    return [effective_requests(pod, rules)["cpu"] // 1000 for rules in RULES]


@pytest.mark.parametrize(
    ("spec", "granted", "in_force", "reason", "effective"),
    [
        (1, 3, 3, "", 3),
        (1, 1, 3, "", 3),
        (1, 3, 1, "", 3),
        (3, 1, 1, "Deferred", 3),
        (100, 1, 1, "Infeasible", 1),
        (100, 2, 1, "Infeasible", 2),
        (1, 1, 1, "", 1),
        (1, None, None, "", 1),
    ],
)
def test_a_pod_holds_the_most_unless_its_node_can_never_grant_it(
    spec: int, granted: int | None, in_force: int | None, reason: str, effective: int
) -> None:
    """Spec, granted and in force, as the schedulers of 1.35.4, 1.36.3 and 1.37.2 count them."""
    conditions = pending(reason) if reason else None
    pod = resized(
        container("c", spec), statuses=[status("c", granted, in_force)], conditions=conditions
    )
    assert cpus(pod) == [effective] * 3


def test_containers_are_added_up_before_they_are_compared_from_1_37_on() -> None:
    """One container shrinks from 3 to 1 CPUs while the other grows from 1 to 3."""
    pod = resized(
        container("a", 1),
        container("b", 3),
        statuses=[status("a", 3, 3), status("b", 1, 1)],
    )
    assert cpus(pod) == [6, 6, 4]


def test_the_state_of_the_condition_does_not_count_but_the_first_one_does() -> None:
    """As the original reads it."""
    refused_first = [*pending("Infeasible", "False"), *pending("Deferred")]
    deferred_first = [*pending("Deferred"), *pending("Infeasible")]
    made = [
        resized(container("c", 9), statuses=[status("c", 1, 1)], conditions=conditions)
        for conditions in (refused_first, deferred_first)
    ]
    assert [cpus(pod) for pod in made] == [[1] * 3, [9] * 3]


def test_sidecars_count_and_plain_init_containers_by_spec_until_1_36() -> None:
    """A sidecar of 1 CPU holds 4; an init container that was resized to 9 requests 2."""
    sidecar = container("s", 1, restartPolicy="Always")
    pod = resized(
        container("c", 1),
        statuses=[],
        whole={"initContainerStatuses": [status("s", 4, 4), status("i", 9, 9)]},
        initContainers=[sidecar, container("i", 2)],
    )
    assert cpus(pod) == [6, 6, 13]


def test_status_without_effective_amounts_is_ignored_until_1_36() -> None:
    """From 1.37 on what was granted counts alone."""
    pod = resized(container("c", 1), statuses=[status("c", 3, None)])
    assert cpus(pod) == [1, 1, 3]


def test_requests_of_the_whole_pod_are_compared_likewise() -> None:
    """From 1.36 on; overhead is added last."""
    pod = resized(
        container("c", 1),
        statuses=[status("c", 1, 1)],
        whole={
            "allocatedResources": {"cpu": "3"},
            "resources": {"requests": {"cpu": "2"}},
        },
        resources={"requests": {"cpu": "1"}},
        overhead={"cpu": "10"},
    )
    assert cpus(pod) == [11, 13, 13]


def test_a_status_of_a_pod_without_node_is_ignored() -> None:
    """A pod of a dump whose nodeName was removed is placed by its spec."""
    pod = resized(container("c", 1), statuses=[status("c", 3, 3)], on="")
    assert cpus(pod) == [1] * 3


def test_other_resources_and_unknown_containers_do_no_harm() -> None:
    """A status may name what the spec does not."""
    extra = {"name": "c", "resources": {"requests": {"cpu": "1", "example.com/x": "2"}}}
    pod = resized(container("c", 1), statuses=[extra, status("gone", 50, 50)])
    assert [effective_requests(pod, rules).get("example.com/x") for rules in RULES] == [2, 2, 2]
    assert cpus(pod) == [1] * 3


# -- against a plain transcription of the rules --------------------------------------------------


def added(*amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: sum(each.get(name, 0) for each in amounts) for one in amounts for name in one}


def most(*amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: max(each.get(name, 0) for each in amounts) for one in amounts for name in one}


class Plain:
    """The words of the specification, as functions of a pod."""

    def __init__(self, pod: JsonObject, defaults: Mapping[str, int]) -> None:
        self.spec, self.status, self.defaults = pod["spec"], pod["status"], defaults
        conditions = self.status["conditions"]
        reasons = [c["reason"] for c in conditions if c["type"] == "PodResizePending"]
        self.refused = reasons[:1] == ["Infeasible"]
        listed = self.status["containerStatuses"] + self.status["initContainerStatuses"]
        self.statuses = {status["name"]: status for status in listed}
        self.inits = self.spec["initContainers"]
        self.sidecars = {c["name"] for c in self.inits if c.get("restartPolicy") == "Always"}

    def together(self, of: Callable[[JsonObject], Mapping[str, int]]) -> dict[str, int]:
        running = added(*({**self.defaults, **of(c)} for c in self.spec["containers"]), {})
        before: dict[str, int] = {}
        peak: dict[str, int] = {}
        for each in self.inits:
            amounts = {**self.defaults, **of(each)}
            if each["name"] in self.sidecars:
                running, before = added(running, amounts), added(before, amounts)
                peak = most(peak, before)
            else:
                peak = most(peak, added(before, amounts))
        return most(running, peak)

    def wanted(self, container: JsonObject) -> dict[str, int]:
        return canonical(container["resources"].get("requests"))

    def wanted_unless_refused(self, container: JsonObject) -> dict[str, int]:
        return {} if self.refused else self.wanted(container)

    def greatest(self, container: JsonObject) -> dict[str, int]:
        status = self.statuses.get(container["name"], {})
        is_plain = container in self.inits and container["name"] not in self.sidecars
        if "resources" not in status or is_plain:
            return self.wanted(container)
        in_force = canonical(status["resources"].get("requests"))
        granted = canonical(status.get("allocatedResources"))
        return most(in_force, granted, self.wanted_unless_refused(container))

    def granted(self, container: JsonObject) -> dict[str, int]:
        known = self.statuses.get(container["name"], {}).get("allocatedResources")
        return canonical(known) if known else self.wanted_unless_refused(container)

    def in_force(self, container: JsonObject) -> dict[str, int]:
        known = self.statuses.get(container["name"], {}).get("resources", {}).get("requests")
        return canonical(known) if known else self.granted(container)

    def sum_of_containers(self, rules: ResizeRules) -> dict[str, int]:
        if not rules.sums_per_pod:
            return self.together(self.greatest)
        requests = {} if self.refused else self.together(self.wanted)
        if rules.pod_level and all(self.whole):
            return most(requests, *self.whole)
        return most(requests, self.together(self.granted), self.together(self.in_force))

    @property
    def whole(self) -> list[dict[str, int]]:
        in_force = self.status.get("resources", {}).get("requests")
        return [canonical(self.status.get("allocatedResources")), canonical(in_force)]

    def of_the_pod(self, rules: ResizeRules) -> dict[str, int]:
        own = only_pod_level(canonical(self.spec.get("resources", {}).get("requests")))
        if not own or not rules.pod_level or "resources" not in self.status:
            return own
        effective = only_pod_level(most(*self.whole, {} if self.refused else own))
        return effective if rules.sums_per_pod else {name: effective.get(name, 0) for name in own}

    def requests(self, rules: ResizeRules) -> dict[str, int]:
        amounts = {**self.sum_of_containers(rules), **self.of_the_pod(rules)}
        return added(amounts, canonical(self.spec["overhead"]))


def only_pod_level(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if name != "example.com/x"}


def canonical(amounts: Mapping[str, str] | None) -> dict[str, int]:
    return {
        name: int(text) * (1000 if name == "cpu" else 1) for name, text in (amounts or {}).items()
    }


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/x"]), st.sampled_from(["0", "1", "2", "7"])
)


def requirements() -> st.SearchStrategy[JsonObject]:
    return st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})


@st.composite
def pods(draw: st.DrawFn) -> JsonObject:
    def containers(prefix: str, least: int) -> list[JsonObject]:
        count = draw(st.integers(least, 2))
        return [{"name": f"{prefix}{at}", "resources": draw(requirements())} for at in range(count)]

    def statuses(listed: list[JsonObject]) -> list[JsonObject]:
        chosen = draw(st.lists(st.sampled_from(listed), unique_by=id)) if listed else []
        optional = {"allocatedResources": AMOUNTS, "resources": requirements()}
        return [
            {"name": each["name"], **draw(st.fixed_dictionaries({}, optional=optional))}
            for each in chosen
        ]

    main, inits = containers("c", 1), containers("i", 0)
    for each in inits:
        if draw(st.booleans()):
            each["restartPolicy"] = "Always"
    own = draw(st.none() | AMOUNTS)
    reasons = draw(st.lists(st.sampled_from(["Infeasible", "Deferred"]), max_size=2))
    whole = draw(
        st.fixed_dictionaries(
            {}, optional={"allocatedResources": AMOUNTS, "resources": requirements()}
        )
    )
    return {
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "n",
            "containers": main,
            "initContainers": inits,
            "overhead": draw(AMOUNTS),
            **({"resources": {"requests": own}} if own else {}),
        },
        "status": {
            "conditions": [pending(reason)[0] for reason in reasons],
            "containerStatuses": statuses(main),
            "initContainerStatuses": statuses(inits),
            **whole,
        },
    }


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(manifest=pods(), rules=st.sampled_from(RULES), by_default=st.booleans())
def test_requests_follow_the_rules(
    manifest: JsonObject, rules: ResizeRules, by_default: bool
) -> None:
    """Held against a transcription of the specification, with and without assumed requests."""
    defaults = NONZERO_DEFAULTS if by_default else {}
    effective = effective_requests(decode(manifest, Pod), rules, defaults)

    assert {n: amount for n, amount in effective.items() if amount} == {
        n: amount for n, amount in Plain(manifest, defaults).requests(rules).items() if amount
    }


@settings(max_examples=examples(30))
@given(manifest=pods(), rules=st.sampled_from(RULES))
def test_pod_with_its_least_requests_holds_them(manifest: JsonObject, rules: ResizeRules) -> None:
    """No trace of the resize is left, not even that its node has refused it."""
    pod = decode(manifest, Pod)

    assert effective_requests(with_least_requests(pod), rules) == least_requests(pod)


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(manifest=pods(), rules=st.sampled_from(RULES))
def test_a_pod_whose_status_repeats_its_spec_is_not_resized(
    manifest: JsonObject, rules: ResizeRules
) -> None:
    """The amounts of its spec are handed back as they are."""
    spec = manifest["spec"]

    def echo(container: JsonObject) -> JsonObject:
        resources = container["resources"]
        granted = {"allocatedResources": resources.get("requests", {})}
        return {"name": container["name"], "resources": resources, **granted}

    manifest["status"] = {
        "containerStatuses": [*map(echo, spec["containers"])][::-1],
        "initContainerStatuses": [*map(echo, spec["initContainers"])],
    }
    pod = decode(manifest, Pod)
    own = EffectiveAmounts(pod_requests(pod.spec), pod_limits(pod.spec), 0, 0)

    assert effective_amounts(pod, rules, own) is own
    assert effective_limits(pod, rules) == own.limits


def test_effective_limits_follow_the_status() -> None:
    """The greater of spec and in force; of an infeasible resize what is in force."""
    grown = {"name": "c", "resources": {"limits": {"cpu": "3"}}}
    spec = {"name": "c", "resources": {"limits": {"cpu": "1"}}}
    refused = {"name": "c", "resources": {"limits": {"cpu": "50"}}}
    made = [
        resized(spec, statuses=[grown]),
        resized(refused, statuses=[grown], conditions=pending("Infeasible")),
    ]
    assert [[effective_limits(pod, rules)["cpu"] for rules in RULES] for pod in made] == [
        [3000] * 3,
        [3000] * 3,
    ]


CLAIMS = ResizeRules(claims=True)


def with_claim(pod: Pod, mapping: str, per_container: str = "0") -> Pod:
    """Return the pod with CPUs by a claim that two containers reference."""
    claim = {
        "resourceClaimName": "c",
        "containers": ["a", "b"],
        "mapping": [{"name": "cpu", "quantity": mapping}],
        "overhead": [{"name": "cpu", "perContainer": per_container}],
    }
    manifest = to_manifest(pod)
    manifest["status"] = {**manifest["status"], "nodeAllocatableResourceClaimStatuses": [claim]}
    return decode(manifest, Pod)


@pytest.mark.parametrize(
    ("granted", "in_force", "whole", "reason", "effective"),
    [
        (None, None, {}, "", 1 + 4 + 2),
        (3, 3, {}, "", 3 + 4 + 2),
        (None, 8, {}, "", 8),  # what is in force has the claim's CPUs already
        (1, 1, {}, "Infeasible", 1 + 4 + 2),
        (
            1,
            1,
            {"allocatedResources": {"cpu": "9"}, "resources": {"requests": {"cpu": "8"}}},
            "",
            9,
        ),
    ],
)
def test_amounts_of_claims_count_once(
    granted: int | None, in_force: int | None, whole: JsonObject, reason: str, effective: int
) -> None:
    """The kubelet includes them in the whole pod's amounts, but not in amounts of containers."""
    bare = resized(
        container("a", 100 if reason else 1),
        statuses=[status("a", granted, in_force)],
        conditions=pending(reason) if reason else [],
        whole=whole,
    )

    assert effective_requests(with_claim(bare, "4", "1"), CLAIMS)["cpu"] == 1000 * effective
    without = effective_requests(with_claim(bare, "4", "1"), V1_37)
    assert without == effective_requests(bare, V1_37)


def test_pod_level_requests_contain_the_claims() -> None:
    """Claims are part of pod-level requests; limits of containers rise by the claims."""
    bare = resized(
        {"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}, statuses=[]
    )
    pod = with_claim(bare, "4")
    assert effective_limits(pod, CLAIMS) == {"cpu": 5000}

    own = {"requests": {"cpu": "6"}}
    whole = with_claim(resized(container("a", 1), statuses=[], resources=own), "4")
    assert effective_requests(whole, CLAIMS)["cpu"] == 6000
