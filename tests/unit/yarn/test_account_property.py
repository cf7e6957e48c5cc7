"""No unit is promised twice, in any order of events and crashes."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.yarn_clusters import REGISTERED, PlayedYarn, YarnWorld, batch_pod, node_manager_pod

from koordinator.api.pod import Pod
from koordinator.hadoop.amounts import BatchAmounts, YarnResource
from koordinator.yarn.account import (
    NodeAccount,
    YarnNodeReport,
    YarnPolicy,
    settle,
)
from koordinator.yarn.app import YarnOptions
from koordinator.yarn.follower import UNCONFIRMED_LIMIT_S

GIB = 1 << 30
_CPUS = st.integers(0, 12).map(lambda tenths: tenths * 0.9)
_WORK = ["manager", "follower", "operator", "everybody", "everybody"]
_PODS = ["pod ends", "pod waits", "container ends", "preemption"]
_FAILURES = [
    "operator dies",
    "manager dies",
    "NodeManager restarts",
    "NodeManager is back",
    "ResourceManager is gone",
    "ResourceManager is back",
    "answers are lost",
    "answers are lies",
    "requests are late",
    "requests arrive",
    "all is well",
]
_EVENTS = st.one_of(
    st.tuples(st.just("load"), _CPUS, st.sampled_from([0.0, 3.3, 8.0, 15.9])),
    st.tuples(st.just("pod"), st.sampled_from([500, 1500, 4000]), st.sampled_from([1, 3])),
    st.tuples(st.just("container"), st.integers(1, 4), st.sampled_from([512, 3000])),
    st.tuples(st.sampled_from(_PODS)),
    st.tuples(st.sampled_from(_FAILURES)),
    st.tuples(st.sampled_from(_WORK)),
    st.tuples(st.sampled_from(_WORK)),
    st.tuples(st.sampled_from(_WORK)),
)


class Chronicle:
    """Plays events, and looks after each of them."""

    def __init__(self, headroom: int) -> None:
        policy = YarnPolicy(headroom_percent=headroom)
        self.it = YarnWorld(PlayedYarn(), YarnOptions(policy=policy, shrink_grace_s=2.0))
        self.it.cluster.load([node_manager_pod()])
        self.it.uses(0, 0)
        self.it.run(2)
        self.pods: list[str] = []
        self.count = 0
        self.late_until_s = 0.0

    def play(self, event: tuple[object, ...]) -> None:  # noqa: C901, PLR0912, PLR0915 -- one case per event
        """Execute an event."""
        it, yarn, manager = self.it, self.it.yarn, self.it.yarn.only
        match event:
            case ("load", float(cpus), float(memory)):
                it.uses(cpus, memory)
            case ("pod", int(cpu), int(memory)):
                self._schedule(BatchAmounts(cpu, memory * GIB))
            case ("container", int(vcores), int(memory_mb)):
                manager.start(YarnResource(vcores, memory_mb))
            case ("manager",):
                it.manager.step()
            case ("follower",):
                self._round()
            case ("operator",):
                it.operator.step()
            case ("everybody",):
                it.manager.step()
                self._round()
                it.operator.step()
            case ("pod ends",) if self.pods:
                it.cluster.delete(Pod, self.pods.pop(), "default", grace_period_s=0)
            case ("pod waits",):
                self.count += 1
                it.cluster.load([batch_pod(f"waits-{self.count}", 3000, GIB, node="")])
            case ("container ends",) if manager.containers:
                manager.containers.pop(0)
            case ("preemption",):
                manager.preempt()
            case ("operator dies",):  # a request that was sent may still be read
                it.restart_operator()
            case ("manager dies",):
                it.restart_manager()
            case ("NodeManager restarts",):
                manager.limit, manager.is_up, manager.containers = REGISTERED, False, []
            case ("NodeManager is back",):
                manager.is_up = True
            case ("ResourceManager is gone",):
                yarn.is_reachable = False
            case ("ResourceManager is back",):
                yarn.is_reachable = True
            case ("answers are lost",):
                yarn.loses_answers = True
            case ("answers are lies",):
                yarn.lies = True
            case ("requests are late",):
                yarn.applies_late = True
            case ("requests arrive",):
                yarn.catch_up()
            case ("all is well",):
                yarn.loses_answers = yarn.applies_late = yarn.lies = False
        self._let_time_pass()

    def check(self) -> None:
        """Raise unless what pods are shown and what YARN may hand out fit into the node."""
        it = self.it
        limit = it.limit().batch()
        for shown, yarn, origin in zip(it.shown(), limit, it.origin(), strict=True):
            assert not shown or shown + yarn <= origin

    def settle(self) -> None:
        """Run without faults for a while."""
        it, yarn = self.it, self.it.yarn
        yarn.catch_up()
        yarn.is_reachable = yarn.only.is_up = True
        yarn.loses_answers = yarn.applies_late = yarn.lies = False
        it.run(UNCONFIRMED_LIMIT_S + 10)
        yarn.only.preempt()
        it.run(10)

    def _round(self) -> None:
        for follower in self.it.followers.values():
            follower.round()
        if not self.it.yarn.late:
            self.late_until_s = self.it.clock.now_s() + UNCONFIRMED_LIMIT_S / 2

    def _let_time_pass(self) -> None:
        """Half a second; a request that is under way arrives within the operator's timeout."""
        self.it.clock.advance_to(self.it.clock.now_s() + 0.5)
        if self.it.clock.now_s() > self.late_until_s:
            self.it.yarn.catch_up()

    def _schedule(self, request: BatchAmounts) -> None:
        """Bind a pod as a scheduler does: by what the node shows."""
        if self.it.shown().covers(self.it.requested().plus(request)):
            self.count += 1
            name = f"pod-{self.count}"
            self.it.cluster.load([batch_pod(name, *request)])
            self.pods.append(name)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([0, 10, 50]), st.lists(_EVENTS, min_size=40, max_size=80))
def test_nothing_is_promised_twice(headroom: int, events: list[tuple[object, ...]]) -> None:
    """Pods are never shown what YARN may hand out; in the end YARN has all that pods leave it."""
    played = Chronicle(headroom)
    for event in events:
        played.play(event)
        played.check()

    played.settle()
    played.check()
    it = played.it
    left = it.origin().minus(it.requested())
    used = it.yarn.only.used.batch()
    assert left.covers(used) or it.limit().batch() == used.smaller(left)
    assert left.plus(REGISTERED.batch()).covers(it.limit().batch())
    if headroom == 0 and not it.operator.mirror.largest_waiting.cpu_milli:
        assert left.minus(it.limit().batch()).cpu_milli < 1000


_AMOUNTS = st.builds(BatchAmounts, st.integers(0, 20_000), st.integers(0, 64 * GIB))
_RESOURCES = st.builds(YarnResource, st.integers(0, 24), st.integers(0, 70_000))
_ACCOUNTS = st.builds(
    NodeAccount,
    origin=_AMOUNTS,
    shown=_AMOUNTS,
    promised=_AMOUNTS,
    others=_AMOUNTS,
    requested=_AMOUNTS,
    waiting=_AMOUNTS,
    yarn=st.none() | st.builds(YarnNodeReport, limit=_RESOURCES, used=_RESOURCES),
    unconfirmed_limit=_RESOURCES,
)


@settings(max_examples=examples(200))
@given(_ACCOUNTS, st.integers(0, 100))
def test_each_step_is_safe_alone(account: NodeAccount, headroom: int) -> None:
    """For any account: a limit grows only into what pods are not shown and don't hold.

    What YARN has, or may have in a moment, is promised to it.
    """
    step = settle(account, YarnPolicy(headroom_percent=headroom))

    if account.yarn is None:
        assert step.limit is None
        assert step.promise.covers(account.promised)
        return
    assert step.promise.covers(account.yarn.limit.batch())
    assert step.promise.covers(account.yarn.used.batch())
    assert step.promise.covers(account.unconfirmed_limit.batch())
    if step.limit is None:
        return
    theirs = account.shown.larger(account.requested).plus(account.others)
    free = account.origin.minus(theirs).smaller(account.promised)
    for new, old, left, used in zip(
        step.limit.batch(), account.yarn.limit.batch(), free, account.yarn.used.batch(), strict=True
    ):
        assert new <= max(left, used)
        assert new <= old or new <= left or new <= used
