"""Jobs that evict their pod without keeping a place for the next one."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.descheduler.migration.world import MigrationWorld, job, replicas
from tests.worlds import made, node

from koordinator.api.annotations.scheduling import SOFT_EVICTION
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


def test_direct_job_of_a_user_evicts_its_pod_and_succeeds() -> None:
    """The job passes all states of EvictDirectly."""
    here = world(*WEB)
    here.cluster.create(job("move", "web-0"))

    here.settle()

    done = here.job("move")
    assert (done.status.phase, done.status.status) == ("Succeeded", "Complete")
    assert done.status.message == 'Pod "default/web-0" has been evicted'
    assert here.pods() == {"web-1", "web-2", "web-3"}
    events = {(e.regarding.name, e.type, e.reason, e.note) for e in here.cluster.list(Event).items}
    assert events == {
        ("move", "Normal", "Evicting", done_evicting("NotSet")),
        ("move", "Normal", "EvictComplete", 'Pod "default/web-0" has been evicted'),
        ("web-0", "Normal", "Descheduled", 'Pod evicted from node "n1" by the reason "NotSet"'),
    }


def done_evicting(reason: str) -> str:
    return f'Pod "default/web-0" evicted from node "n1" by the reason "{reason}"'


def test_eviction_of_a_plugin_creates_a_job_with_its_reason() -> None:
    """The job has annotations for reason, plugin and profile."""
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


def test_job_waits_for_the_disruption_budget() -> None:
    """A refusal is reported and retried; it does not fail the job."""
    here = world(*WEB, budget(4))
    here.cluster.create(job("move", "web-0"))
    here.advance(20)
    waiting_job = here.job("move")
    assert waiting_job.status.phase == "Running"
    assert not waiting_job.status.conditions
    warned = [e.note for e in here.cluster.list(Event).items if e.type == "Warning"]
    assert len(warned) == 1
    assert warned[0].startswith('Failed evict Pod "default/web-0" caused by ')
    assert "disruption budget" in warned[0]

    patch = {"spec": {"minAvailable": 3}}
    here.cluster.patch(type(budget(0)), "all", "default", patch)
    here.advance(20)

    assert here.job("move").status.phase == "Succeeded"


def test_job_fails_by_ttl_if_the_budget_never_allows_the_eviction() -> None:
    """The pod is not evicted."""
    here = world(*WEB, budget(4))
    here.cluster.create(job("move", "web-0"))
    here.advance(300)
    assert here.job("move").status.reason == "Timeout"
    assert "web-0" in here.pods()


def test_refused_eviction_is_retried_with_backoff() -> None:
    """The longest interval is 15 seconds."""
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


def test_policy_delete_ignores_disruption_budgets() -> None:
    """The policy is in the configuration or the job; a label of the pod overrides both."""
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


def test_soft_eviction_annotates_the_pod_and_waits_for_its_deletion() -> None:
    """The annotation has the initiator and the reason."""
    here = world(*WEB, args={"evictionPolicy": "SoftEviction"})
    pod = here.cluster.get(Pod, "web-0", "default")
    options = EvictOptions(plugin="LowNodeLoad", profile="koord-descheduler", reason="too hot")
    here.descheduler.profiles[0].evict.evict(pod, options)
    here.settle()
    soft_eviction = SOFT_EVICTION.read(here.cluster.get(Pod, "web-0", "default").metadata)
    assert soft_eviction is not None
    assert (soft_eviction.initiator, soft_eviction.reason) == ("LowNodeLoad", "too hot")
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
def test_job_without_its_pod_fails(pod_name: str, changes: Any, reason: str, message: str) -> None:
    """A pod of the same name with another uid is not moved."""
    here = world(*WEB)
    new = job("move", pod_name)
    new = replace(new, spec=replace(new.spec, pod_ref=replace(new.spec.pod_ref, **changes)))
    here.cluster.create(new)
    here.settle()
    failed = here.job("move").status
    assert (failed.phase, failed.reason, failed.message) == ("Failed", reason, message)
    assert len(here.pods()) == 4


def test_paused_job_waits_until_it_is_resumed() -> None:
    """A paused job does not count against the limits."""
    here = world(*WEB)
    here.cluster.create(job("move", "web-0", paused=True))
    here.advance(20)
    assert here.job("move").status.phase == ""

    here.cluster.patch(PodMigrationJob, "move", "", {"spec": {"paused": False}})
    here.advance(20)

    assert here.job("move").status.phase == "Succeeded"


def test_dry_run_evicts_nothing() -> None:
    """Plugins and existing jobs evict nothing."""
    here = world(*WEB, dryRun=True)
    here.cluster.create(job("move", "web-0"))
    here.advance(20)
    assert len(here.pods()) == 4
    assert here.job("move").status.phase == ""


def test_object_limiter_spaces_the_jobs_of_a_workload() -> None:
    """By the object limiter: 2 of 4 pods within 5 minutes, one at a time."""
    here = world(*WEB, args={"maxMigratingPerWorkload": 2, "maxUnavailablePerWorkload": 3})
    for name in ("web-0", "web-1"):
        here.cluster.create(job(f"move-{name}", name, ttl="10m"))
    here.advance(149)
    assert len(here.pods()) == 3
    here.advance(2)
    assert len(here.pods()) == 2


def test_arbitration_admits_the_cheapest_pods_of_a_node_first() -> None:
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


def test_lasting_refusal_fails_a_job_and_passing_refusal_delays_it() -> None:
    """Permanent refusals end a job, temporary ones delay it."""
    here = world(*WEB, args={"labelSelector": {"matchLabels": {"app": "db"}}})
    here.cluster.create(job("move", "web-0"))
    here.settle()
    failed = here.job("move").status
    assert (failed.phase, failed.reason) == ("Failed", "ForbiddenMigratePod")
    assert failed.message == (
        'Pod "default/web-0" is forbidden to migrate because it does not meet the requirements'
    )


def test_new_process_continues_the_jobs_of_the_last_one() -> None:
    """A job that is under way is not forgotten."""
    here = world(*WEB, budget(4))
    here.cluster.create(job("move", "web-0"))
    here.advance(10)
    here.restart()
    here.cluster.delete(type(budget(0)), "all", "default")
    here.advance(20)
    assert here.job("move").status.phase == "Succeeded"
