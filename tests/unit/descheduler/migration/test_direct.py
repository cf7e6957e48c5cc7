"""Jobs that evict their pod without keeping a place for the next one."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.descheduler.migration.world import MigrationWorld, job, replicas
from tests.worlds import made, node

from koordinator.api.annotations.descheduling import SOFT_EVICTION
from koordinator.api.event import Event
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.descheduler.contract import EvictOptions

NODES = [node("n1"), node("n2"), node("n3")]
PRIORITIES = (9500, 5600, 7000, 5000, 9000)
WEB = replicas("web", on=["n1", "n2", "n3", "n1"])


def world(*objects: KubeObject, args: Any = None, **configuration: Any) -> MigrationWorld:
    return MigrationWorld(
        *NODES, *objects, args={"defaultJobMode": "EvictDirectly", **(args or {})}, **configuration
    )


def budget(min_available: int) -> KubeObject:
    """Return a budget for all pods."""
    spec = {"minAvailable": min_available, "selector": {}}
    metadata = {"namespace": "default"}
    return made("PodDisruptionBudget", "all", "policy/v1", metadata=metadata, spec=spec)


def test_a_job_made_by_hand_evicts_its_pod_and_succeeds() -> None:
    """From the filter to the end."""
    here = world(*WEB)
    here.cluster.create(job("move", "web-0"))

    here.settle()

    done = here.job("move")
    assert (done.status.phase, done.status.status) == ("Succeeded", "Complete")
    assert done.status.message == 'Pod "default/web-0" has been evicted'
    assert here.pods() == {"web-1", "web-2", "web-3"}
    told = {(e.regarding.name, e.type, e.reason, e.note) for e in here.cluster.list(Event).items}
    assert told == {
        ("move", "Normal", "Evicting", done_evicting("NotSet")),
        ("move", "Normal", "EvictComplete", 'Pod "default/web-0" has been evicted'),
        ("web-0", "Normal", "Descheduled", 'Pod evicted from node "n1" by the reason "NotSet"'),
    }


def done_evicting(reason: str) -> str:
    return f'Pod "default/web-0" evicted from node "n1" by the reason "{reason}"'


def test_a_plugin_that_evicts_makes_a_job_that_tells_why() -> None:
    """Reason, plugin and profile stand on the job."""
    here = world(*WEB)
    pod = here.cluster.get(Pod, "web-0", "default")
    options = EvictOptions(plugin="LowNodeLoad", profile="koord-descheduler", reason="too hot")

    assert here.descheduler.profiles[0].evict.evict(pod, options)

    (made_for,) = here.cluster.list(PodMigrationJob).items
    assert made_for.metadata.annotations == {
        "koordinator.sh/evict-reason": "too hot",
        "koordinator.sh/evict-trigger": "LowNodeLoad",
        "koordinator.sh/job-created-by": "koord-descheduler",
    }
    assert (made_for.spec.pod_ref.uid, str(made_for.spec.ttl)) == (pod.metadata.uid, "5m0s")
    assert not here.descheduler.profiles[0].evict.evict(pod, options), "there is a job already"
    here.settle()
    assert here.pods() == {"web-1", "web-2", "web-3"}


def test_a_budget_holds_a_job_up_until_it_allows_the_eviction() -> None:
    """A refusal is told and tried again; it is no failure."""
    here = world(*WEB, budget(4))
    here.cluster.create(job("move", "web-0"))
    here.advance(20)
    held = here.job("move")
    assert held.status.phase == "Running"
    assert not held.status.conditions
    warned = [e.note for e in here.cluster.list(Event).items if e.type == "Warning"]
    assert len(warned) == 1
    assert warned[0].startswith('Failed evict Pod "default/web-0" caused by ')
    assert "disruption budget" in warned[0]

    patch = {"spec": {"minAvailable": 3}}
    here.cluster.patch(type(budget(0)), "all", "default", patch)
    here.advance(20)

    assert here.job("move").status.phase == "Succeeded"


def test_a_budget_that_never_allows_it_ends_the_job_by_its_ttl() -> None:
    """The pod stays."""
    here = world(*WEB, budget(4))
    here.cluster.create(job("move", "web-0"))
    here.advance(300)
    assert here.job("move").status.reason == "Timeout"
    assert "web-0" in here.pods()


def test_a_refused_eviction_is_tried_again_less_and_less_often() -> None:
    """The API server is not asked more than every quarter of a minute in the end."""
    here = world(*WEB, budget(4))
    for name in ("web-0", "web-1"):
        here.cluster.create(job(f"move-{name}", name))
    here.advance(60)
    begin_s, rounds = here.clock.now_s(), 0
    while (wakeup_s := here.descheduler.next_wakeup_s()) is not None and wakeup_s < begin_s + 120:
        here.clock.advance_to(wakeup_s)
        here.settle()
        rounds += 1
    assert 2 * 120 / 15 <= rounds <= 4 * 120 / 15


def test_a_deletion_asks_no_budget() -> None:
    """By the policy of the configuration or of the job; that of the pod goes before both."""
    here = world(*WEB, budget(4), args={"evictionPolicy": "Delete"})
    here.cluster.create(job("move", "web-0"))
    here.settle()
    assert "web-0" not in here.pods()

    labels = {"koordinator.sh/evict-policy": "Delete"}
    wish = replace(job("move", "web-0"), metadata=replace(job("move", "").metadata, labels=labels))
    here = world(*WEB, budget(4))
    here.cluster.create(wish)
    here.settle()
    assert "web-0" not in here.pods()

    here = world(*WEB, budget(4))
    soft = {"metadata": {"labels": {"koordinator.sh/evict-policy": "SoftEviction"}}}
    here.cluster.patch(Pod, "web-0", "default", soft)
    here.cluster.create(wish)
    here.settle()
    assert "web-0" in here.pods()


def test_a_soft_eviction_asks_somebody_and_waits_until_the_pod_is_gone() -> None:
    """Who wanted it and why stands on the pod."""
    here = world(*WEB, args={"evictionPolicy": "SoftEviction"})
    pod = here.cluster.get(Pod, "web-0", "default")
    options = EvictOptions(plugin="LowNodeLoad", profile="koord-descheduler", reason="too hot")
    here.descheduler.profiles[0].evict.evict(pod, options)
    here.settle()
    asked = SOFT_EVICTION.read(here.cluster.get(Pod, "web-0", "default").metadata)
    assert asked is not None
    assert (asked.initiator, asked.reason) == ("LowNodeLoad", "too hot")
    (waiting,) = here.cluster.list(PodMigrationJob).items
    assert (waiting.status.phase, waiting.status.reason) == ("Running", "Evicting")

    here.cluster.delete(Pod, "web-0", "default")
    here.settle()

    (done,) = here.cluster.list(PodMigrationJob).items
    assert done.status.phase == "Succeeded"


@pytest.mark.parametrize(
    ("pod_name", "changes", "reason", "message"),
    [
        ("web-9", {}, "MissingPod", 'Abort job caused by missing Pod "default/web-9"'),
        ("", {}, "InvalidPodRef", "Abort job caused by invalid PodRef"),
        ("web-0", {"uid": "old"}, "MissingPod", 'Abort job caused by missing Pod "default/web-0"'),
    ],
)
def test_a_job_about_no_pod_fails(pod_name: str, changes: Any, reason: str, message: str) -> None:
    """Also one about a pod whose name another one has by now: that one is not moved."""
    here = world(*WEB)
    new = job("move", pod_name)
    new = replace(new, spec=replace(new.spec, pod_ref=replace(new.spec.pod_ref, **changes)))
    here.cluster.create(new)
    here.settle()
    failed = here.job("move").status
    assert (failed.phase, failed.reason, failed.message) == ("Failed", reason, message)
    assert len(here.pods()) == 4


def test_a_paused_job_does_nothing_until_it_is_resumed() -> None:
    """Nor does it count against the limits."""
    here = world(*WEB)
    here.cluster.create(job("move", "web-0", paused=True))
    here.advance(20)
    assert here.job("move").status.phase == ""

    here.cluster.patch(PodMigrationJob, "move", "", {"spec": {"paused": False}})
    here.advance(20)

    assert here.job("move").status.phase == "Succeeded"


def test_in_a_dry_run_nothing_is_evicted() -> None:
    """Neither by a plugin nor by jobs that are there."""
    here = world(*WEB, dryRun=True)
    here.cluster.create(job("move", "web-0"))
    here.advance(20)
    assert len(here.pods()) == 4
    assert here.job("move").status.phase == ""


def test_jobs_of_one_workload_go_one_after_the_other() -> None:
    """By the object limiter: 2 of 4 pods within 5 minutes, one at a time."""
    here = world(*WEB, args={"maxMigratingPerWorkload": 2, "maxUnavailablePerWorkload": 3})
    for name in ("web-0", "web-1"):
        here.cluster.create(job(f"move-{name}", name, ttl="10m"))
    here.advance(149)
    assert len(here.pods()) == 3
    here.advance(2)
    assert len(here.pods()) == 2


def test_the_first_pass_lets_the_cheapest_pods_of_a_node_go() -> None:
    """The example of the specification: five jobs on one node, two at a time."""
    pods = replicas("web", on=["n1"] * 5)
    priorities = dict(zip(("web-0", "web-1", "web-2", "web-3", "web-4"), PRIORITIES, strict=True))
    ranked = [
        replace(each, spec=replace(each.spec, priority=priorities[each.metadata.name]))
        if isinstance(each, Pod)
        else each
        for each in pods
    ]
    gates = ["MaxMigratingPerWorkload", "MaxUnavailablePerWorkload"]
    here = world(*ranked, budget(5), args={"skipEvictionGates": gates})
    for name in priorities:
        here.cluster.create(job(f"move-{name}", name))
    here.settle()
    assert here.passed() == {"move-web-3", "move-web-1"}

    here.cluster.delete(PodMigrationJob, "move-web-3")
    here.advance(1)

    assert here.passed() == {"move-web-1", "move-web-2"}


def test_forbidden_pods_fail_their_jobs_and_limited_ones_wait() -> None:
    """What lasts ends a job, what passes delays it."""
    here = world(*WEB, args={"labelSelector": {"matchLabels": {"app": "db"}}})
    here.cluster.create(job("move", "web-0"))
    here.settle()
    failed = here.job("move").status
    assert (failed.phase, failed.reason) == ("Failed", "ForbiddenMigratePod")
    assert failed.message == (
        'Pod "default/web-0" is forbidden to migrate because it does not meet the requirements'
    )


def test_a_second_descheduler_goes_on_where_the_first_one_stopped() -> None:
    """A job that is under way is not forgotten."""
    here = world(*WEB, budget(4))
    here.cluster.create(job("move", "web-0"))
    here.advance(10)
    here.restart()
    here.cluster.delete(type(budget(0)), "all", "default")
    here.advance(20)
    assert here.job("move").status.phase == "Succeeded"
