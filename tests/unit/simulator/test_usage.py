"""Usage of pods, compared with their requests."""

import pytest

from koordinator.simulator.usage import WHOLE, Spike, UsageCurve, UsageKinds

DAY_S = 86_400.0
SERVICE = UsageCurve(stream="web", low=0.1, high=0.5, peak_s=15 * 3600.0, memory=0.5)


def test_usage_swings_between_its_two_ends_once_a_day() -> None:
    """Highest at its peak, lowest half a day later, the same on the next day."""
    kinds = UsageKinds()
    assert kinds.column(SERVICE) == 0

    shares = [float(kinds.cpu_shares(at_h * 3600.0)[0]) for at_h in (15, 27, 39, 21)]

    assert shares == pytest.approx([0.5, 0.1, 0.5, 0.3])


def test_a_spike_is_of_one_stream_and_of_its_time() -> None:
    """The spike multiplies the usage; no pod uses more than it requests."""
    kinds = UsageKinds([Spike("web", 100.0, 50.0, 3.0)])
    steady = UsageCurve(stream="web", low=0.2, high=0.2)
    busy = UsageCurve(stream="web", low=0.6, high=0.6)
    other = UsageCurve(stream="db", low=0.2, high=0.2)
    for usage in (steady, busy, other):
        kinds.column(usage)

    assert kinds.cpu_shares(99.0).tolist() == pytest.approx([0.2, 0.6, 0.2])
    assert kinds.cpu_shares(100.0).tolist() == pytest.approx([0.6, 1.0, 0.2])
    assert kinds.cpu_shares(150.0).tolist() == pytest.approx([0.2, 0.6, 0.2])


def test_pods_without_usage_use_their_requests() -> None:
    """Pods with equal requests share a column."""
    kinds = UsageKinds()

    assert kinds.column(WHOLE) == kinds.column(UsageCurve())
    assert kinds.cpu_shares(0.0).tolist() == [1.0]
    assert kinds.memory_shares().tolist() == [1.0]
