"""Reclaimable resources of prod pods."""

from tests.nodes import LAYOUT, START_S, machine, pod

from koordinator.api.qos import PriorityBand
from koordinator.koordlet.prediction.models import (
    NODE,
    PeakModels,
    PredictionOptions,
    UsageSample,
)
from koordinator.koordlet.prediction.reclaimable import PredictedAmounts, predict_prod
from koordinator.koordlet.view.pods import PodView, pod_view

GIB = 2**30
DAY_S = 24 * 3600.0
MARGIN = PredictionOptions()


def prod(name: str, cpu: str, memory: str = "0", created: str = "2023-11-01T00:00:00Z") -> PodView:
    """Return a pod of band koord-prod."""
    made = pod(name, "LS", priority=9000, requests={"cpu": cpu, "memory": memory}, created=created)
    return pod_view(made, LAYOUT)


def trained(node: float = 6.0, **usage: float) -> PeakModels:
    """Return models that saw the same CPU use every minute for two hours; pods are prod."""
    models = PeakModels(MARGIN)
    pods = {
        f"uid-{name}": (PriorityBand.PROD, UsageSample(cpu, GIB)) for name, cpu in usage.items()
    }
    for minute in range(120):
        models.train(pods, UsageSample(node, 4 * GIB), START_S - 60 * (120 - minute))
    return models


def test_the_smaller_of_both_predictors_is_given_away() -> None:
    """Pod by pod, 10 cores less 1.1 times the peak of each; never more than the band allows."""
    models = trained(node=6.5, a=1.0, b=5.0)
    pods = [prod("a", "4", "2Gi"), prod("b", "6", "2Gi")]

    result = predict_prod(models, pods, machine(16), START_S)

    assert result is not None
    peaks = [models.peak(f"uid-{name}") for name in "ab"]
    by_pod = 10_000 - sum(int(p.cpu_milli * 1.1) for p in peaks if p)
    sys_and_bands = [
        models.peak(uid) for uid in ("__node-sys__", "__node-koord-prod__", "__node-__")
    ]
    by_band = 10_000 - int(sum(p.cpu_milli for p in sys_and_bands if p) * 1.1)
    assert result.reclaimable.cpu_milli == min(by_pod, by_band)


def test_a_young_pod_gives_nothing_away() -> None:
    """The whole request of a young pod counts as its peak."""
    models = trained(node=1.0, a=1.0)
    young = prod("a", "4", "2Gi", created="2023-11-14T12:00:00Z")

    result = predict_prod(models, [young], machine(16), START_S)

    assert result is not None
    assert result.reclaimable.cpu_milli == 0
    assert result.peak.cpu_milli == 4000


def test_more_than_the_node_has_left_is_never_given_away() -> None:
    """Requests above the node don't make it larger."""
    models = trained(node=1.0, a=0.5)

    result = predict_prod(models, [prod("a", "100", "64Gi")], machine(16), START_S)

    assert result is not None
    assert result.reclaimable.cpu_milli <= 16_000 - 550


def test_no_prediction_without_models() -> None:
    """A node that has just started reports no prediction."""
    assert predict_prod(PeakModels(MARGIN), [prod("a", "4")], machine(), START_S) is None


def test_a_terminating_pod_counts_in_neither() -> None:
    """The requests of a terminating pod are about to be released."""
    models = trained(node=1.0, a=0.5)
    ended = pod("a", "LS", priority=9000, requests={"cpu": "4"}, phase="Succeeded")

    result = predict_prod(models, [pod_view(ended, LAYOUT)], machine(16), START_S)

    assert result is not None
    assert result.reclaimable == PredictedAmounts()


def test_models_are_stored_some_at_a_time_and_restored() -> None:
    """At most twelve a step, each every ten minutes; an unknown one is given back to be removed."""
    models = trained(**{f"p{n}": 1.0 for n in range(12)})
    first = models.due(START_S)
    second = models.due(START_S)

    assert len(first) == 12
    assert {c.uid for c in first}.isdisjoint(c.uid for c in second)
    assert models.due(START_S + 599) == []

    fresh = PeakModels(MARGIN)
    known = frozenset({NODE, *(c.uid for c in first[:5])})
    refused = fresh.restore(first, known)
    assert len(refused) + sum(fresh.peak(c.uid) is not None for c in first) == 12
    for checkpoint in first:
        if checkpoint.uid not in refused:
            assert fresh.peak(checkpoint.uid) == models.peak(checkpoint.uid)


def test_models_of_deleted_pods_expire() -> None:
    """After half an hour without samples."""
    models = trained(a=1.0)

    assert models.expire(START_S + 1700) == []
    assert "uid-a" in models.expire(START_S + 1801)
    assert models.peak("uid-a") is None
