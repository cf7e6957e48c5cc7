"""Calls out of the loop and the bindings, made to raise in a world of many kinds of pods."""

import sys
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec import structs
from tests.reservations import reservation
from tests.unit.scheduler.broken_plugins import (
    EVIL,
    KOORD,
    Boom,
    World,
    breaks,
    configuration,
    objects,
)
from tests.worlds import node, pod

from koordinator import scheduler
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.contract import NoArgs, Permit, PluginSpec, Refusal
from koordinator.scheduler.loop.scheduler import Scheduler
from koordinator.scheduler.snapshot import ObjectTable, ResourceAxis

_PACKAGE = Path(scheduler.__file__).parent
_SOURCE = str(_PACKAGE.parent)
_INSIDE = (f"{_PACKAGE}/loop/", f"{_PACKAGE}/binding/")
#: What keeps faults has to work itself; a clock and an error have nothing that breaks.
_NOT_BROKEN = (f"{_PACKAGE}/isolation.py", f"{_SOURCE}/foundation/")

#: The file and line of a call, and what it calls.
CallSite = tuple[str, int, str]


class Calls:
    """Recorder of calls out of the loop and the bindings while ``traced``.

    Each of the ``broken`` ones raises ``times`` times, at its first calls.
    """

    def __init__(self, broken: Collection[CallSite] = (), times: int = 1) -> None:
        self.sites: dict[CallSite, None] = {}
        self._left = dict.fromkeys(broken, times)

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Trace all calls of this thread within the context."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        caller, callee = frame.f_back, frame.f_code
        if event != "call" or caller is None:
            return
        by = caller.f_code.co_filename
        if not by.startswith(_INSIDE) or callee.co_filename.startswith((*_INSIDE, *_NOT_BROKEN)):
            return
        if not callee.co_filename.startswith(_SOURCE):
            return
        if caller.f_code in _FOR_TESTS or caller.f_code.co_filename.endswith("/consistency.py"):
            return
        site = (by.removeprefix(f"{_PACKAGE}/"), caller.f_lineno, callee.co_qualname)
        self.sites[site] = None
        if self._left.get(site):
            self._left[site] -= 1
            sys.settrace(self._called)  # the interpreter takes away what raises
            raise Boom(f"{site}")


_FOR_TESTS = (Scheduler.validate.__code__,)


class Hesitant:
    """Plugin that delays permit and bind of pods by name, and refuses one pod once."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str]] = Counter()

    def permit(self, pod: Pod, _node: str) -> Permit:
        """Refuse once, or wait."""
        if pod.metadata.name == "refused" and not self._is_known("permit", pod):
            return Permit(refusal=Refusal("not yet"))
        return self._answer("permit", pod)

    def pre_bind(self, _objects: ObjectTable, pod: Pod, _node: str) -> Permit:
        """Wait."""
        return self._answer("pre_bind", pod)

    def post_bind(self, _pod: Pod, _node: str) -> None:
        """Do nothing."""

    def _is_known(self, point: str, pod: Pod) -> bool:
        self._calls[point, pod.metadata.name] += 1
        return self._calls[point, pod.metadata.name] > 1

    def _answer(self, point: str, pod: Pod) -> Permit:
        waits = pod.metadata.name == "hesitant" and not self._is_known(point, pod)
        return Permit(wait_s=30.0 if waits else 0.0)


def _hesitant(_args: NoArgs, _axis: ResourceAxis) -> Hesitant:
    return Hesitant()


_CONFIG = configuration(permit="Hesitant", preBind="Hesitant", postBind="Hesitant")


def play(calls: Calls, rounds: int = 4) -> tuple[World, set[str]]:
    """Create, delete and change pods of many kinds, and return those with nodes in the end."""
    web = {"app": "web"}
    unreadable = {"scheduling.koordinator.sh/resource-status": "{"}
    group = {"pod-group.scheduling.sigs.k8s.io": "good"}
    world = World(
        *objects(with_evil=False),
        node("small", 4, "8Gi", labels={"for": "web"}),
        reservation("held", 1, on="n0"),
        reservation("asked", 1, template={"schedulerName": KOORD}),
        pod("user", 1, labels=web, schedulerName=KOORD),
        pod("low", 3, schedulerName=KOORD, on="small", priority=5500),
        pod("unreadable", 1, schedulerName=KOORD, on="small", annotations=unreadable),
        pod("other", 1, schedulerName="other"),
        pod("hesitant", 1, schedulerName=KOORD),
        pod("refused", 1, schedulerName=KOORD),
        pod("evil", 1, schedulerName=KOORD, labels={EVIL: "true"}),
        config=_CONFIG,
        out_of_tree=[PluginSpec("Hesitant", NoArgs, _hesitant)],
    )
    breaks(world.plugins()["NodeResourcesFit"], "compares", only_on_evil=True)
    one = world.one
    with calls.traced():
        world.load()
        _settle(world, rounds)
        one.load([pod("high", 3, schedulerName=KOORD, priority=9500, nodeSelector={"for": "web"})])
        one.cluster.delete(Pod, "good-plain", "default", grace_period_s=0)
        changed = one.cluster.get(Node, "n1")
        labels = changed.metadata.labels | {"new": "yes"}
        meta = structs.replace(changed.metadata, labels=labels)
        one.cluster.update(structs.replace(changed, metadata=meta))
        _settle(world, rounds)
        one.cluster.delete(Node, "n2")
        one.load(pod(f"last{i}", 1, schedulerName=KOORD) for i in range(3))
        one.load([pod("third", 1, schedulerName=KOORD, labels=group)])
        _settle(world, rounds)
        one.scheduler.finish()
        one.scheduler.report()
    one.scheduler.validate()
    return world, {p.metadata.name for p in one.cluster.list(Pod).items if p.spec.node_name}


def _settle(world: World, rounds: int) -> None:
    for _ in range(rounds):  # who failed for an error tries again after a while
        world.one.run_to_fixed_point()
        world.one.scheduler.next_wakeup_s()
        world.one.clock.advance_to(world.one.clock.now_s() + 15)
