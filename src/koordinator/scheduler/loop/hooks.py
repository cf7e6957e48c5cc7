"""Hooks of all features, as the loop calls them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Concatenate, ParamSpec, TypeVar, get_args

from koordinator.scheduler.loop.feature import Feature
from koordinator.scheduler.loop.feature_kinds import (
    BindingFeature,
    GateFeature,
    GroupFeature,
    HolderFeature,
)
from koordinator.scheduler.loop.outcomes import Fact

P = ParamSpec("P")
R = TypeVar("R")


class Hooks:
    """Hooks of all features, resolved to tuples of bound methods; empty before ``install``.

    Gate methods stand beside the name of their gate, ``consume_pod_event`` beside the label of the
    pods.
    """

    def __init__(self) -> None:
        self.install(())

    def install(self, features: Iterable[Feature]) -> None:
        """Use these features from now on; their order is the order of each hook.

        Only methods that a feature overrides become hooks, and whether a feature has a capability
        is decided here once: the loop iterates over tuples and never tests a feature per pod.
        """
        self.features = tuple(features)
        self.on_pod_event = self._having(Feature.on_pod_event)
        self.on_left_queue = self._having(Feature.on_left_queue)
        self.on_object_event = self._having(Feature.on_object_event)
        holders = [f for f in self.features if isinstance(f, HolderFeature)]
        self.consume_pod_event = tuple((f.holder_label, f.consume_pod_event) for f in holders)
        self.on_reservation_use = tuple(f.on_reservation_use for f in holders)
        self._gates = [f for f in self.features if isinstance(f, GateFeature)]
        self.gate_report = tuple((f.gate, f.gate_report) for f in self._gates)
        groups = [f for f in self.features if isinstance(f, GroupFeature)]
        self.unit = tuple(f.unit for f in groups)
        self.try_group = tuple(f.try_group for f in groups)
        self.pods_sharing_nomination = tuple(f.pods_sharing_nomination for f in groups)
        self.on_aborted_attempt = tuple(f.on_aborted_attempt for f in groups)
        self.on_released = tuple(f.on_released for f in groups)
        self._binders = [f for f in self.features if isinstance(f, BindingFeature)]
        observing = [f for f in self.features if type(f).observe is not Feature.observe]
        self.observe: Mapping[type[Fact], tuple[Callable[[Fact], None], ...]] = {
            kind: tuple(f.observe for f in observing if kind in f.observed)
            for kind in get_args(Fact)
        }
        self._steps = {
            feature: tuple(feature.steps())
            for feature in self.features
            if type(feature).steps is not Feature.steps
        }
        self.follow = self._having(Feature.follow)
        self.finish = self._having(Feature.finish)
        self.next_wakeup_s = self._having(Feature.next_wakeup_s)
        self.pages = self._having(Feature.pages)
        self.validate = self._having(Feature.validate)

        self.refresh()

    def refresh(self) -> None:
        """Resolve the hooks that skip idle features; called when ``is_idle`` of one changes."""
        self.needs_own_bind_event = self._having(Feature.needs_own_bind_event, idle=False)
        self.after_events = self._having(Feature.after_events, idle=False)
        gates = [f for f in self._gates if not f.is_idle]
        self.pre_enqueue = tuple((f.gate, f.pre_enqueue) for f in gates)
        self.take_ungated = tuple(f.take_ungated for f in gates)
        self.send_behind_gates = tuple(f.send_behind_gates for f in gates)
        self.on_gate_result = self._having(Feature.on_gate_result, idle=False)
        self.wake = self._having(Feature.wake, idle=False)
        self.on_placed = self._having(Feature.on_placed, idle=False)
        self.bind = tuple((f.has_own_bind, f.bind) for f in self._binders if not f.is_idle)
        self.work = self._having(Feature.work, idle=False)
        self.steps = tuple(
            step for feature, steps in self._steps.items() if not feature.is_idle for step in steps
        )

    def _having(
        self, method: Callable[Concatenate[Feature, P], R], *, idle: bool = True
    ) -> tuple[Callable[P, R], ...]:
        """Return the method of each feature that overrides it; without ``idle``, of busy ones."""
        name = method.__name__
        return tuple(
            getattr(feature, name)
            for feature in self.features
            if getattr(type(feature), name) is not method and (idle or not feature.is_idle)
        )
