"""Terms of gangs in every spelling, and the progress of their PodGroups."""

import datetime as dt
from typing import Any

import pytest
from msgspec.structs import replace
from tests.worlds import made, pod

from koordinator.api.annotations.gang import GangMode
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod_groups import PodGroup
from koordinator.domain.gangs import (
    GangCache,
    GangDefaults,
    contradictions,
    gang_id,
    gang_summaries,
    gang_texts_of,
    status_of,
    terms_of_object,
    terms_of_texts,
)

GANG = "gang.scheduling.koordinator.sh/"
LABEL = "pod-group.scheduling.sigs.k8s.io"
DEFAULTS = GangDefaults(600.0, "once-satisfied")
NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)


def pod_group(least: int = 2, timeout_s: int | None = None, **annotations: str) -> PodGroup:
    entries = {f"{GANG}{key.replace('_', '-')}": text for key, text in annotations.items()}
    spec: dict[str, Any] = {"minMember": least}
    if timeout_s is not None:
        spec["scheduleTimeoutSeconds"] = timeout_s
    obj = made(
        "PodGroup",
        "g",
        "scheduling.sigs.k8s.io/v1alpha1",
        metadata={"namespace": "default", "annotations": entries},
        spec=spec,
    )
    assert isinstance(obj, PodGroup)
    return obj


def test_the_label_of_a_pod_group_goes_before_other_names() -> None:
    """Label of the CRD, then the lightweight label, then the annotation."""
    names = {f"{LABEL}/name": "second"}
    own = {f"{GANG}name": "third"}

    assert gang_id(pod("p", labels=names | {LABEL: "first"}, annotations=own).metadata) == (
        "default/first"
    )
    assert gang_id(pod("p", labels=names, annotations=own).metadata) == "default/second"
    assert gang_id(pod("p", annotations=own).metadata) == "default/third"
    assert gang_id(pod("p").metadata) == ""


def test_contradicting_names_are_complained_about() -> None:
    """The warning names the spelling that counts."""
    both = pod("p", labels={LABEL: "a"}, annotations={f"{GANG}name": "b"})

    (text,) = contradictions(both)

    assert text == f"label {LABEL} says 'a' and counts; annotation {GANG}name says 'b'"


def test_annotations_carry_all_settings() -> None:
    """Mode, policy, waiting time, total and group of a gang without object."""
    settings = {
        "name": "g",
        "min-available": "2",
        "total-number": "4",
        "mode": "NonStrict",
        "match-policy": "only-waiting",
        "waiting-time": "90s",
        "groups": '["default/h", "default/g"]',
    }
    annotations = {GANG + key: text for key, text in settings.items()}
    texts = gang_texts_of(ObjectMeta(annotations=annotations))
    terms = terms_of_texts("default/g", texts, DEFAULTS)

    assert terms is not None
    assert (terms.min_member, terms.total, terms.wait_s) == (2, 4, 90.0)
    assert (terms.mode, terms.match_policy) == (GangMode.NON_STRICT, "only-waiting")
    assert terms.group_id == "default/g,default/h"
    assert terms.warnings == ()


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"least": 0}, "spec.minMember: must be at least 1, got 0"),
        ({"timeout_s": 0}, "spec.scheduleTimeoutSeconds: must be at least 1, got 0"),
        ({"total_number": "1"}, "must be at least the minimum number, 2, got 1"),
        ({"total_number": "x"}, "must be an integer, got 'x'"),
        ({"mode": "strict"}, "must be Strict or NonStrict, got 'strict'"),
        ({"match_policy": "all"}, "must be one of only-waiting, waiting-and-running"),
        ({"groups": '["default/h"]'}, "the gang itself, default/g, is not named"),
        ({"groups": "h"}, "groups"),
    ],
)
def test_warnings_name_invalid_fields_of_a_pod_group(given: dict[str, Any], part: str) -> None:
    """The scheduler uses the defaults instead, and the user gets the warnings as events."""
    warnings = terms_of_object(pod_group(**given), DEFAULTS).warnings

    assert part in "; ".join(map(str, warnings))


def test_a_sound_pod_group_is_accepted() -> None:
    """With the timeout in place of the default."""
    sound = pod_group(timeout_s=30, groups='["default/g", "other/h"]')

    terms = terms_of_object(sound, DEFAULTS)

    assert not terms.warnings
    assert terms.wait_s == 30.0


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ([], "Pending"),
        (["Pending", "Running"], "Running"),
        (["Running", "Failed"], "Failed"),
        (["Succeeded", "Succeeded"], "Finished"),
        (["Pending", "Pending"], "Scheduled"),
        (["Running"], "Scheduling"),
    ],
)
def test_the_phase_follows_the_members(phases: list[str], expected: str) -> None:
    """Of two that are needed; a member on a node counts as scheduled."""
    cache, obj = GangCache(DEFAULTS), pod_group()
    obj = replace(obj, status=replace(obj.status, phase="PreScheduling"))
    cache.put_group(obj)
    for index, phase in enumerate(phases):
        cache.put_pod(pod(f"p{index}", on="n", labels={LABEL: "g"}, phase=phase))
    if phases == ["Pending", "Running"]:
        cache.put_pod(pod("p0", on="n", labels={LABEL: "g"}, phase="Running"))

    assert status_of(obj, cache.gangs["default/g"], NOW).phase == expected


def test_a_pod_that_changes_its_gang_leaves_the_old_one() -> None:
    """Labels may change while a pod waits."""
    cache = GangCache(DEFAULTS)
    cache.put_pod(pod("p", labels={LABEL: "a"}))

    cache.put_pod(pod("p", labels={LABEL: "b"}))

    assert list(cache.gangs) == ["default/b"]
    cache.validate()


def test_only_one_member_of_a_whole_gang_enters_the_queue() -> None:
    """The others are fetched when it is its turn."""
    cache = GangCache(DEFAULTS)
    cache.put_group(pod_group())
    first, second = (pod(name, labels={LABEL: "g"}) for name in "ab")
    cache.put_pod(first)
    cache.put_pod(second)

    assert cache.why_gated(second) == ""
    assert "is represented in the queue by pod default/b" in cache.why_gated(first)
    assert list(cache.attempt(second).members) == ["default/a", "default/b"]


def test_a_summary_has_the_reason_why_a_gang_waits() -> None:
    """From manifests alone."""
    (one,) = gang_summaries([pod_group(least=3), pod("p", labels={LABEL: "g"})], DEFAULTS)

    assert (one.min_member, one.present, one.bound) == (3, 1, 0)
    assert one.why == "gang default/g needs 3 members; there were 1 when this was written"
    assert [member.pod for member in one.members] == ["default/p"]
