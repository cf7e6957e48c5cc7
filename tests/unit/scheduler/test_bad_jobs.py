"""Invalid gangs and quotas that no admission has seen: they are reported, not guessed."""

from typing import Any

import pytest
from msgspec import structs
from tests.unit.domain.quota.quotas import PREFIX, quota
from tests.unit.scheduler.plugins.test_elastic_quota import team
from tests.unit.scheduler.test_gangs import GANG, condition, group, member, members, placed
from tests.unit.scheduler.test_gangs_in_quotas import BOTH
from tests.unit.scheduler.test_job_queues import LABEL
from tests.worlds import START_S, embedded, node, pod

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.event import Event
from koordinator.api.pod_groups import PodGroup
from koordinator.scheduler.features.gangs.reports import GRACE_PERIOD_S
from koordinator.simulator import Embedded

GROUP, TEAM = "PodGroup default/g", "ElasticQuota tenants/team"


def world(*objects: Any) -> Embedded:
    return embedded(*objects, config=BOTH)


def warnings(one: Embedded) -> dict[str, str]:
    """Return the notes of events with the reason Ignored, by object."""
    events = (e for e in one.cluster.list(Event).items if e.reason.startswith("Invalid"))
    return {
        f"{e.regarding.kind} {e.regarding.namespace}/{e.regarding.name}": e.note for e in events
    }


def validity(one: Embedded, kind: Any, key: str) -> tuple[str, str, str] | None:
    """Return status, reason and message of the condition about validity."""
    namespace, _, name = key.rpartition("/")
    conditions = one.cluster.get(kind, name, namespace).status.conditions
    assert [c.type for c in conditions] in ([], ["Valid"])
    return (
        (conditions[0].status, conditions[0].reason, conditions[0].message) if conditions else None
    )


def later(one: Embedded, seconds: float = 2.0) -> None:
    one.clock.advance_to(one.clock.now_s() + seconds)
    one.run_to_fixed_point()


# -- gangs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("least", "annotations", "text"),
    [
        (0, {}, "spec.minMember: must be at least 1, got 0"),
        (3, {"total_number": "2"}, "total-number: must be at least the minimum number, 3, got 2"),
        (1, {"total_number": "x"}, "total-number: must be an integer, got 'x'"),
        (1, {"mode": "Loose"}, "mode: must be Strict or NonStrict, got 'Loose'"),
        (1, {"match_policy": "never"}, "match-policy: must be one of"),
        (1, {"groups": "g,h"}, "groups]: not valid JSON"),
    ],
)
def test_invalid_pod_group_has_an_event(least: int, annotations: dict[str, str], text: str) -> None:
    """The event lists the ignored settings."""
    accepted = {k: v for k, v in annotations.items() if k != "groups"}
    made = group("g", least, **accepted)
    one = world(node("a"))
    one.load([made])
    if "groups" in annotations:
        patch = {"metadata": {"annotations": {GANG + "groups": annotations["groups"]}}}
        one.cluster.patch(type(made), "g", "default", patch)

    one.run_to_fixed_point()

    assert text in warnings(one)[GROUP]
    status, reason, message = validity(one, PodGroup, "default/g") or ("", "", "")
    assert (status, reason, text in message) == ("False", "InvalidPodGroup", True)


def test_validity_condition_follows_the_pod_group() -> None:
    """The condition exists after the first problem, and turns True when that is fixed."""
    one = world(node("a"), group("g", 0), group("fine", 1))
    one.run_to_fixed_point()
    assert (validity(one, PodGroup, "default/g") or ("",))[0] == "False"
    assert validity(one, PodGroup, "default/fine") is None

    one.cluster.patch(PodGroup, "g", "default", {"spec": {"minMember": 1}})
    one.load(members("g", 1))
    one.run_to_fixed_point()

    assert validity(one, PodGroup, "default/g") == ("True", "Valid", "")
    assert one.cluster.get(PodGroup, "g", "default").status.phase


def test_restarted_scheduler_clears_a_fixed_problem() -> None:
    """The condition is read from the object."""
    before = world(node("a"), group("g", 0))
    before.run_to_fixed_point()
    stored = before.cluster.get(PodGroup, "g", "default")
    spec = structs.replace(stored.spec, min_member=1)

    one = world(node("a"), structs.replace(stored, spec=spec))
    one.run_to_fixed_point()

    assert validity(one, PodGroup, "default/g") == ("True", "Valid", "")


def test_problem_of_a_gang_without_object_is_reported_on_a_pod() -> None:
    """There is no other object to report on."""
    annotations = {GANG + "name": "g", GANG + "min-available": "1", GANG + "mode": "Loose"}
    one = world(node("a"), pod("p", 1, annotations=annotations))

    one.run_to_fixed_point()

    assert "mode: must be Strict or NonStrict, got 'Loose'" in warnings(one)["Pod default/p"]
    assert set(placed(one)) == {"p"}


def test_pod_with_two_gangs_gets_a_warning() -> None:
    """The warning names the gang that counts, even if the pod can run."""
    one = world(node("a"), group("g", 1), member("p", "g", annotations={GANG + "name": "other"}))

    one.run_to_fixed_point()

    assert warnings(one)["Pod default/p"] == (
        "label pod-group.scheduling.sigs.k8s.io says 'g' and counts; "
        "annotation gang.scheduling.koordinator.sh/name says 'other'"
    )


def test_group_with_a_missing_gang_is_reported() -> None:
    """Pods are reported immediately, the PodGroup after a grace period."""
    one = world(node("a"), group("g", 1, groups=["g", "h"]), *members("g", 1))
    one.run_to_fixed_point()
    assert "gang default/h is not known" in condition(one, "g-0")[1]
    assert warnings(one) == {}
    assert one.scheduler.next_wakeup_s() == START_S + GRACE_PERIOD_S or (
        one.scheduler.next_wakeup_s() or 0
    ) < (START_S + GRACE_PERIOD_S)

    later(one, GRACE_PERIOD_S)

    assert "no gang named default/h exists" in warnings(one)[GROUP]
    later(one)
    assert (validity(one, PodGroup, "default/g") or ("",))[0] == "False"
    one.load([group("h", 1, groups=["g", "h"]), *members("h", 1)])
    one.run_to_fixed_point()
    assert len(placed(one)) == 2
    assert (validity(one, PodGroup, "default/g") or ("",))[0] == "True"


# -- quotas ----------------------------------------------------------------------------------


def with_pod(name: str, quota_name: str, cpu: int = 1) -> Any:
    return pod(name, cpu, labels={LABEL: quota_name})


@pytest.mark.parametrize(
    ("quotas", "about", "text"),
    [
        ([team("team", 1, 2)], TEAM, "spec.min[cpu]: must be at most 1, as in spec.max, got '2'"),
        ([team("team", -1)], TEAM, "spec.max[cpu]: must be an amount of at least 0, got '-1'"),
        ([quota("team", least={"cpu": 1})], TEAM, "spec.min[cpu]: must be set in spec.max"),
        (
            [team("team", 9, 2, is_parent=True), team("a", 9, 2, "team"), team("b", 9, 1, "team")],
            TEAM,
            "spec.min[cpu]: must be at least the sum of its children's minimums, 3, got '2'",
        ),
        (
            [team("team", 9, parent="nobody")],
            TEAM,
            "must be the name of an existing quota, got 'nobody'",
        ),
        (
            [team("leaf", 9), team("team", 9, parent="leaf")],
            TEAM,
            "must be a parent quota, got 'leaf'",
        ),
        (
            [team("team", 9, annotations={PREFIX + "queue-policy": "lifo"})],
            TEAM,
            "queue-policy]: must be one of none, strict, backfill, best-effort, got 'lifo'",
        ),
        (
            [team("team", 9, annotations={PREFIX + "namespaces": "ns"})],
            TEAM,
            "namespaces]: not valid JSON",
        ),
    ],
)
def test_invalid_quota_has_an_event(quotas: list[ElasticQuota], about: str, text: str) -> None:
    """Admission would have rejected it; pods are still scheduled."""
    one = world(node("a"), *quotas, pod("other", 1))
    one.run_to_fixed_point()
    later(one)

    assert text in warnings(one)[about]
    status, reason, message = validity(one, ElasticQuota, about.split()[1]) or ("", "", "")
    assert (status, reason, text in message) == ("False", "InvalidElasticQuota", True)
    assert set(placed(one)) == {"other"}


def test_fixed_quota_is_not_reported_again() -> None:
    """If it becomes invalid again, it is reported again."""
    one = world(node("a"), team("team", 1, 2))
    one.run_to_fixed_point()
    later(one)
    for least in ("1", "3"):
        one.cluster.patch(ElasticQuota, "team", "tenants", {"spec": {"min": {"cpu": least}}})
        one.run_to_fixed_point()
        later(one)

    notes = [e.note for e in one.cluster.list(Event).items if e.reason.startswith("Invalid")]
    assert [note.split("; ")[0].rpartition(" ")[2] for note in notes] == ["'2'", "'3'"]
    assert (validity(one, ElasticQuota, "tenants/team") or ("",))[0] == "False"

    one.cluster.patch(ElasticQuota, "team", "tenants", {"spec": {"min": {"cpu": "1"}}})
    one.load([with_pod("x", "team")])
    one.run_to_fixed_point()
    later(one)
    assert validity(one, ElasticQuota, "tenants/team") == ("True", "Valid", "")
    assert one.cluster.get(ElasticQuota, "team", "tenants").status.used["cpu"].value() == 1


def test_quota_deleted_with_children_and_pods_is_reported() -> None:
    """Pods move to the default quota, children lose their parent; the event has the numbers."""
    one = world(
        node("a"),
        team("dept", 9, 3, is_parent=True),
        team("team", 9, 1, "dept"),
        with_pod("x", "team"),
        with_pod("y", "dept"),
    )
    one.run_to_fixed_point()

    one.cluster.delete(ElasticQuota, "dept", "tenants")
    one.run_to_fixed_point()
    later(one)

    messages = warnings(one)
    assert messages["ElasticQuota tenants/dept"] == (
        "deleted while it had 1 child quotas, which keep their minimum until it is recreated and "
        "1 pods, which now count in other quotas"
    )
    assert "must be the name of an existing quota, got 'dept'" in messages[TEAM]


def test_quota_moved_to_a_full_parent_is_reported() -> None:
    """The usage of the moved quota stays."""
    one = world(
        node("a"),
        team("large", 9, is_parent=True),
        team("small", 1, is_parent=True),
        team("team", 9, 3, "large"),
        with_pod("x", "team", 3),
    )
    one.run_to_fixed_point()
    assert set(placed(one)) == {"x"}

    labels = {PREFIX + "parent": "small"}
    one.cluster.patch(ElasticQuota, "team", "tenants", {"metadata": {"labels": labels}})
    one.run_to_fixed_point()
    later(one)

    notes = [e.note for e in one.cluster.list(Event).items if e.reason.startswith("Invalid")]
    assert "moved to parent small, which has no room for its usage: cpu:3" in notes
    one.state.validate()
