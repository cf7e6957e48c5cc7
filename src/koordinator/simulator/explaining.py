"""Why pods of a given world wait: the scheduler runs until nothing moves, then it is asked."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.domain.reservations.reserve_pod import OVER, spoken_name
from koordinator.foundation.errors import InputError, NotFoundError
from koordinator.scheduler.app import Bound, Options, Outcome
from koordinator.scheduler.app.explainer import PLACED, explain, key_of
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.explain import Explanation
from koordinator.scheduler.ingest import is_over
from koordinator.simulator.embedded import STOCK, Embedded
from koordinator.simulator.forecast import forecast

ENDED, LOST = "ended", "lost"


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
    waiting = sorted(key for key in state.unbound if key not in state.pods.by_key)
    bound = {outcome.pod for outcome in outcomes if isinstance(outcome, Bound)}
    told = []
    for name in keys or waiting:
        key = key_of(now.scheduler, name)
        if key not in state.pods.by_key and key not in state.unbound:
            names = [spoken_name(state.unbound[key][0]) for key in waiting]
            told.append(_out_of_sight(now, name, names))
            continue
        one = explain(now.scheduler, key)
        if one.verdict == PLACED and key in bound:
            one = replace(one, summary=f"it would be placed on {one.node} now")
        elif one.queue is not None and one.verdict != PLACED and keys:
            one = replace(one, forecast=forecast(world()[0], key))
        told.append(one)
    return told


def _out_of_sight(world: Embedded, name: str, waiting: Sequence[str]) -> Explanation:
    """Tell of a pod or reservation that the scheduler has no eye on.

    Raises InputError if there is none of that name.
    """
    kind, _, rest = name.partition("/")
    try:
        if kind == "reservation":
            phase = world.cluster.get(Reservation, rest).status.phase
            if phase in OVER:
                return Explanation(pod=name, verdict=ENDED, summary=f"it has ended: {phase}")
            summary = "no profile has the plugin Reservation, so nobody schedules it"
            return Explanation(pod=name, verdict=LOST, summary=summary)
        pod = world.cluster.get(Pod, rest, kind)
    except NotFoundError:
        accepted = ", ".join(waiting[:10]) or "nothing: no pod waits"
        raise InputError(f"found {name!r}; accepted is one of {accepted}", source="pod") from None
    node = pod.spec.node_name
    if is_over(pod):
        summary = f"it has ended: {pod.status.phase}"
        return Explanation(pod=name, verdict=ENDED, summary=summary, node=node)
    summary = f"it is bound to node {node}, which does not exist"
    return Explanation(pod=name, verdict=LOST, summary=summary, node=node)
