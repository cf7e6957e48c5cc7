"""The plugins of a profile, by extension point and in running order."""

import copy
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from inspect import isfunction
from typing import Any, cast

from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract.advanced import METHODS, PluginHints, SchedulingPlugin
from koordinator.scheduler.contract.events import EventHint
from koordinator.scheduler.contract.plugin import MAX_SCORE, PluginSpec, Reads
from koordinator.scheduler.rules.usage_kernels import Formula, Judgements
from koordinator.scheduler.snapshot import PodClass, Snapshot

#: Extension point -> the methods that implement it.
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
    "placementGenerate": ("placements",),
    "placementScore": ("score_placement",),
}


def points_of(spec: PluginSpec[Any]) -> frozenset[str]:
    """Return the extension points that a plugin implements."""
    return _points_of_type(spec.plugin_type)


@functools.cache
def _points_of_type(plugin_type: type) -> frozenset[str]:
    return frozenset(
        point
        for point, names in POINTS.items()
        if any(hasattr(plugin_type, name) for name in names)
    )


def _methods_of(plugin: object) -> frozenset[str]:
    """Return the names of the contract that an object has."""
    plugin_type: type = type(plugin)
    certain, possible = _methods_of_type(plugin_type)
    has = {name for name in possible if hasattr(plugin, name)}
    return certain.union(has, METHODS.intersection(getattr(plugin, "__dict__", ())))


@functools.cache
def _methods_of_type(plugin_type: type) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that all objects of a type have, and those that each may have.

    An object may lack a property or a slot of its type; a type that overrides the lookup of
    attributes may have any.  What else is in the ``__dict__`` of an object is not counted.
    """
    lookup: object = plugin_type.__getattribute__
    if lookup is not object.__getattribute__ or hasattr(plugin_type, "__getattr__"):
        return frozenset(), METHODS
    has = frozenset(name for name in METHODS if hasattr(plugin_type, name))
    certain = frozenset(name for name in has if isfunction(getattr(plugin_type, name)))
    return certain, has - certain


@dataclass(frozen=True, slots=True)
class ActivePlugin:
    """A plugin that a profile enables at some extension point.

    Its methods are looked up once; the methods below add the defaults of those that it lacks.
    """

    name: str
    plugin: SchedulingPlugin
    weight: int = 1
    max_score: int = MAX_SCORE
    has: frozenset[str] = field(init=False, compare=False)  # names of its methods
    hints: PluginHints = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Look up the methods of the plugin."""
        has = _methods_of(self.plugin)
        object.__setattr__(self, "has", has)
        object.__setattr__(self, "hints", self.plugin.hints if "hints" in has else PluginHints())

    @classmethod
    def of(
        cls, name: str, plugin: object, weight: int = 1, max_score: int = MAX_SCORE
    ) -> "ActivePlugin":
        """Wrap an object; whether its methods match the contract is not checked."""
        return cls(name, cast("SchedulingPlugin", plugin), weight, max_score)

    def with_weight(self, weight: int) -> "ActivePlugin":
        """Return the plugin with the weight that it has at another extension point."""
        other = copy.copy(self)
        object.__setattr__(other, "weight", weight)
        return other

    def applies(self, pod: PodClass) -> bool:
        """Return False if the plugin ignores such pods."""
        return "applies" not in self.has or self.plugin.applies(pod)

    def formula(self, snapshot: Snapshot, pod: PodClass) -> Formula | None:
        """Return the score as a formula of amounts; None if it is none."""
        formula = self.hints.formula
        return formula(snapshot, pod) if formula is not None else None

    def changes_amounts_only(self, snapshot: Snapshot, pod: PodClass) -> bool:
        """Return whether placing the pod changes only amounts and pod counts for the plugin."""
        changes_amounts_only = self.hints.changes_amounts_only
        if changes_amounts_only is not None:
            return changes_amounts_only(snapshot, pod)
        holds = "reserve" in self.has and self.hints.filters(snapshot, pod)
        return self.plugin.reads is not Reads.PLACED and not holds

    def normalized(self, raw: IntArray) -> IntArray:
        """Return the final scores for raw scores of feasible nodes."""
        return self.plugin.normalize(raw) if "normalize" in self.has else raw


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Filters and scores that are arithmetic on amounts, evaluated in one kernel."""

    judgements: Judgements
    filters: tuple[str, ...]  # names of the plugins
    scores: tuple[str, ...]

    def judge(self, view: Snapshot, fits: BoolArray, total: IntArray) -> None:
        """Set ``fits`` to False where a filter rejects; add the weighted scores elsewhere."""
        view.judge(self.judgements, fits, total)


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins of one scheduler name by extension point, each in running order."""

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
    gangs: tuple[ActivePlugin, ...] = ()  # the permit plugins that decide pods together
    pre_bind: tuple[ActivePlugin, ...] = ()
    post_bind: tuple[ActivePlugin, ...] = ()
    placement_generate: tuple[ActivePlugin, ...] = ()  # at most one
    placement_score: tuple[ActivePlugin, ...] = ()
    pod_group_post_filter: tuple[ActivePlugin, ...] = ()
    #: replacement of ``Arithmetic.judge`` that measures it; None: not measured
    judge: Callable[[Arithmetic, Snapshot, BoolArray, IntArray], None] | None = None
    events: Mapping[str, tuple[EventHint, ...]] = field(default_factory=dict)

    def applicable_plugins(self, pod: PodClass) -> "Profile":
        """Return the profile without the plugins that ignore such pods."""
        applies: dict[int, bool] = {}  # by plugin: most are at several extension points

        def applicable(actives: tuple[ActivePlugin, ...]) -> tuple[ActivePlugin, ...]:
            for active in actives:
                if id(active.plugin) not in applies:
                    applies[id(active.plugin)] = active.applies(pod)
            return tuple([active for active in actives if applies[id(active.plugin)]])

        return replace(
            self,
            pre_filter=applicable(self.pre_filter),
            prefer_nodes=applicable(self.prefer_nodes),
            filter=applicable(self.filter),
            score=applicable(self.score),
            reserve=applicable(self.reserve),
            permit=applicable(self.permit),
            pre_bind=applicable(self.pre_bind),
        )


def plugins_with(plugins: Iterable[ActivePlugin], *methods: str) -> tuple[ActivePlugin, ...]:
    """Return the plugins that have one of the methods."""
    return tuple(active for active in plugins if not active.has.isdisjoint(methods))
