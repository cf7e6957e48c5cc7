"""The operator beside a manager, on a cluster in memory and a YARN cluster that is played."""

import json

import pytest
from tests.yarn_clusters import (
    NODE_ID,
    REGISTERED,
    PlayedYarn,
    YarnWorld,
    batch_pod,
    kube_node,
    node_manager_pod,
)

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.hadoop.amounts import BatchAmounts, YarnResource
from koordinator.hadoop.port import YarnLimit, YarnNode, YarnRefusedError
from koordinator.yarn.account import YarnPolicy
from koordinator.yarn.app import YarnOptions

GIB = 1 << 30
THIRD_PARTIES = "node.koordinator.sh/thirdPartyAllocations"


def world(*, headroom: int = 0, yarn: PlayedYarn | None = None, **options: object) -> YarnWorld:
    """Return an idle node of 10 CPUs and 16 GiB with a NodeManager, settled."""
    policy = YarnPolicy(headroom_percent=headroom)
    yarn_world = YarnWorld(yarn, YarnOptions(policy=policy, **options))  # type: ignore[arg-type]  # by name
    yarn_world.cluster.load([node_manager_pod()])
    yarn_world.uses(0, 0)
    yarn_world.run()
    return yarn_world


def allocations(it: YarnWorld, node: str = "n1") -> object:
    """Return the annotation of third parties, None if there is none."""
    text = it.node(node).metadata.annotations.get(THIRD_PARTIES)
    return None if text is None else json.loads(text)


def test_yarn_gets_what_pods_do_not_ask_for() -> None:
    """The headroom stays with Kubernetes; the annotation is spelt as the original's."""
    it = world(headroom=10)
    assert it.limit() == YarnResource(9, 14745)
    assert it.shown() == BatchAmounts(1000, 16 * GIB - (14745 << 20))
    assert allocations(it) == {
        "allocations": [
            {
                "name": "hadoop-yarn",
                "priority": "koord-batch",
                "resources": {
                    "kubernetes.io/batch-cpu": "9k",
                    "kubernetes.io/batch-memory": "14745Mi",
                },
            }
        ]
    }

    it.cluster.load([batch_pod("etl", 1000, 2 * GIB)])
    it.run()
    assert it.limit() == YarnResource(8, 12697)

    it.cluster.delete(Pod, "etl", "default", grace_period_s=0)
    it.uses(6, 8)
    it.run()
    assert it.limit() == YarnResource(3, 7372)


def test_the_headroom_reclaims_no_allocated_resources() -> None:
    """Only resources that pods hold or the node itself needs are reclaimed."""
    it = world(headroom=50)
    assert it.limit().vcores == 5
    it.yarn.only.containers = [YarnResource(5, 8192)]
    it.cluster.load([batch_pod("etl", 3000, 2 * GIB)])
    it.run()

    assert it.limit() == YarnResource(5, 8192)
    it.uses(5, 0)
    it.run()
    assert it.limit().vcores == 2


def test_a_pod_that_finds_no_room_gets_what_yarn_does_not_use() -> None:
    """The largest request that waits is kept free, where it fits; no pod is preempted for it."""
    it = world()
    assert it.shown() == BatchAmounts(0, 0)
    it.yarn.only.containers = [YarnResource(4, 4096)]
    it.cluster.load([batch_pod("etl", 5000, 2 * GIB, node="")])
    it.run()
    assert it.limit() == YarnResource(5, 14336)
    assert it.shown().covers(BatchAmounts(5000, 2 * GIB))

    it.cluster.delete(Pod, "etl", "default", grace_period_s=0)
    it.cluster.load([batch_pod("huge", 7000, 2 * GIB, node="")])
    it.run()
    assert it.limit() == YarnResource(10, 16384), "it fits nowhere: nothing is kept for it"


def test_a_node_manager_that_registers_again_gets_its_limit() -> None:
    """As soon as the ResourceManager shows that it has less."""
    it = world()
    it.yarn.only.limit, it.yarn.only.containers = REGISTERED, []
    it.run(2)

    assert it.limit() == YarnResource(10, 16384)


def test_an_unreachable_node_manager_keeps_its_limit() -> None:
    """Containers may run on while the ResourceManager is down or the NodeManager is not listed."""
    it = world()
    it.yarn.is_reachable = False
    it.uses(5, 8)
    it.run()
    assert it.shown() == BatchAmounts(0, 0)
    it.restart_operator()
    it.run()
    assert it.shown() == BatchAmounts(0, 0)

    it.yarn.is_reachable, it.yarn.only.is_up = True, False
    it.run()
    assert it.shown() == BatchAmounts(0, 0)

    it.yarn.only.is_up = True
    it.run()
    assert it.limit() == YarnResource(5, 8192)


def test_without_its_pod_the_promise_is_taken_back() -> None:
    """A node that never had a NodeManager gets no annotation."""
    it = world()
    it.cluster.load([kube_node("n2")])
    it.cluster.delete(Pod, "nm", "hadoop-yarn", grace_period_s=0)
    it.run()

    assert it.shown() == BatchAmounts(10_000, 16 * GIB)
    assert allocations(it) == {
        "allocations": [
            {
                "name": "hadoop-yarn",
                "priority": "koord-batch",
                "resources": {"kubernetes.io/batch-cpu": "0", "kubernetes.io/batch-memory": "0"},
            }
        ]
    }
    assert allocations(it, "n2") is None


def test_other_third_parties_keep_their_entries() -> None:
    """Entries of others belong to neither pods nor YARN; an invalid annotation is rewritten."""
    it = world()
    other = {
        "name": "spark",
        "priority": "koord-batch",
        "resources": {"kubernetes.io/batch-cpu": "3000", "kubernetes.io/batch-memory": "1Gi"},
    }
    text = json.dumps({"allocations": [other]})
    it.cluster.patch(Node, "n1", "", {"metadata": {"annotations": {THIRD_PARTIES: text}}})
    it.run()
    result = allocations(it)
    assert isinstance(result, dict)
    assert result["allocations"][0]["name"] == "spark"
    assert [each["name"] for each in result["allocations"]] == ["spark", "hadoop-yarn"]
    assert it.limit() == YarnResource(7, 15360)
    assert it.shown() == BatchAmounts(0, 0)

    it.cluster.patch(Node, "n1", "", {"metadata": {"annotations": {THIRD_PARTIES: "{"}}})
    it.run()
    assert it.limit() == YarnResource(10, 16384)


@pytest.mark.parametrize(
    ("node_id", "message"),
    [
        ("n1", "must be host:port, as the NodeManager registers, got 'n1'"),
        ("n1:0", "must be host:port"),
        ("../../evil:80", "must be host:port"),
    ],
)
def test_an_invalid_node_id_is_reported(node_id: str, message: str) -> None:
    """As an event beside the node; nothing is sent anywhere."""
    it = YarnWorld()
    it.cluster.load([node_manager_pod(node_id=node_id)])
    it.uses(0, 0)
    it.run()

    ((reason, note),) = it.warnings()
    assert reason == "YarnNodeManagerUnclear"
    assert message in note
    assert it.yarn.requests == []


def test_a_cluster_without_configuration_is_reported() -> None:
    """With those that are known."""
    it = YarnWorld()
    it.cluster.load([node_manager_pod(**{"yarn.hadoop.apache.org/cluster-id": "etl"})])
    it.uses(0, 0)
    it.run()

    ((_, note),) = it.warnings()
    assert note == "no configuration of YARN cluster 'etl'; known: __default_yarn_cluster__"


def test_a_node_manager_without_annotation_is_found_by_its_host() -> None:
    """If there is exactly one on the node's name or address."""
    it = YarnWorld(PlayedYarn("n1:8041"))
    it.cluster.load([node_manager_pod(node_id="")])
    it.uses(0, 0)
    it.run()
    assert it.limit("n1:8041").vcores == 9

    it = YarnWorld(PlayedYarn("n1:8041", "n1:9041"))
    it.cluster.load([node_manager_pod(node_id="")])
    it.uses(0, 0)
    it.run()
    assert it.yarn.requests == []
    ((_, note),) = it.warnings()
    assert "2 NodeManagers on the host" in note


def test_a_node_manager_outside_of_pods_is_named_by_its_node() -> None:
    """By the same annotation."""
    it = YarnWorld(nodes=[kube_node(annotations={"yarn.hadoop.apache.org/node-id": NODE_ID})])
    it.uses(0, 0)
    it.run()

    assert it.limit().vcores == 9


def test_two_nodes_that_name_one_node_manager() -> None:
    """The first has it, the other gets a warning; nothing is promised for it twice."""
    it = world()
    it.cluster.load([kube_node("n2"), node_manager_pod("n2", name="impostor")])
    it.uses(0, 0, "n2")
    it.run()

    assert it.limit().vcores == 10
    assert it.shown("n2") == BatchAmounts(9_000, 15 * GIB), "as much as one registers with"
    assert [note for _, note in it.warnings()] == [
        f"NodeManager {NODE_ID} already belongs to node n1"
    ]


class Forbidding(PlayedYarn):
    """Rejects all changes of nodes."""

    def set_limit(self, limit: YarnLimit) -> None:
        self.requests.append(limit)
        raise YarnRefusedError("User nobody doesn't have permission")


def test_a_refusal_is_reported_and_retried_rarely() -> None:
    """A refused request is not repeated immediately."""
    it = YarnWorld(Forbidding())
    it.cluster.load([node_manager_pod()])
    it.uses(0, 0)
    it.run(20)

    assert 3 <= len(it.yarn.requests) <= 5
    assert it.warnings() == [
        (
            "YarnLimitRefused",
            f"NodeManager {NODE_ID}: User nobody doesn't have permission",
        )
    ]


class Slow(PlayedYarn):
    """Answers before the change has been made, as Hadoop does."""

    def set_limit(self, limit: YarnLimit) -> None:
        before = self.only.limit
        super().set_limit(limit)
        self.only.limit, self.late = before, [limit]

    def node(self, node_id: str) -> YarnNode | None:
        result = super().node(node_id)
        self.catch_up()
        return result


def test_set_limit_is_polled_until_it_is_reported() -> None:
    """A different answer is no rejection yet."""
    it = world(yarn=Slow())

    assert it.limit() == YarnResource(10, 16384)
    assert it.warnings() == []


@pytest.mark.parametrize(("grace_s", "timeouts"), [(-1.0, {-1}), (0.0, {0}), (30.0, {30_000})])
def test_every_change_has_the_grace_period_of_containers(
    grace_s: float, timeouts: set[int]
) -> None:
    """The first call has it, too: a later -1 would end containers at once."""
    it = world(shrink_grace_s=grace_s)
    it.yarn.only.containers = [YarnResource(8, 1024)]
    it.run()
    it.uses(5, 0)
    it.run()

    assert it.limit().vcores == 5
    assert {each.overcommit_timeout_ms for each in it.yarn.requests} == timeouts


def test_a_grace_period_is_not_prolonged_by_further_shrinking() -> None:
    """The ResourceManager counts from each call on, so that what has passed is taken off."""
    it = world(shrink_grace_s=30.0)
    it.yarn.only.containers = [YarnResource(8, 1024)]
    it.run()
    it.uses(5, 0)
    it.run(10)
    it.uses(8, 0)
    it.run(1)

    last = it.yarn.requests[-1]
    assert last.resource.vcores == 2
    assert 15_000 <= last.overcommit_timeout_ms <= 25_000


def test_the_account_of_the_original() -> None:
    """Everything to YARN, rounded up in megabytes; what containers have is taken off pods'."""
    policy = YarnPolicy(is_original=True)
    it = YarnWorld(options=YarnOptions(policy=policy), nodes=[kube_node(cpus=31, memory="64Gi")])
    it.cluster.load([node_manager_pod(), batch_pod("etl", 2000, GIB)])
    it.uses(0.5, 0)
    it.run()
    assert it.limit() == YarnResource(31, 68720)

    it.yarn.only.containers = [YarnResource(7, 14336)]
    it.run()
    assert it.limit() == YarnResource(31, 68720)
    assert it.shown() == BatchAmounts(23_500, 50 * GIB)


def test_colocation_switched_off_takes_everything_from_yarn() -> None:
    """There are no batch resources any more."""
    it = world()
    off = {
        "metadata": {"annotations": {"node.koordinator.sh/colocation-strategy": '{"enable":false}'}}
    }
    it.cluster.patch(Node, "n1", "", off)
    it.run()

    assert it.limit() == YarnResource(0, 0)


def test_a_request_without_an_answer_stays_promised_for_a_while() -> None:
    """The request may take effect after its timeout."""
    it = world()
    it.uses(5, 8)
    it.run()
    it.yarn.applies_late = True
    it.uses(0, 0)
    it.run(2)
    assert it.limit() == YarnResource(5, 8192)
    it.cluster.load([batch_pod("etl", 4000, GIB, node="")])
    it.run(10)
    assert it.shown() == BatchAmounts(0, 0)
    del it.yarn.late[1:]
    it.yarn.catch_up()
    assert it.limit() == YarnResource(10, 16384)
    assert it.shown() == BatchAmounts(0, 0)

    it.yarn.applies_late = False
    it.run(60)
    assert it.limit() == YarnResource(6, 15360)
    assert it.shown() == BatchAmounts(4000, GIB)
