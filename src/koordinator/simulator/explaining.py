"""Why pods of a given world wait: the scheduler runs until nothing moves, then it is asked."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.foundation.errors import InputError
from koordinator.scheduler.app import Bound, Options, Outcome
from koordinator.scheduler.app.explainer import PLACED, explain, key_of
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.explain import Explanation
from koordinator.simulator.embedded import STOCK, Embedded
from koordinator.simulator.forecast import forecast


def explain_pods(
    objects: Sequence[KubeObject],
    keys: Sequence[str] = (),
    configuration: KubeSchedulerConfiguration = STOCK,
    *,
    now_s: float = 0.0,
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    source: str = "",
    gates: FeatureGates = NO_GATES,
) -> list[Explanation]:
    """Explain pods, ``namespace/name``; without names all that wait.

    A pod that is asked about by name is also told when it would start.
    Raises InputError for a name that no pod has.
    """
    specs = tuple(out_of_tree)

    def world() -> tuple[Embedded, list[Outcome]]:
        one = Embedded(
            configuration,
            now_s=now_s,
            options=Options(
                initial_backoff_s=configuration.pod_initial_backoff_seconds,
                max_backoff_s=configuration.pod_max_backoff_seconds,
            ),
            out_of_tree=specs,
            source=source,
            gates=gates,
        )
        one.load(objects)
        return one, one.run_to_fixed_point()

    now, outcomes = world()
    state = now.state
    keys = [key_of(now.scheduler, name) for name in keys]
    waiting = sorted(key for key in state.unbound if key not in state.pods.by_key)
    unknown = [key for key in keys if key not in state.pods.by_key and key not in state.unbound]
    if unknown:
        accepted = ", ".join(waiting[:10]) or "nothing: no pod waits"
        raise InputError(f"found {unknown[0]!r}; accepted is one of {accepted}", source="pod")
    bound = {outcome.pod for outcome in outcomes if isinstance(outcome, Bound)}
    told = []
    for key in keys or waiting:
        one = explain(now.scheduler, key)
        if one.verdict == PLACED and key in bound:
            one = replace(one, summary=f"it would be placed on {one.node} now")
        elif one.verdict != PLACED and keys:
            one = replace(one, forecast=forecast(world()[0], key))
        told.append(one)
    return told
