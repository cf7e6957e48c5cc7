"""The machine of the leader loses the network while it binds, and finds it again.

What it had sent by then is sent again by its kernel when the network is back: by then another
scheduler has given the same devices to other pods.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.fleet import create, device, gpu_node, gpu_pod
from tests.e2e.koord_process import KOORD
from tests.e2e.partition import OtherMachine
from tests.e2e.replicas import LEASE_S, Replica, check_binds, lease
from tests.e2e.waiting import eventually
from tests.e2e.witness import Witness, overgiven_gpus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs a network namespace"),
]

#: How often the network is lost: KOORD_PARTITIONS=20 before a release.
PARTITIONS = int(os.environ.get("KOORD_PARTITIONS", "2"))
NODES, GPUS, PODS = 50, 8, 400
BOUND_BEFORE = 40
#: From the loss of the network to its return: another leads by then, and kernels retransmit still.
LOST_S = LEASE_S + 4.0
RETRANSMITTED_S = 8.0
WITH_GPUS = {"plugins": {"multiPoint": {"enabled": [{"name": "DeviceShare"}]}}}


@pytest.fixture
def witness(controlplane: ControlPlane) -> Iterator[Witness]:
    """Sees every pod get its node."""
    with Witness(controlplane.api) as watching:
        yield watching


def holder(api: Endpoint) -> str:
    """Return who holds the lease; empty if there is none."""
    with suppress(ApiError):
        return str(lease(api).get("holderIdentity", ""))
    return ""


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_no_device_is_given_twice_when_the_network_of_the_leader_returns(
    controlplane: ControlPlane, namespace: str, witness: Witness, partition: int
) -> None:
    """Nothing that the old leader had sent is done after another leads."""
    api, audit_start = controlplane.api, controlplane.audit.size()
    create(api, "/api/v1/nodes", [gpu_node(f"n{it}", GPUS) for it in range(NODES)])
    devices = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
    create(api, devices, [device(f"n{it}", GPUS) for it in range(NODES)])
    with OtherMachine(controlplane) as machine, ExitStack() as cleanup:
        leader = Replica(
            controlplane,
            f"far-{partition}",
            binds_per_s=40,
            profile=WITH_GPUS,
            kubeconfig=machine.kubeconfig(f"far-{partition}"),
            program=machine.command(str(KOORD)),
        )
        other = Replica(controlplane, f"near-{partition}", binds_per_s=60, profile=WITH_GPUS)
        before = holder(api)
        cleanup.callback(leader.kill)
        leader.start(wait=False)  # its pages are on a loopback of its own
        eventually(lambda: holder(api) not in ("", before), 60)
        cleanup.enter_context(other)
        pods = f"/api/v1/namespaces/{namespace}/pods"
        create(api, pods, [gpu_pod(f"p{it}", 100) for it in range(PODS)])
        witness.wait_for(BOUND_BEFORE)
        machine.cut()
        bound = len(witness.bound)
        time.sleep(LOST_S)
        machine.mend()
        assert len(witness.bound) > bound, "no other scheduler leads yet"
        time.sleep(RETRANSMITTED_S)
        witness.wait_for(PODS)
        assert not overgiven_gpus(api)
        witness.check_no_pod_moved()
    assert [reign[0].user for reign in check_binds(controlplane, audit_start)] == [
        leader.user,
        other.user,
    ]
