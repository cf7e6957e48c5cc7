"""Pods that the agent's loop publishes to the PodResources proxy."""

from tests.nodes import pod
from tests.unit.koordlet.app.world import World
from tests.unit.koordlet.pod_resources.test_pod_resources_answers import (
    RDMA,
    REQUESTS,
    allocated,
    ids,
    reported,
)

from koordinator.foundation.protobuf import decode_message, encode_message
from koordinator.koordlet.app.device_hooks import DeviceHolders
from koordinator.koordlet.pod_resources import PodResources, PodResourcesAnswers, PodResourcesList


def completed(answers: PodResourcesAnswers, name: str) -> PodResources:
    """Return a pod's resources if the kubelet knows no devices."""
    answer = answers.complete(encode_message(PodResourcesList(pods=(reported(name),))))
    (entry,) = decode_message(PodResourcesList, answer).pods
    return entry


def test_pod_is_published_from_its_first_event_until_it_is_deleted() -> None:
    """The first event is published before other work, since a container waits for it."""
    world = World()
    holders = DeviceHolders(world.tree.cgroups.exists)
    answers = PodResourcesAnswers(
        world.clock, world.tree.cgroups, check_devices=holders.check, longest_wait_s=0.0
    )
    world.agent = world.start(pod_resources=answers, device_holders=holders)
    world.seconds(1)
    view = world.add(pod("job", **REQUESTS, annotations=allocated("0000:01:00.2")))
    assert ids(completed(answers, "job")) == [{}]
    world.agent.step()
    assert RDMA in ids(completed(answers, "job"))[0]
    world.add(pod("thief", **REQUESTS, annotations=allocated("0000:01:00.2")))
    world.agent.step()
    assert ids(completed(answers, "thief")) == [{}]
    world.cluster.delete(type(view.pod), "job", "default")
    world.agent.step()
    assert ids(completed(answers, "job")) == [{}]
