"""Plugins as a profile has them: how each is built, and where it runs."""

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

from koordinator.api.kubescheduler import PluginArgs
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.contract.events import EventHint
from koordinator.scheduler.contract.example import PluginExample
from koordinator.scheduler.contract.hints import PluginHints
from koordinator.scheduler.contract.plugin import METHODS, SchedulingPlugin
from koordinator.scheduler.contract.results import MAX_SCORE, Reads
from koordinator.scheduler.rules.usage_kernels import Formula, Judgements
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

#: Extension point -> the method that implements it.
POINTS: Mapping[str, tuple[str, ...]] = {
    "preEnqueue": ("pre_enqueue",),
    "queueSort": ("queue_sort",),
    "preFilter": (
        "prefilter",
        "run_limit",
        "prefer_nodes",
        "find_one_node",
        "next_pod",
        "transform",
        "restorable",
    ),
    "filter": ("filter",),
    "postFilter": ("postfilter",),
    "preScore": ("score", "score_among"),
    "score": ("score", "score_among"),
    "reserve": ("reserve",),
    "permit": ("permit",),
    "preBind": ("reserve", "pre_bind"),
    "bind": ("bind",),
    "postBind": ("post_bind",),
}

ArgsType = TypeVar("ArgsType", bound=PluginArgs)


class NoArgs(PluginArgs, frozen=True, kw_only=True):
    """For plugins without arguments."""


@dataclass(frozen=True)
class PluginSpec(Generic[ArgsType]):
    """A plugin as the profile knows it.

    ``build`` must say what it returns: the extension points are read off it.
    """

    name: str
    args: type[ArgsType]
    build: Callable[[ArgsType, ResourceAxis], Any]
    events: tuple[EventHint, ...] = ()  # what could make a pod that it rejected schedulable
    max_score: int = MAX_SCORE
    example: PluginExample = field(default_factory=PluginExample)  # in which it speaks

    @cached_property
    def plugin_type(self) -> type:
        """The class of the plugin."""
        returned: type = typing.get_type_hints(self.build)["return"]
        return returned

    @cached_property
    def points(self) -> frozenset[str]:
        """The extension points that the plugin implements."""
        has = self.plugin_type
        return frozenset(
            point for point, names in POINTS.items() if any(hasattr(has, name) for name in names)
        )


@dataclass(frozen=True, slots=True)
class ActivePlugin:
    """A plugin that is switched on at some extension point of a profile.

    What it has is looked up once; a method that it lacks has the answer that stands here.
    """

    name: str
    plugin: SchedulingPlugin
    weight: int = 1
    max_score: int = MAX_SCORE
    has: frozenset[str] = field(init=False, compare=False)  # names of its methods
    hints: PluginHints = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Look up what the plugin has."""
        has = frozenset(name for name in METHODS if hasattr(self.plugin, name))
        object.__setattr__(self, "has", has)
        object.__setattr__(self, "hints", self.plugin.hints if "hints" in has else PluginHints())

    @classmethod
    def of(
        cls, name: str, plugin: object, weight: int = 1, max_score: int = MAX_SCORE
    ) -> "ActivePlugin":
        """Return any object as a plugin; that it has some concern's methods nobody has checked."""
        return cls(name, cast("SchedulingPlugin", plugin), weight, max_score)

    def applies(self, pod: PodClass) -> bool:
        """Return whether the plugin may have something to say about such pods."""
        return "applies" not in self.has or self.plugin.applies(pod)

    def formula(self, snapshot: Snapshot, pod: PodClass) -> Formula | None:
        """Return what the score computes from amounts; None if it is more than that."""
        formula = self.hints.formula
        return formula(snapshot, pod) if formula is not None else None

    def changes_amounts_only(self, snapshot: Snapshot, pod: PodClass) -> bool:
        """Return whether placing the pod changes nothing here but amounts and pod counts."""
        changes_amounts_only = self.hints.changes_amounts_only
        if changes_amounts_only is not None:
            return changes_amounts_only(snapshot, pod)
        holds = "reserve" in self.has and self.hints.filters(snapshot, pod)
        return self.plugin.reads is not Reads.PLACED and not holds

    def normalized(self, raw: IntArray) -> IntArray:
        """Return final scores of the raw ones of feasible nodes."""
        return self.plugin.normalize(raw) if "normalize" in self.has else raw


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """All that some filters and scores do, to be done at once."""

    asked: Judgements
    filters: tuple[str, ...]  # names of the plugins
    scores: tuple[str, ...]

    def judge(self, view: Snapshot, fits: BoolArray, total: IntArray) -> None:
        """Take away from ``fits`` where a filter rejects; add weighted scores where none does."""
        view.judge(self.asked, fits, total)


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins of one scheduler name, in the order in which they run at each point.

    The points stand in the order of a pod's way.
    """

    scheduler_name: str
    transform: tuple[ActivePlugin, ...] = ()
    pre_enqueue: tuple[ActivePlugin, ...] = ()
    next_pod: tuple[ActivePlugin, ...] = ()
    pre_filter: tuple[ActivePlugin, ...] = ()
    find_one_node: tuple[ActivePlugin, ...] = ()
    prefer_nodes: tuple[ActivePlugin, ...] = ()
    reservation_plugins: tuple[ActivePlugin, ...] = ()
    filter: tuple[ActivePlugin, ...] = ()
    score: tuple[ActivePlugin, ...] = ()
    post_filter: tuple[ActivePlugin, ...] = ()
    reserve: tuple[ActivePlugin, ...] = ()
    permit: tuple[ActivePlugin, ...] = ()
    gangs: tuple[ActivePlugin, ...] = ()  # of the permit plugins, those that decide pods together
    pre_bind: tuple[ActivePlugin, ...] = ()
    post_bind: tuple[ActivePlugin, ...] = ()
    #: what does ``Arithmetic.judge`` in its place, if somebody watches
    judge: Callable[[Arithmetic, Snapshot, BoolArray, IntArray], None] | None = None
    events: Mapping[str, tuple[EventHint, ...]] = field(default_factory=dict)

    def applicable_plugins(self, pod: PodClass) -> "Profile":
        """Return the profile without the plugins that have nothing to say about such a pod."""

        def left(actives: tuple[ActivePlugin, ...]) -> tuple[ActivePlugin, ...]:
            return tuple([active for active in actives if active.applies(pod)])

        return replace(
            self,
            pre_filter=left(self.pre_filter),
            prefer_nodes=left(self.prefer_nodes),
            filter=left(self.filter),
            score=left(self.score),
            reserve=left(self.reserve),
            permit=left(self.permit),
            pre_bind=left(self.pre_bind),
        )


def plugins_with(plugins: Iterable[ActivePlugin], *methods: str) -> tuple[ActivePlugin, ...]:
    """Return the plugins that have one of the methods."""
    return tuple(active for active in plugins if not active.has.isdisjoint(methods))
