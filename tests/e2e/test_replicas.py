"""Several replicas of the scheduler on one cluster: always one leader, and never two.

Who bound what, and when, is taken from the audit log of the API server.
"""

import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.fleet import create, device, node, pod
from tests.e2e.interposer import BIND, Interposer
from tests.e2e.replicas import (
    LEASE_S,
    NOTICED_S,
    RENEW_S,
    RETRY_S,
    Replica,
    check_binds,
    epoch_s,
    lease,
    running,
)
from tests.e2e.waiting import eventually
from tests.e2e.witness import Witness, overcommitted, overgiven_gpus

pytestmark = pytest.mark.slow

REJOINS = "lost the lease; rejoining the election"
UNDER_WAY = 64  # bindings that a scheduler sends before it waits for an answer
BUSY_S = 2.0  # that a machine with better things to do may lose now and then


@pytest.fixture
def witness(controlplane: ControlPlane) -> Iterator[Witness]:
    """Sees every pod get its node."""
    with Witness(controlplane.api) as watching:
        yield watching


@pytest.fixture
def pods(namespace: str) -> str:
    """Return the path of the pods of the test's namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def audit_start(controlplane: ControlPlane) -> int:
    """Return where in the audit log the test begins."""
    return controlplane.audit.size()


def add_nodes(controlplane: ControlPlane, count: int, cpu: str = "4") -> None:
    create(controlplane.api, "/api/v1/nodes", [node(f"n{it}", cpu) for it in range(count)])


def test_one_leads_and_another_takes_over_when_it_dies(
    controlplane: ControlPlane, pods: str, audit_start: int, witness: Witness
) -> None:
    """The other leads soon after the dead leader's lease has expired, and not earlier."""
    api = controlplane.api
    add_nodes(controlplane, 1)
    candidates = [Replica(controlplane, it) for it in ("one", "other", "third")]
    with running(*candidates) as (leader, *others):
        assert not any(it.leads for it in others)
        assert leader.status_of_service("/apis/v1/queue") == 200
        assert [it.status_of_service("/apis/v1/queue") for it in others] == [503, 503]
        before = lease(api)
        api.request("POST", pods, pod("before"))
        witness.node_of("before")

        leader.kill()
        died_s = time.monotonic()
        last_renewal = lease(api)["renewTime"]
        api.request("POST", pods, pod("after"))
        witness.node_of("after")

        assert time.monotonic() - died_s < LEASE_S + NOTICED_S + BUSY_S
        after = lease(api)
        assert epoch_s(after["acquireTime"]) - epoch_s(last_renewal) >= LEASE_S
        assert after["holderIdentity"] != before["holderIdentity"]
        assert after["leaseTransitions"] == before["leaseTransitions"] + 1
        assert sum(it.leads for it in others) == 1
    reigns = check_binds(controlplane, audit_start)
    assert [[bind.pod.partition("/")[2] for bind in reign] for reign in reigns] == [
        ["before"],
        ["after"],
    ]


def test_a_leader_that_cannot_renew_stops_before_its_lease_runs_out(
    controlplane: ControlPlane, pods: str, audit_start: int, witness: Witness
) -> None:
    """Though everything else still works for it, it binds no more, and becomes a follower."""
    add_nodes(controlplane, 10)
    with Interposer(controlplane.api) as interposer:
        cut_off = Replica(
            controlplane, "admin", binds_per_s=30, kubeconfig=interposer.kubeconfig(controlplane)
        )
        other = Replica(controlplane, "other", binds_per_s=100)
        with running(cut_off), other:
            create(controlplane.api, pods, [pod(f"p{it}") for it in range(250)])
            witness.wait_for(20)
            with interposer.hold("GET", "/leases/") as blocked:  # a renewal begins with it
                blocked.wait_for_call()
                renewed_s = epoch_s(lease(controlplane.api)["renewTime"])
                eventually(lambda: REJOINS in cut_off.logged)
                witness.wait_for(250)
            assert eventually(lambda: cut_off.get("/readyz") == "ok")
            assert (cut_off.leads, other.leads) == (False, True)

    reigns = check_binds(controlplane, audit_start)
    assert [reign[0].user for reign in reigns] == ["admin", "other"]
    last, first = reigns[0][-1].ended_s - renewed_s, reigns[1][0].began_s - renewed_s
    assert RENEW_S - 1 < last < RENEW_S + (LEASE_S - RENEW_S) / 2
    assert LEASE_S <= first < LEASE_S + NOTICED_S + BUSY_S


def test_a_leader_that_was_stopped_too_long_wakes_up_and_does_nothing(
    controlplane: ControlPlane, pods: str, audit_start: int, witness: Witness
) -> None:
    """As after a pause of its machine: it had much under way, another has led on since.

    It had not just asked whether it may write: what it is about to write at that very moment is
    sent when it wakes up, as by any Kubernetes component.
    """
    api = controlplane.api
    add_nodes(controlplane, 12, cpu="4800m")  # room for exactly 288 x 200m
    gpu_nodes = [node(f"gpu{it}", cpu="100m") for it in range(6)]  # and for 96 halves of 48 GPUs
    for it in gpu_nodes:
        it["status"]["allocatable"]["koordinator.sh/gpu"] = "800"
    create(api, "/api/v1/nodes", gpu_nodes)
    devices = [device(it["metadata"]["name"], gpus=8) for it in gpu_nodes]
    create(api, "/apis/scheduling.koordinator.sh/v1alpha1/devices", devices)
    half = {"koordinator.sh/gpu": "50"}
    coming = [
        pod(f"p{it}", cpu="1m", **half) if it % 4 == 0 else pod(f"p{it}", cpu="200m")
        for it in range(384)
    ]
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "DeviceShare"}]}}}
    with Interposer(api) as interposer, ThreadPoolExecutor(1) as background:
        way = interposer.kubeconfig(controlplane)
        paused = Replica(controlplane, "admin", profile=profile, kubeconfig=way)
        other = Replica(controlplane, "other", binds_per_s=100, profile=profile)
        with running(paused), other:
            with interposer.hold("POST", BIND) as blocked:
                created = background.submit(create, api, pods, coming)
                blocked.wait_for_call(UNDER_WAY)
                paused.signal(signal.SIGSTOP)
                sent = len(blocked.calls)
            witness.wait_for(sent)  # what it had sent is done; the rest is before it still
            eventually(lambda: other.leads)
            witness.wait_for(sent + 60)
            resumed_s = time.monotonic()
            paused.signal(signal.SIGCONT)
            eventually(lambda: REJOINS in paused.logged)
            created.result()
            witness.wait_for(len(coming))
        written = [
            f"{call.method} {call.path}"
            for call in interposer.calls
            if call.at_s > resumed_s and call.method != "GET" and "/leases/" not in call.path
        ]

    assert written == []
    reigns = check_binds(controlplane, audit_start)
    assert [reign[0].user for reign in reigns] == ["admin", "other"]
    witness.check_no_pod_moved()
    assert overcommitted(api) == {}
    assert overgiven_gpus(api) == {}
    assert paused.logged.count(REJOINS) == 1


def test_lost_lease_is_not_released(
    controlplane: ControlPlane, pods: str, audit_start: int, witness: Witness
) -> None:
    """The last write may still be in flight, so no other replica may lead earlier."""
    api = controlplane.api
    add_nodes(controlplane, 1)
    with running(Replica(controlplane, "one"), Replica(controlplane, "other")) as (leader, _):
        leader.signal(signal.SIGSTOP)
        last_renewal = lease(api)["renewTime"]
        time.sleep((RENEW_S + LEASE_S) / 2 - RETRY_S / 2)  # too long to lead, too short to be led
        leader.signal(signal.SIGCONT)
        eventually(lambda: REJOINS in leader.logged)
        api.request("POST", pods, pod("p"))
        witness.node_of("p")
        assert epoch_s(lease(api)["acquireTime"]) - epoch_s(last_renewal) >= LEASE_S

    assert len(check_binds(controlplane, audit_start)) == 1


SHIFTED = """
import sys, time
right, ahead_s = time.time, float(sys.argv.pop(1)) * 3600
time.time = lambda: right() + ahead_s
from koordinator.cli.main import main
main()
"""


def shifted(hours: float) -> list[str]:
    """Return a ``koord`` whose wall clock is fast by some hours."""
    return [sys.executable, "-c", SHIFTED, str(hours)]


def test_clocks_that_differ_by_hours_do_no_harm(
    controlplane: ControlPlane, pods: str, audit_start: int, witness: Witness
) -> None:
    """A lease from the future or from the past is as good as any: none is taken, none is kept."""
    api = controlplane.api
    add_nodes(controlplane, 1)
    fast = Replica(controlplane, "fast", program=shifted(5))
    right = Replica(controlplane, "right")
    slow = Replica(controlplane, "slow", program=shifted(-5))

    def bind_one_after(killed: Replica) -> None:
        killed.kill()
        died_s = time.monotonic()
        api.request("POST", pods, pod(f"after-{killed.user}"))
        witness.node_of(f"after-{killed.user}")
        assert time.monotonic() - died_s < LEASE_S + NOTICED_S + BUSY_S

    with running(fast), right:
        renewed_by_fast_s = epoch_s(lease(api)["renewTime"])
        api.request("POST", pods, pod("first"))
        witness.node_of("first")
        bind_one_after(fast)
        with slow:
            renewed = {lease(api)["renewTime"]}

            def many_renewals() -> bool:
                renewed.add(lease(api)["renewTime"])
                return len(renewed) > 12

            eventually(many_renewals)
            assert (right.leads, slow.leads) == (True, False)
            bind_one_after(right)
            renewed_by_slow_s = epoch_s(lease(api)["renewTime"])

    reigns = check_binds(controlplane, audit_start)
    assert renewed_by_fast_s - reigns[0][0].began_s > 4 * 3600
    assert renewed_by_slow_s - reigns[2][0].began_s < -4 * 3600
    assert [reign[0].user for reign in reigns] == ["fast", "right", "slow"]


def test_stopping_leader_hands_over(
    controlplane: ControlPlane, pods: str, audit_start: int, witness: Witness
) -> None:
    """The old leader completes its binds; the next one leads immediately and fills the rest."""
    api = controlplane.api
    add_nodes(controlplane, 25)
    candidates = [Replica(controlplane, it, binds_per_s=150) for it in ("one", "other")]
    coming = [pod(f"p{it}", cpu="200m") for it in range(510)]  # ten too many
    with running(*candidates) as (leader, other), ThreadPoolExecutor(1) as background:
        created = background.submit(create, api, pods, coming)
        witness.wait_for(60)
        assert leader.stop() == 0
        stopped_s = time.monotonic()
        assert lease(api)["holderIdentity"] == "" or other.leads
        eventually(lambda: other.leads)
        assert time.monotonic() - stopped_s < NOTICED_S + BUSY_S
        created.result()
        witness.wait_for(500)
        eventually(lambda: other.metric('scheduler_pending_pods{queue="unschedulable"}') == 10)

    reigns = check_binds(controlplane, audit_start)
    assert [reign[0].user for reign in reigns] == [leader.user, other.user]
    assert all(bind.succeeded for reign in reigns for bind in reign)
    assert reigns[1][0].began_s - reigns[0][-1].ended_s < NOTICED_S + BUSY_S
    assert overcommitted(api) == {}
    assert "not sent" not in leader.logged


@pytest.mark.parametrize("away_s", [LEASE_S - 2 * RETRY_S, LEASE_S + 2.0])
def test_a_single_scheduler_continues_after_an_outage_of_the_api_server(
    controlplane: ControlPlane, pods: str, witness: Witness, away_s: float
) -> None:
    """The process leads again after its lease has expired, without state of the lost term."""
    api = controlplane.api
    add_nodes(controlplane, 25)
    lone = Replica(controlplane, "lone", binds_per_s=100)
    with running(lone):
        create(api, pods, [pod(f"p{it}") for it in range(300)])
        witness.wait_for(30)
        before = lease(api)
        pid = lone.pid
        controlplane.stop_apiserver()
        eventually(lambda: REJOINS in lone.logged)
        time.sleep(max(away_s - RENEW_S, 0))
        controlplane.start_apiserver()
        api.request("POST", pods, pod("after"))
        witness.node_of("after")
        witness.wait_for(301)

        assert (lone.pid, lone.is_running, lone.leads) == (pid, True, True)
        after = lease(api)
        assert after["holderIdentity"] != before["holderIdentity"]
        assert epoch_s(after["acquireTime"]) - epoch_s(before["renewTime"]) >= LEASE_S
    witness.check_no_pod_moved()
    assert overcommitted(api) == {}


def test_rolling_restart_does_not_interrupt_scheduling(
    controlplane: ControlPlane, pods: str, audit_start: int, witness: Witness
) -> None:
    """A thousand pods come while both replicas are replaced, the leader last."""
    api = controlplane.api
    add_nodes(controlplane, 25)
    old = [Replica(controlplane, it, binds_per_s=100) for it in ("old-1", "old-2")]
    new = [Replica(controlplane, it, binds_per_s=100) for it in ("new-1", "new-2")]
    coming = (pod(f"p{it}") for it in range(1000))
    with running(*old) as (leader, other), ThreadPoolExecutor(1) as background:
        created = background.submit(create, api, pods, coming)
        witness.wait_for(50)
        assert other.stop() == 0
        with new[0]:
            assert leader.stop() == 0
            with new[1]:
                created.result()
                witness.wait_for(1000)
                assert [it.leads for it in new] == [True, False]

    check_binds(controlplane, audit_start)
    witness.check_no_pod_moved()
    assert overcommitted(api) == {}
