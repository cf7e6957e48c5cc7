"""Inputs of QoS strategies, and the selection of pods to evict.

A strategy returns *tasks*: the amounts to release, and the candidates in order.  One victim can
count for several tasks.

Source: koordinator pkg/koordlet/qosmanager/plugins/util/evict.go, ``KillAndEvictPods``.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum

from koordinator.api.defaults import DEFAULT_GRACE_PERIOD_S
from koordinator.api.qos import PriorityBand, QosClass, priority_of
from koordinator.api.resource_names import BAND_RESOURCES, MEMORY
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.intents import EndContainers, EvictPod
from koordinator.koordlet.metrics import Aggregate, Metric, MetricStore
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

ReleaseAmounts = Mapping[str, float]  # by resource name: milli-CPU of cpu, whole units otherwise
_BATCH_NAMES: Mapping[str, str] = BAND_RESOURCES[PriorityBand.BATCH]
_HIGHEST_EVICTABLE = 7999  # prod pods are not evicted because of requests

_FRESH = 2  # intervals, after which a sample is outdated


class Target(StrEnum):
    """Quantity that a task releases: usage or requests of pods."""

    USED = "podUsed"
    REQUESTED = "podResourceRequest"


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """Eviction candidate, with its usage and request of one resource in milli-CPU or bytes."""

    pod: PodView
    used: float
    requested: float


@dataclass(frozen=True, slots=True)
class Task:
    """Release ``release`` of ``target``, from candidates in order of eviction.

    ``gain`` returns the contribution of a pod; ``why`` completes the message.
    """

    feature: str
    target: Target
    release: ReleaseAmounts
    candidates: Sequence[EvictionCandidate]
    gain: Callable[[EvictionCandidate], ReleaseAmounts]
    why: str


def choose_with_copilot(
    tasks: Sequence[Task], leaving: Collection[str], runtimes: Collection[str]
) -> tuple[list[EvictPod], EndContainers | None]:
    """Return the victims, and the amounts that containers of another runtime release.

    ``runtimes`` are UIDs of pods that run other containers, such as NodeManagers of YARN: instead
    of evicting them, their containers release the rest of the task.
    """
    released: dict[Target, dict[str, float]] = {target: {} for target in Target}
    considered: set[str] = set()
    victims = []
    request: EndContainers | None = None
    counting = [task for task in tasks if any(amount > 0 for amount in task.release.values())]
    for task in tasks:
        for candidate in task.candidates:
            if not _is_missing(task, released[task.target]):
                break
            pod = candidate.pod
            if pod.uid in considered:
                continue
            considered.add(pod.uid)
            if pod.uid in runtimes:
                request = _extended(request, task, released[task.target])
                break
            if pod.uid not in leaving:
                victims.append(_eviction(task, pod))
            for target, amounts in _gains(counting, candidate).items():
                for resource, amount in amounts.items():
                    sums = released[target]
                    sums[resource] = sums.get(resource, 0.0) + amount
    return victims, request


def is_runtime(pod: PodView) -> bool:
    """Return whether a pod runs containers of another runtime: a NodeManager of YARN."""
    return pod.is_node_manager


def _extended(
    request: EndContainers | None, task: Task, released: Mapping[str, float]
) -> EndContainers:
    """Return the request with the shortfall of a task; the larger amount of each resource."""
    amounts = dict(request.amounts) if request is not None else {}
    for name, amount in task.release.items():
        shortfall = amount - released.get(name, 0.0)
        resource = _BATCH_NAMES.get(name, name)
        if shortfall > 0 and resource in _BATCH_NAMES.values():
            amounts[resource] = max(amounts.get(resource, 0.0), shortfall)
    message = f"trigger by koordlet feature {task.feature}, end containers of YARN: {task.why}"
    return EndContainers(amounts, task.feature, message)


def by_priority(
    view: NodeView,
    feature: str,
    resource: str,
    *,
    highest_priority: int,
    used: Callable[[PodView], float | None],
    weight: Callable[[EvictionCandidate], float],
) -> list[EvictionCandidate]:
    """Return the active pods that allow eviction: least important first, then heaviest.

    A pod without samples (``used`` is None) is no candidate.
    """
    candidates = []
    for pod in view.active_pods:
        amount = used(pod)
        if (
            amount is not None
            and pod.agrees_to_eviction
            and pod.may_be_evicted(feature)
            and priority_of(pod.pod) <= highest_priority
        ):
            requested = float(band_request(pod, resource)[1])
            candidates.append(EvictionCandidate(pod, amount, requested))
    return sorted(candidates, key=lambda each: (*each.pod.eviction_order, -weight(each)))


def best_effort_pods(
    view: NodeView, used: Callable[[PodView], float | None], resource: str
) -> list[EvictionCandidate]:
    """Return the active BE pods, in the order of the node.

    Lists of features in their annotations do not protect best-effort pods.
    """
    return [
        EvictionCandidate(pod, used(pod) or 0.0, float(pod.requests.get(resource, 0)))
        for pod in view.active_pods
        if pod.labelled_qos is QosClass.BE
    ]


def band_request(pod: PodView, resource: str) -> tuple[str, int]:
    """Return the resource of the pod's band for cpu or memory, and the requested amount."""
    names = BAND_RESOURCES.get(pod.band, {})
    name = names.get(resource, resource)
    return name, pod.requests.get(name, 0)


def overcommitted(
    view: NodeView, resource: str, highest_priority: int, threshold: int, lower: int
) -> dict[str, float]:
    """Return the requests of active pods beyond ``threshold`` percent of the allocatable.

    The amounts, by the resources of the bands, are measured from ``lower`` percent.  For a
    resource that the node does not offer, return the whole request.
    """
    sums: dict[str, int] = {}
    for pod in view.active_pods:
        if priority_of(pod.pod) <= highest_priority:
            name, amount = band_request(pod, resource)
            sums[name] = sums.get(name, 0) + amount
    release = {}
    for name, requested in sums.items():
        allocatable = view.machine.allocatable.get(name, 0)
        if not allocatable:
            release[name] = float(requested)
        elif requested / allocatable > threshold / 100:
            # The two forms of the formula round differently; both are as in the original.
            beyond = requested - lower / 100 * allocatable
            if resource == MEMORY:
                beyond = (requested / allocatable - lower / 100) * allocatable
            release[name] = float(int(beyond))
    return release


def requested_task(
    view: NodeView,
    feature: str,
    resource: str,
    percents: tuple[int | None, int | None],
    candidates: Callable[[int], list[EvictionCandidate]],
) -> Task | None:
    """Return the task for requests of cpu or memory beyond a percentage of the allocatable.

    ``percents`` are the threshold and the lower target.  ``candidates`` returns the candidates up
    to a priority.  Return None if the thresholds are missing or inconsistent.
    """
    percent, lower = percents
    highest = view.threshold.allocatable_evict_priority_threshold
    if percent is None or lower is None or lower >= percent:
        return None
    if highest is None or highest > _HIGHEST_EVICTABLE:
        return None
    release = overcommitted(view, resource, highest, percent, lower)
    bands = {
        band for band, names in BAND_RESOURCES.items() if any(n in release for n in names.values())
    }

    def gain(candidate: EvictionCandidate) -> ReleaseAmounts:
        if candidate.pod.band not in bands:
            return {}
        name, amount = band_request(candidate.pod, resource)
        return {name: float(amount)}

    why = f"requests above {percent} % of the allocatable"
    return Task(feature, Target.REQUESTED, release, candidates(highest), gain, why)


def _is_missing(task: Task, released: ReleaseAmounts) -> bool:
    return any(amount > released.get(name, 0) for name, amount in task.release.items())


def _gains(tasks: Sequence[Task], candidate: EvictionCandidate) -> dict[Target, dict[str, float]]:
    """Return the contribution of a victim; an amount that two tasks count is counted once."""
    gains: dict[Target, dict[str, float]] = {}
    for task in tasks:
        sums = gains.setdefault(task.target, {})
        for name, amount in task.gain(candidate).items():
            sums[name] = max(sums.get(name, 0.0), amount)
    return gains


def _eviction(task: Task, pod: PodView) -> EvictPod:
    meta = pod.pod.metadata
    stated = pod.pod.spec.termination_grace_period_seconds
    return EvictPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        folders=tuple(container.folder for container in pod.containers),
        reason=task.feature,
        message=f"trigger by koordlet feature {task.feature}, kill pod: {meta.name}: {task.why}",
        pod_folder=pod.folder,
        containers=tuple(container.id for container in pod.containers),
        grace_s=max(DEFAULT_GRACE_PERIOD_S if stated is None else stated, 0),
    )


@dataclass(frozen=True, slots=True)
class StrategyInputs:
    """View and samples of the node; ``interval_s`` is the sampling interval."""

    view: NodeView
    store: MetricStore
    interval_s: float = 1.0

    def last(self, metric: Metric, owner: str = "") -> float | None:
        """Return the newest sample; None if it is older than two intervals."""
        return self.store.last(metric, owner, self.view.now_s - _FRESH * self.interval_s)

    def window(self, metric: Metric, seconds: float, owner: str = "") -> Aggregate | None:
        """Return the samples of the last ``seconds``; None if there are none."""
        now_s = self.view.now_s
        return self.store.between(metric, owner, now_s - seconds, now_s)
