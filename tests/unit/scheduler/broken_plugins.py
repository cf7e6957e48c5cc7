"""Plugins that raise on purpose, in a world of many kinds of pods."""

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

import yaml
from tests.worlds import START_S, made, metric, node, pod, spread, used

from koordinator.api.kubescheduler import decode_configuration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.errors import Fault
from koordinator.scheduler import contract
from koordinator.scheduler.contract import ActivePlugin
from koordinator.scheduler.loop import SchedulerOptions
from koordinator.scheduler.post_filter import Attempt
from koordinator.scheduler.snapshot import PodClass
from koordinator.simulator import Embedded

EVIL, KOORD = "example.com/evil", "koord-scheduler"
GROUP, QUOTA = "pod-group.scheduling.sigs.k8s.io", "quota.scheduling.koordinator.sh/name"
#: Every method of the contract.
METHODS = tuple(sorted(contract.METHODS))
#: Asked while the scheduler is built, before there is any object.
BUILDING = ("setup", "with_gates")


class Boom(Exception):  # noqa: N818 -- an unexpected failure
    """Raised by a broken plugin."""


def configuration(**more: str) -> Any:
    """Return the configuration of the chart with ``more`` plugins by point."""
    values = yaml.load(Path("charts/koordinator/values.yaml").read_text(), yaml.CSafeLoader)
    config = values["scheduler"]["config"]
    for point, name in more.items():
        points = config["profiles"][0]["plugins"].setdefault(point, {})
        points.setdefault("enabled", []).append({"name": name})
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return decode_configuration(config | kind, "values.yaml")


CONFIG = configuration()


def _koord(name: str, *args: Any, evil: bool = False, **more: Any) -> Pod:
    labels = more.pop("labels", {}) | ({EVIL: "true"} if evil else {})
    return pod(name, *args, labels=labels, schedulerName=KOORD, **more)


def objects(*, with_evil: bool) -> list[KubeObject]:
    """Return nodes with devices and loads, a quota, gangs, and pending pods of every kind."""
    numbers = range(3)
    quota_max = {"cpu": "100", "memory": "400Gi"}
    result: list[KubeObject] = [
        *(node(f"n{i}", 16, "64Gi", zone=f"z{i}") for i in numbers),
        *(metric(f"n{i}", node=used(i, f"{i}Gi")) for i in numbers),
        made(
            "ElasticQuota",
            "q",
            "scheduling.sigs.k8s.io/v1alpha1",
            metadata={"namespace": "default"},
            spec={"max": quota_max, "min": quota_max},
        ),
        *(
            made(
                "PodGroup",
                name,
                "scheduling.sigs.k8s.io/v1alpha1",
                metadata={"namespace": "default"},
                spec={"minMember": 2},
            )
            for name in ("good", "evil")
        ),
        _koord("runs", 1, "1Gi", on="n0", labels={"app": "a"}),
    ]
    for evil in (True, False) if with_evil else (False,):
        name = "evil" if evil else "good"
        result += [
            _koord(f"{name}-plain", 1, "1Gi", evil=evil),
            _koord(f"{name}-plain2", 1, "1Gi", evil=evil),
            _koord(
                f"{name}-spread",
                1,
                "1Gi",
                evil=evil,
                labels={"app": "a"},
                topologySpreadConstraints=[spread("a")],
            ),
            _koord(f"{name}-quota", 1, "1Gi", evil=evil, labels={QUOTA: "q"}),
            _koord(
                f"{name}-bound-cpus",
                1,
                "1Gi",
                evil=evil,
                priority=9500,
                labels={"koordinator.sh/qosClass": "LSR"},
            ),
            _koord(f"{name}-giant", 500, "1Gi", evil=evil),
            *(
                _koord(f"{name}-member{i}", 1, "1Gi", evil=evil, labels={GROUP: name})
                for i in range(2)
            ),
        ]
    return result  # fmt: skip


class World:
    """Embedded scheduler that records its faults."""

    def __init__(
        self, *loaded: KubeObject, config: Any = CONFIG, out_of_tree: Sequence[Any] = ()
    ) -> None:
        self.faults: list[Fault] = []
        self.one = Embedded(
            config,
            now_s=START_S,
            options=SchedulerOptions(report=True),
            on_fault=self.faults.append,
            out_of_tree=out_of_tree,
        )
        self._loaded = loaded

    def load(self) -> None:
        """Create the objects."""
        self.one.load(self._loaded)

    def run(self) -> dict[str, str]:
        """Schedule; return the node of each pod that has one."""
        self.load()
        for _ in range(2):  # who had to wait for a gate to be asked again gets there, too
            self.one.run_to_fixed_point()
            self.one.clock.advance_to(self.one.clock.now_s() + 15)
        self.one.run_to_fixed_point()
        self.one.scheduler.validate()
        items = self.one.cluster.list(Pod).items
        return {p.metadata.name: p.spec.node_name for p in items if p.spec.node_name}

    def plugins(self) -> dict[str, list[ActivePlugin]]:
        """Return the plugins by name, each as often as the profile has it."""
        return plugins_of(self.one)


def plugins_of(one: Embedded) -> dict[str, list[ActivePlugin]]:
    """Return the plugins of the only profile by name, once per instance."""
    (cycle,) = one.scheduler.cycles.values()
    by_name: dict[str, list[ActivePlugin]] = {}
    for name in cycle.profile.__dataclass_fields__:
        part = getattr(cycle.profile, name)
        for active in part if isinstance(part, tuple) else ():
            by_name.setdefault(active.name, []).append(active)
    return by_name


def breaks(
    actives: Sequence[ActivePlugin], method: str, *, only_on_evil: bool, times: int = 1 << 30
) -> list[int]:
    """Make a plugin's method raise, and return a list with an item per failure."""
    raised: list[int] = []

    def fail(args: Sequence[Any]) -> None:
        if len(raised) < times and (not only_on_evil or any(map(_is_evil, args))):
            raised.append(1)
            raise Boom(method)

    _intercept(actives, method, fail)
    return raised


def _intercept(
    actives: Sequence[ActivePlugin], method: str, before: Callable[[Sequence[Any]], None]
) -> None:
    """Call ``before`` with the arguments of each call of a plugin's method."""
    plugin: Any = actives[0].plugin
    of_speed = actives[0].hints.overrides().get(method)
    own: Any = (lambda _, *args: of_speed(*args)) if of_speed else getattr(type(plugin), method)  # type: ignore[operator]

    def broken(self: Any, *args: Any, **more: Any) -> Any:
        before(args)
        return own(self, *args, **more)

    broken.__code__ = broken.__code__.replace(co_name=method)
    if of_speed is not None:
        overrides: Any = {method: MethodType(broken, plugin)}
        for active in actives:
            object.__setattr__(active, "hints", replace(active.hints, **overrides))
        return
    kind = type(type(plugin).__name__, (type(plugin),), {"__slots__": (), method: broken})
    object.__setattr__(plugin, "__class__", kind)


def _count(calls: Counter[str], method: str, _args: Sequence[Any]) -> None:
    calls[method] += 1


@functools.cache
def called_methods(name: str) -> tuple[str, ...]:
    """Return the methods of a plugin that are called when the world is scheduled.

    A fault in another method would change nothing.
    """
    world, calls = World(*objects(with_evil=True)), Counter[str]()
    methods = [method for plugin, method in breakable() if plugin == name]
    for method in methods:
        _intercept(world.plugins()[name], method, functools.partial(_count, calls, method))
    world.run()
    return tuple(method for method in methods if calls[method])


@functools.cache
def breakable() -> tuple[tuple[str, str], ...]:
    """Return each method of each plugin that runs while pods are scheduled."""
    return tuple(_breakable())


def _breakable() -> Iterator[tuple[str, str]]:
    for name, (active, *_) in sorted(World().plugins().items()):
        for method in METHODS:
            own = getattr(type(active.plugin), method, None)
            if method not in BUILDING and inspect.isfunction(own):
                yield name, method
        for method, hint in active.hints.overrides().items():
            if callable(hint):
                yield name, method


def _is_evil(value: Any) -> bool:
    match value:
        case Pod():
            return EVIL in value.metadata.labels
        case PodClass():
            return EVIL in value.labels
        case Attempt():
            return EVIL in value.pod.metadata.labels
    return False
