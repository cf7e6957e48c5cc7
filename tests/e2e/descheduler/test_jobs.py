"""PodMigrationJobs on a real API server, with a scheduler and the controllers of Kubernetes."""

import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.descheduler.conftest import DESCHEDULER, REPLICAS, Mover
from tests.e2e.descheduler_process import DeschedulerProcess
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.session.manifests import disruption_budget
from tests.e2e.waiting import eventually

KILLS = 6
LONGEST_LIFE_S = 1.2
_OVER = {"Succeeded", "Failed"}


@pytest.fixture
def descheduler(
    controlplane: ControlPlane, request: pytest.FixtureRequest
) -> Iterator[DeschedulerProcess]:
    """Not started; what it logged is shown, and no fault is in it."""
    made = DeschedulerProcess(controlplane, DESCHEDULER, name=f"koord-{request.node.name[:20]}")
    yield made
    made.kill()
    sys.stdout.write(made.log.read_text()[-20_000:])
    assert "Traceback" not in made.log.read_text()


def test_a_job_by_hand_moves_a_pod_to_a_place_that_the_scheduler_has_reserved(
    descheduler: DeschedulerProcess, mover: Mover
) -> None:
    """The replica is replaced on another node, and kubectl shows it in the job."""
    descheduler.start()
    old, place = next(iter(mover.pods().items()))

    mover.move("by-hand", old)
    eventually(lambda: mover.phase("by-hand") in _OVER)

    status = mover.status("by-hand")
    assert (status["phase"], status["status"]) == ("Succeeded", "Complete"), status
    assert status["nodeName"] != place
    assert mover.pods()[status["podRef"]["name"]] == status["nodeName"]
    assert old not in mover.pods()
    assert len(mover.pods()) == REPLICAS
    shown = mover.kubectl("get", "pmj", "by-hand", "--no-headers").split()
    assert shown[:3] == ["by-hand", "Succeeded", "Complete"]
    reasons = {it["reason"] for it in mover.events_of(old)}
    assert "Descheduled" in reasons
    labels = {"strategy": "", "namespace": mover.namespace, "node": place, "result": "success"}
    assert evicted(descheduler, labels) == 1.0


def test_a_disruption_budget_holds_a_job_up_until_it_ends(
    descheduler: DeschedulerProcess, mover: Mover
) -> None:
    """The eviction is refused with 429 until the ttl is over, or until the budget allows it."""
    mover.apply(disruption_budget("web", {"app": "web"}, maxUnavailable=0))
    eventually(lambda: _has_counted(mover))
    descheduler.start()
    first, second = list(mover.pods())[:2]

    mover.move("blocked", first, mode="EvictDirectly", ttl="4s")
    mover.move("patient", second, mode="EvictDirectly")
    eventually(lambda: mover.phase("blocked") in _OVER)
    assert mover.status("blocked")["reason"] == "Timeout"
    assert {first, second} <= set(mover.pods())
    assert mover.phase("patient") == "Running"

    mover.apply(disruption_budget("web", {"app": "web"}, maxUnavailable=1))
    eventually(lambda: mover.phase("patient") in _OVER)

    assert mover.phase("patient") == "Succeeded"
    assert second not in mover.pods()
    assert first in mover.pods()


def test_nothing_is_lost_and_nothing_left_however_often_the_descheduler_dies(
    descheduler: DeschedulerProcess, mover: Mover
) -> None:
    """Killed at random moments: every job ends, no pod goes without a place, no place is left."""
    seed = int(np.random.SeedSequence().entropy) & 0xFFFFFFFF  # type: ignore[arg-type]
    sys.stdout.write(f"seed: {seed}\n")
    chance = np.random.default_rng(seed)
    moved = list(mover.pods())[:4]
    for index, pod in enumerate(moved):
        mover.move(f"move-{index}", pod)
    for _ in range(KILLS):
        descheduler.start(wait=False)
        eventually(lambda: descheduler.get("/livez"), 60)
        time.sleep(float(chance.uniform(0, LONGEST_LIFE_S)))  # the moment is what is drawn
        descheduler.kill()
        assert len({it["metadata"]["name"] for it in mover.reservations()}) <= len(moved)
    descheduler.start()
    eventually(lambda: all(mover.phase(f"move-{i}") in _OVER for i in range(len(moved))), 90)
    mover.rolled_out()

    jobs = {it["metadata"]["uid"]: it for it in mover.jobs()}
    succeeded = {uid for uid, it in jobs.items() if it["status"]["phase"] == "Succeeded"}
    eventually(lambda: {it["metadata"]["name"] for it in mover.reservations()} <= succeeded)
    assert len(mover.pods()) == REPLICAS
    for uid in succeeded:
        status = jobs[uid]["status"]
        assert mover.pods()[status["podRef"]["name"]] == status["nodeName"]
    assert len(succeeded) >= 1


def test_every_job_succeeds_though_scheduler_and_descheduler_die(
    descheduler: DeschedulerProcess, scheduler: SchedulerProcess, mover: Mover
) -> None:
    """Killed in turn at random moments: no replica takes the place of another job's pod for good.

    A job whose reservation was used by another pod reserves once more.
    """
    seed = int(np.random.SeedSequence().entropy) & 0xFFFFFFFF  # type: ignore[arg-type]
    sys.stdout.write(f"seed: {seed}\n")
    chance = np.random.default_rng(seed)
    names = [f"both-{index}" for index in range(4)]
    for name, pod in zip(names, list(mover.pods()), strict=False):
        mover.move(name, pod, ttl="600s")
    descheduler.start(wait=False)
    for victim in (scheduler, descheduler) * (KILLS // 2):
        eventually(lambda it=victim: it.get("/livez"), 60)  # type: ignore[misc]
        time.sleep(float(chance.uniform(0, LONGEST_LIFE_S)))  # the moment is what is drawn
        victim.kill()
        victim.start(wait=False)
    eventually(lambda: all(mover.phase(name) in _OVER for name in names), 180)
    mover.rolled_out()

    statuses = {name: mover.status(name) for name in names}
    results = {name: (it["phase"], it.get("reason", "")) for name, it in statuses.items()}
    assert {phase for phase, _ in results.values()} == {"Succeeded"}, results
    pods = mover.pods()
    assert len(pods) == REPLICAS
    for name, status in statuses.items():
        assert pods[status["podRef"]["name"]] == status["nodeName"], name
    replacements = [status["podRef"]["name"] for status in statuses.values()]
    assert len(set(replacements)) == len(names)
    assert "Traceback" not in scheduler.log.read_text()


def evicted(descheduler: DeschedulerProcess, labels: dict[str, str]) -> float:
    """Return the counter of evictions with these labels."""
    for line in descheduler.get("/metrics").splitlines():
        name, _, rest = line.partition("{")
        if name == "descheduler_pods_evicted_total" and all(
            f'{key}="{value}"' in rest for key, value in labels.items()
        ):
            return float(rest.rpartition(" ")[2])
    return 0.0


def _has_counted(mover: Mover) -> bool:
    budget = mover.get("poddisruptionbudgets", "web", "/apis/policy/v1")
    return bool(budget.get("status", {}).get("expectedPods") == REPLICAS)
