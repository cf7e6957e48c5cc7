"""ResourceManagers that lie, hang or fail over, strange NodeManagers: nothing is given twice."""

from collections.abc import Sequence

import pytest
from tests.yarn_clusters import (
    NODE_ID,
    REGISTERED,
    PlayedNodeManager,
    PlayedYarn,
    YarnWorld,
    batch_pod,
    kube_node,
    node_manager_pod,
)

from koordinator.api.node import Node
from koordinator.hadoop.amounts import BatchAmounts, YarnResource
from koordinator.hadoop.port import YarnError, YarnLimit, YarnNode
from koordinator.yarn.account import YarnPolicy
from koordinator.yarn.app import YarnOptions
from koordinator.yarn.follower import UNCONFIRMED_LIMIT_S

GIB = 1 << 30
ORIGIN = "node.koordinator.sh/originExtendedAllocatable"


def world(yarn: PlayedYarn | None = None) -> YarnWorld:
    """Return an idle node of 10 CPUs and 16 GiB with a NodeManager that has it all."""
    options = YarnOptions(policy=YarnPolicy(headroom_percent=0))
    yarn_world = YarnWorld(yarn or PlayedYarn(), options)
    yarn_world.cluster.load([node_manager_pod()])
    yarn_world.uses(0, 0)
    yarn_world.run()
    assert yarn_world.limit() == YarnResource(10, 16384)
    return yarn_world


def watch(it: YarnWorld, seconds: float) -> None:
    """Advance the clock; check after every step whether something was given to both sides."""
    until_s = it.clock.now_s() + seconds
    while it.clock.now_s() < until_s:
        for follower in it.followers.values():
            it.manager.step()
            check(it)
            follower.round()
            check(it)
        it.operator.step()
        check(it)
        it.clock.advance_to(it.clock.now_s() + 0.5)


def check(it: YarnWorld) -> None:
    """Raise if pods are shown what YARN may hand out."""
    terms = zip(it.shown(), it.limit().batch(), it.origin(), strict=True)
    for shown, yarn, origin in terms:
        assert not shown or shown + yarn <= origin


@pytest.mark.parametrize("cpus", [0, 6])
def test_an_answer_of_200_is_no_proof(cpus: int) -> None:
    """A set limit is read back: a promise falls when the lower limit is seen; it is reported."""
    it = world()
    yarn = it.yarn
    if not cpus:
        it.uses(6, 8)
        it.run()
    before = it.limit()
    yarn.lies = True
    yarn.requests.clear()
    it.uses(cpus, 0)
    watch(it, 20)

    assert it.limit() == before
    assert len(yarn.requests) <= 4, "asked again now and then, not as fast as it can be"
    assert [reason for reason, _ in it.warnings()] == ["YarnLimitRefused"]
    yarn.lies = False
    watch(it, UNCONFIRMED_LIMIT_S + 10)
    assert it.limit().vcores == 10 - cpus


class Strange(PlayedYarn):
    """Fails with one of its NodeManagers in an unexpected way."""

    def set_limit(self, limit: YarnLimit) -> None:
        if limit.node_id.startswith("strange"):
            raise UnicodeEncodeError("ascii", limit.node_id, 0, 1, "strange")
        super().set_limit(limit)


def test_an_unreachable_cluster_leaves_the_limits_of_others() -> None:
    """Any error of one cluster leaves the others unaffected."""
    yarn = Strange("strange:8041", NODE_ID)
    names = ["n0", "n1"]
    it = YarnWorld(yarn, nodes=[kube_node(name) for name in names])
    it.cluster.load(
        [
            node_manager_pod("n0", "strange:8041", "nm-0"),
            node_manager_pod("n1", NODE_ID, "nm-1"),
        ]
    )
    for name in names:
        it.uses(0, 0, name)
    run_in_spite(it, 12)
    assert it.limit() == YarnResource(9, 14745)
    it.uses(5, 0, "n1")
    run_in_spite(it, 12)
    assert it.limit() == YarnResource(4, 14745)


def run_in_spite(it: YarnWorld, seconds: float) -> None:
    """Run all components; a round that fails is one less, as in the thread that makes them."""
    until_s = it.clock.now_s() + seconds
    while it.clock.now_s() < until_s:
        it.manager.step()
        for follower in it.followers.values():
            try:
                follower.round()
            except ValueError:
                continue
        it.operator.step()
        it.clock.advance_to(it.clock.now_s() + 0.5)


def shrink_while_a_request_is_under_way(it: YarnWorld, *, dies: bool) -> None:
    """Request all of the node of a ResourceManager that hangs; then pods take four CPUs."""
    it.uses(5, 8)
    it.run()
    it.yarn.applies_late = True
    it.uses(0, 0)
    it.run(2)
    assert it.yarn.late
    assert it.limit() == YarnResource(5, 8192)
    it.yarn.is_reachable = it.yarn.applies_late = False
    if dies:
        it.restart_operator()
    it.cluster.load([batch_pod("etl", 4000, GIB, node="")])


def test_a_request_of_an_operator_that_died_may_still_take_effect() -> None:
    """The request waits in the socket of a hanging ResourceManager, unknown to the new operator."""
    it = world()
    shrink_while_a_request_is_under_way(it, dies=True)
    it.yarn.is_reachable = True
    watch(it, 5)
    it.yarn.catch_up()
    watch(it, UNCONFIRMED_LIMIT_S + 5)

    assert it.limit() == YarnResource(6, 15360)
    assert it.shown() == BatchAmounts(4000, GIB)


def test_requested_limit_takes_effect_after_a_long_hang() -> None:
    """The time counts from when the ResourceManager is reachable again."""
    it = world()
    shrink_while_a_request_is_under_way(it, dies=False)
    watch(it, UNCONFIRMED_LIMIT_S * 3)
    it.yarn.is_reachable = True
    watch(it, 5)
    it.yarn.catch_up()
    watch(it, UNCONFIRMED_LIMIT_S + 5)

    assert it.limit() == YarnResource(6, 15360)
    assert it.shown() == BatchAmounts(4000, GIB)


def test_a_new_operator_gives_back_later_what_the_last_one_may_have_requested() -> None:
    """The lower limit is set at once; pods are shown it when no late request can undo that."""
    it = world()
    it.restart_operator()
    it.cluster.load([batch_pod("etl", 4000, GIB, node="")])
    watch(it, 5)
    assert it.limit() == YarnResource(6, 15360)
    assert it.shown() == BatchAmounts(0, 0)

    watch(it, UNCONFIRMED_LIMIT_S)
    assert it.shown() == BatchAmounts(4000, GIB)


class FailsOver(PlayedYarn):
    """Dies within an update: another ResourceManager decides, with which the node registers."""

    def __init__(self, *, applies: bool, registers_with: YarnResource) -> None:
        super().__init__()
        self._applies, self._registers_with = applies, registers_with
        self.dies = False

    def set_limit(self, limit: YarnLimit) -> None:
        if not self.dies:
            super().set_limit(limit)
            return
        if self._applies:
            super().set_limit(limit)
        self.dies = self.is_reachable = self.only.is_up = False
        self.only.limit = self._registers_with
        raise YarnError("connection reset")

    def take_over(self) -> None:
        self.is_reachable = self.only.is_up = True


@pytest.mark.parametrize("applies", [True, False])
@pytest.mark.parametrize("registers", [REGISTERED, YarnResource(4, 8192), YarnResource(10, 16384)])
def test_a_failover_within_an_update(applies: bool, registers: YarnResource) -> None:
    """The NodeManager comes back with what it last had, or less; it ends with what is right."""
    yarn = FailsOver(applies=applies, registers_with=registers)
    it = world(yarn)
    yarn.dies = True
    it.uses(6, 8)
    watch(it, 3)
    assert not yarn.is_reachable
    yarn.take_over()
    watch(it, 10)

    assert it.limit() == YarnResource(4, 8192)
    assert it.shown() == BatchAmounts(0, 0)


def test_a_node_manager_that_registers_with_more_than_its_limit() -> None:
    """The excess is seen at the next look; pods then get none of it, and the limit is lowered."""
    it = world()
    it.uses(6, 8)
    it.run()
    it.yarn.only.limit = YarnResource(8, 12288)
    it.run(1)
    watch(it, 10)
    assert it.limit() == YarnResource(4, 8192)


def test_absurd_amounts_of_a_node_do_not_break_the_cluster() -> None:
    """The ResourceManager sums up vcores of all nodes in 32 bits."""
    it = world()
    origin = '{"resources": {"kubernetes.io/batch-cpu": "5E", "kubernetes.io/batch-memory": "7Ei"}}'
    it.cluster.patch(Node, "n1", "", {"metadata": {"annotations": {ORIGIN: origin}}})
    it.operator.step()
    for follower in it.followers.values():
        follower.round()

    assert it.limit().vcores <= 1 << 16


@pytest.mark.parametrize("node_id", ["nöde:8041", "n1#x:8041", "n1 x:8041", "[::1]:8041"])
def test_node_managers_of_strange_names(node_id: str) -> None:
    """Every process that registers is one."""
    yarn = PlayedYarn(node_id)
    it = YarnWorld(yarn)
    it.cluster.load([node_manager_pod(node_id=node_id)])
    it.uses(0, 0)
    it.run()

    assert it.limit(node_id) == YarnResource(9, 14745)
    del yarn.managers[node_id]
    yarn.managers |= {f"n{i}:8041": PlayedNodeManager() for i in range(3)}
    it.run()
    assert listed(yarn) == ["n0:8041", "n1:8041", "n2:8041"]


def listed(yarn: PlayedYarn) -> Sequence[str]:
    nodes: list[YarnNode] = yarn.nodes()
    return [node.node_id for node in nodes]
