"""A profile that breaks is left out of a review: it costs no pod its admission."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.manager.admission.requests import lookup, pod, priority_class, profile, request
from tests.unit.manager.admission.test_validation import quota

from koordinator.api.colocation import ClusterColocationProfile
from koordinator.cli.manager.process import reviewer
from koordinator.foundation.errors import Fault
from koordinator.manager.admission import pod_mutation, profiles
from koordinator.manager.admission.gates import DEFAULT_GATES, ManagerFeature
from koordinator.manager.admission.hooks import HookOptions, enabled_hooks
from koordinator.manager.admission.lookup import Denial
from koordinator.process.admission_reviews import Review, ReviewMetrics

EVIL = "example.com/evil"
TREE, PROFILE_TREE = "quota.scheduling.koordinator.sh/tree-id", "tree"
QUOTA_NAME = "quota.scheduling.koordinator.sh/name"


class Boom(Exception):  # noqa: N818 -- an unexpected error
    """Raised by a broken part."""


@dataclass
class Admission:
    """Hooks over what exists, and what broke in them."""

    objects: tuple[Any, ...]
    gates: frozenset[ManagerFeature] = DEFAULT_GATES | {ManagerFeature.RESERVATION_MUTATING}
    faults: list[Fault] = field(default_factory=list)

    def review(self, path: str, obj: Any) -> Any:
        """Return what is made of a new object.  Raises what its hook does."""
        hooks = enabled_hooks(HookOptions(gates=self.gates), self.faults.append)
        hook = next(each for each in hooks if each.path == path)
        assert hook.mutate is not None
        return hook.mutate(request(obj), lookup(*self.objects))

    @property
    def about(self) -> set[str]:
        return {str(fault) for fault in self.faults}


def selecting(name: str) -> Any:
    return profile(name, labels={name: "yes"}, selector={"matchLabels": {"app": "etl"}})


GOOD = tuple(map(selecting, ("a", "b", "z")))
EVIL_PROFILE = profile(
    "evil", labels={EVIL: "true"}, selector={"matchLabels": {"app": "etl"}}, probability=100
)
POD = pod(labels={"app": "etl"})
RESERVATION = {"metadata": {"name": "r"}, "spec": {"template": POD}}
REVIEWS = [("/mutate-pod", POD), ("/mutate-reservation", RESERVATION)]
MESSAGE = 'ClusterColocationProfile evil: internal error: review of "{}": Boom'


def breaks_over_evil(owner: Any, name: str) -> Callable[..., Any]:
    """Return a function that breaks if the evil profile, or what it made, is among what it gets."""
    own = getattr(owner, name)

    def broken(*args: Any, **more: Any) -> Any:
        if any(map(is_evil, args)):
            raise Boom
        return own(*args, **more)

    return broken


def is_evil(value: Any) -> bool:
    match value:
        case ClusterColocationProfile():
            return value.metadata.name == "evil"
        case dict():
            return EVIL in ((value.get("metadata") or {}).get("labels") or {})
        case _:
            return EVIL in getattr(value, "labels", {})


@pytest.mark.parametrize(
    "name", ["is_left_out", "relabelled", "_applied_one", "_percent", "_fits_namespace"]
)
@pytest.mark.parametrize(("path", "obj"), REVIEWS)
def test_a_profile_that_breaks_is_left_out_and_the_others_apply(
    name: str, path: str, obj: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error may occur while the profile is matched or applied."""
    expected = Admission(GOOD).review(path, obj)
    monkeypatch.setattr(profiles, name, breaks_over_evil(profiles, name))
    admission = Admission((*GOOD, EVIL_PROFILE))

    result = admission.review(path, obj)

    if (name, path) == ("_fits_namespace", "/mutate-reservation"):
        assert not admission.faults  # of a template no namespace is asked
        return
    assert result == expected
    assert admission.about == {MESSAGE.format(path)}


@pytest.mark.parametrize("name", ["translated", "with_extended_spec", "with_device_spec"])
def test_a_profile_whose_pod_breaks_a_later_rule_is_left_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other profiles and rules apply, also those that come after it."""
    batch = priority_class("koord-batch", 5000)
    colocates = profile("c", qosClass="BE", priorityClassName="koord-batch")
    asks = pod({"resources": {"requests": {"cpu": "1"}}}, labels={"app": "etl"})
    expected = Admission((batch, *GOOD, colocates)).review("/mutate-pod", asks)
    monkeypatch.setattr(pod_mutation, name, breaks_over_evil(pod_mutation, name))
    admission = Admission((batch, *GOOD, colocates, EVIL_PROFILE))

    assert admission.review("/mutate-pod", asks) == expected
    assert admission.about == {MESSAGE.format("/mutate-pod")}


def test_several_that_break_are_all_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failure is reported."""

    def broken(value: Any, *_: Any) -> Any:
        if value.metadata.name in {"a", "z"}:
            raise RecursionError
        return False

    expected = Admission((GOOD[1],)).review("/mutate-pod", POD)
    monkeypatch.setattr(profiles, "is_left_out", broken)
    admission = Admission(GOOD)

    assert admission.review("/mutate-pod", POD) == expected
    assert {fault.about for fault in admission.faults} == {
        "ClusterColocationProfile a",
        "ClusterColocationProfile z",
    }


def test_a_denial_is_no_fault() -> None:
    """A profile that can't be applied refuses the pod, as before."""
    admission = Admission((*GOOD, profile("wrong", priorityClassName="nowhere")))
    with pytest.raises(Denial, match="nowhere"):
        admission.review("/mutate-pod", POD)
    assert not admission.faults


def test_a_pod_that_breaks_without_any_profile_is_its_own_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No profile is blamed for it."""

    def broken(*_: Any) -> Any:
        raise Boom

    monkeypatch.setattr(pod_mutation, "with_device_spec", broken)
    admission = Admission(GOOD)
    with pytest.raises(Boom):
        admission.review("/mutate-pod", POD)
    assert not admission.faults


def test_a_quota_profile_that_breaks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one of the tree counts."""

    def of_tree(name: str) -> Any:
        return {
            "apiVersion": "quota.koordinator.sh/v1alpha1",
            "kind": "ElasticQuotaProfile",
            "metadata": {"name": name, "namespace": "default", "labels": {TREE: PROFILE_TREE}},
            "spec": {"quotaName": "q", "nodeSelector": {"matchLabels": {"pool": name}}},
        }

    used = quota("q")
    used["metadata"].setdefault("labels", {})[TREE] = PROFILE_TREE
    asks = pod(labels={QUOTA_NAME: "q"})
    gates = DEFAULT_GATES | {ManagerFeature.MULTI_QUOTA_TREE}
    expected = Admission((used, of_tree("z")), gates).review("/mutate-pod", asks)
    own = pod_mutation._requirements

    def broken(selector: Any) -> Any:
        if selector.match_labels == {"pool": "evil"}:
            raise Boom
        return own(selector)

    monkeypatch.setattr(pod_mutation, "_requirements", broken)
    admission = Admission((used, of_tree("evil"), of_tree("z")), gates)

    assert admission.review("/mutate-pod", asks) == expected
    assert "pool" in str(expected)
    assert admission.about == {
        'ElasticQuotaProfile default/evil: internal error: review of "/mutate-pod": Boom'
    }


def test_without_a_handler_it_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test without a fault handler fails on an unexpected error."""

    def broken(*_: Any) -> Any:
        raise Boom

    monkeypatch.setattr(profiles, "_percent", broken)
    hook = enabled_hooks(HookOptions(gates=DEFAULT_GATES))[0]
    assert hook.mutate is not None
    with pytest.raises(Boom):
        hook.mutate(request(POD), lookup(EVIL_PROFILE))


def test_every_review_is_counted_and_the_first_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The pod is admitted each time."""
    monkeypatch.setattr(profiles, "_percent", breaks_over_evil(profiles, "_percent"))
    registry = CollectorRegistry()
    hooks = enabled_hooks(HookOptions(gates=DEFAULT_GATES), ReviewMetrics(registry))
    hook = next(each for each in hooks if each.path == "/mutate-pod")
    answer_to = reviewer(hook, lookup(*GOOD, EVIL_PROFILE))  # type: ignore[arg-type]

    for _ in range(3):
        failing = Review(uid="u", operation="CREATE", namespace="default", name="p", object=POD)
        answer = answer_to(failing)
        assert answer.allowed
        assert answer.after is not None
        assert answer.after["metadata"]["labels"]["z"] == "yes"

    name = "koord_manager_webhook_internal_errors_total"
    labels = {"plugin_name": "/mutate-pod", "error": "Boom"}
    assert registry.get_sample_value(name, labels) == 3
    assert len([r for r in caplog.records if r.message == "internal error"]) == 1
