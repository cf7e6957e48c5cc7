"""Random events in random order: no quota admits too much, and no unit is lost."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.unit.manager.queue_units.worlds import World, is_over, job, queue, quota

from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import JsonObject
from koordinator.api.queue_unit import QueueUnit
from koordinator.api.workload import Job
from koordinator.cluster.port import Cluster
from koordinator.domain.amounts import amounts_of
from koordinator.foundation.errors import ClusterError, NotFoundError
from koordinator.manager.queue_units.configuration import QueueConfiguration, UnitPlugin
from koordinator.manager.queue_units.controller import NO_QUEUE, QueueChoice

MAX = {"top": 5, "left": 4, "right": 3}
PARENTS = {"left": "top", "right": "top"}


class FaultyCluster:
    """Cluster whose writes fail and whose answers get lost, by a list of draws."""

    def __init__(self, real: Any, faults: list[int]) -> None:
        self._real, self._faults = real, faults

    def __getattr__(self, name: str) -> Any:
        result = getattr(self._real, name)
        return self._faulty(result) if name in ("create", "patch", "delete") else result

    def _faulty(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            fault = self._faults.pop() if self._faults else 0
            if fault == 1:
                raise ClusterError("no")
            answer = verb(*args, **more)
            if fault == 2:
                raise ClusterError("the answer got lost")
            return answer

        return call


_names = st.sampled_from([f"j{n}" for n in range(6)])
_amounts = st.integers(0, 3)
_ops = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"),
            _names,
            st.tuples(_amounts, st.integers(1, 2), st.sampled_from(["left", "right"]), _amounts),
        ),
        st.tuples(st.sampled_from(["delete", "end", "suspend", "pods", "slow", "unit"]), _names),
        st.tuples(st.just("check"), _names, st.sampled_from(["Ready", "Retry", "Rejected", "?"])),
        st.tuples(st.just("say"), _names, st.sampled_from(["SchedSucceed", "SchedFailed"])),
        st.tuples(st.just("step"), st.integers(1, 3)),
        st.tuples(st.just("other")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("wait"), st.sampled_from([1, 30, 61])),
    ),
    max_size=40,
)


def too_much(world: World) -> dict[str, int]:
    """Return the quotas that are exceeded by the requests of jobs that may have pods."""
    used: dict[str, int] = defaultdict(int)
    for each in world.jobs():
        if is_over(each) or (each.spec.suspend and not each.status.active):
            continue
        assert each.spec.template is not None
        requests = each.spec.template.spec.containers[0].resources.requests
        cpu = amounts_of(requests).get("cpu", 0) // 1000 * (each.spec.parallelism or 0)
        name = each.metadata.labels[QUOTA_NAME]
        for level in (name, PARENTS[name]):
            used[level] += cpu
    return {name: cpu for name, cpu in used.items() if cpu > MAX[name]}


@pytest.mark.slow
@settings(max_examples=examples(35), deadline=None)
@given(
    ops=_ops,
    faults=st.lists(st.sampled_from([0, 0, 0, 1, 2]), max_size=30),
    policy=st.sampled_from(["Priority", "Block"]),
    switches=st.fixed_dictionaries(
        {name: st.booleans() for name in ("preempts", "waits", "is_strict", "has_checks", "tree")}
    ),
)
def test_no_quota_lets_in_too_much_and_nothing_is_lost(
    ops: list[Any], faults: list[int], policy: str, switches: dict[str, bool]
) -> None:
    """Jobs come, end, go, are suspended; checks and schedulers say this and that.

    Writes fail, answers get lost, the manager restarts, and another one works at the same time.
    """
    world = World(
        *_quotas(tree=switches["tree"]),
        *(_queue(name, policy, switches) for name in ("left", "right")),
        configuration=_TREE if switches["tree"] else QueueConfiguration(),
        strict_queues=QueueChoice() if switches["is_strict"] else NO_QUEUE,
        pods_ready_s=60.0,
    )
    faulty = FaultyCluster(world.cluster, faults)
    world.manager = world.start(cast("Cluster", faulty))
    other = world.start(cast("Cluster", faulty))
    for op, *args in ops:
        if op == "other":
            other.step()
        else:
            _do(world, faulty, op, args)
        assert not too_much(world)
    faults.clear()
    world.pass_time(120)
    for _ in range(8):  # units that wait for pods, back off or are checked proceed
        _let_all_pass(world)
        world.pass_time(30)
        assert not too_much(world)
    _check_nothing_is_lost(world)


_TREE = QueueConfiguration(frozenset((UnitPlugin.PRIORITY, UnitPlugin.ELASTIC_QUOTA)))


def _quotas(*, tree: bool) -> list[JsonObject]:
    if not tree:
        return [quota(name, cpu, PARENTS.get(name, "")) for name, cpu in MAX.items()]
    children = [{"name": name, "max": {"cpu": MAX[name]}} for name in PARENTS]
    return [
        {
            "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
            "kind": "ElasticQuotaTree",
            "metadata": {"name": "tree", "namespace": "kube-system"},
            "spec": {"root": {"name": "root", "max": {"cpu": MAX["top"]}, "children": children}},
        }
    ]


def _queue(name: str, policy: str, switches: dict[str, bool]) -> JsonObject:
    made = queue(
        name,
        policy,
        enable_queueunit_preemption=str(switches["preempts"]).lower(),
        wait_for_pods_running=str(switches["waits"]).lower(),
        quota_fullname=f"root/{name}",
    )
    if switches["has_checks"]:
        made["spec"]["admissionChecks"] = [{"name": "one"}, {"name": "two"}]
    return made


def _let_all_pass(world: World) -> None:
    """Activate all units, and pass their admission checks and strict mode."""
    for unit in world.cluster.list(QueueUnit).items:
        if unit.spec.active is False:
            patch = {"spec": {"active": True}}
            world.cluster.patch(QueueUnit, unit.metadata.name, "default", patch)
        elif unit.status.phase == "SchedReady":
            _report(world, unit.metadata.name, phase="SchedSucceed")
        elif unit.status.phase == "Reserved":
            _check(world, unit.metadata.name, "Ready")


def _check(world: World, name: str, state: str) -> None:
    checks = world.unit(name).status.admission_checks
    _report(world, name, admission_checks=tuple(replace(it, state=state) for it in checks))


def _report(world: World, name: str, **fields: Any) -> None:
    unit = world.unit(name)
    world.cluster.update_status(replace(unit, status=replace(unit.status, **fields)))


def _do(world: World, faulty: FaultyCluster, op: str, args: list[Any]) -> None:
    known = {it.metadata.name for it in world.jobs()}
    if op == "restart":
        world.manager = world.start(cast("Cluster", faulty))
    elif op == "step":
        for _ in range(args[0]):
            world.manager.step()
    elif op == "wait":
        world.clock.advance_to(world.clock.now_s() + args[0])
    elif op == "add":
        if args[0] not in known:
            cpu, pods, name, priority = args[1]
            world.add(job(args[0], cpu, pods=pods, quota=name, priority=priority))
    elif op in ("check", "say"):
        with suppress(NotFoundError):
            if op == "check":
                _check(world, args[0], args[1])
            else:
                _report(world, args[0], phase=args[1])
    elif args[0] in known:
        _do_to(world, op, args[0])


def _do_to(world: World, op: str, name: str) -> None:
    if op == "delete":
        world.cluster.delete(Job, name, "default")
    elif op == "end" and not world.job(name).spec.suspend:
        world.end(name)
    elif op == "suspend":
        world.cluster.patch(Job, name, "default", {"spec": {"suspend": True}})
    elif op in ("pods", "slow"):
        world.make_pods(name, run=op == "pods")
    elif op == "unit":
        with suppress(NotFoundError):
            world.cluster.delete(QueueUnit, name, "default")


def _check_nothing_is_lost(world: World) -> None:
    """Every job runs, is over, or waits for a reason; every unit has its job."""
    units = {it.metadata.name: it for it in world.cluster.list(QueueUnit).items}
    jobs = {it.metadata.name: it for it in world.jobs()}
    assert units.keys() <= jobs.keys()
    for name, each in jobs.items():
        if is_over(each):
            continue
        unit = units[name]
        if each.spec.suspend:
            assert unit.status.phase == "Enqueued", unit.status
            assert unit.status.message
        else:
            assert unit.status.phase == "Running"
    waiting = [it for name, it in jobs.items() if it.spec.suspend and not is_over(it)]
    for each in waiting:
        reason = units[each.metadata.name].status.message
        assert "has no room" in reason or "does not fit" in reason
