"""Measures and alerts of a workload's lifecycle, by the rules of the original."""

from collections.abc import Sequence

import pytest

from koordinator.scheduler.features.auditor.workload_life import (
    AlertLimits,
    LifeMeasure,
    WorkloadEvent,
    WorkloadLife,
)

CREATED, FAILED, SCHEDULED = WorkloadEvent.CREATED, WorkloadEvent.FAILED, WorkloadEvent.SCHEDULED
NOMINATED, LEAVING, GONE = (
    WorkloadEvent.NOMINATED,
    WorkloadEvent.VICTIMS_LEAVING,
    WorkloadEvent.VICTIMS_DELETED,
)
GATED, ADMITTED = WorkloadEvent.GATED, WorkloadEvent.ADMITTED
LONG = AlertLimits(reschedule_s=1e9, deletion_s=1e9, retries=99, interval_s=1e9)
INTERVAL = LifeMeasure.INTERVAL_S

Story = Sequence[tuple[WorkloadEvent, float]]


def lived(story: Story, limits: AlertLimits = LONG) -> tuple[list[tuple[str, float]], list[str]]:
    """Return the measures, without intervals, and the alerts."""
    measured: list[tuple[str, float]] = []
    alerts: list[str] = []
    life = WorkloadLife(limits, lambda what, value: measured.append((what, value)), alerts.append)
    for event, at_s in story:
        life.record(event, at_s)
    life.end(1000.0)
    return measured, alerts


def but_intervals(story: Story) -> list[tuple[str, float]]:
    return [each for each in lived(story)[0] if each[0] != INTERVAL]


@pytest.mark.parametrize(
    ("story", "measured"),
    [
        pytest.param([(CREATED, 0), (SCHEDULED, 5)], [], id="starts at once"),
        pytest.param(
            [(CREATED, 0), (NOMINATED, 1), (LEAVING, 2), (LEAVING, 3), (GONE, 8), (SCHEDULED, 9)],
            [
                (LifeMeasure.VICTIMS_DELETED_S, 7),
                (LifeMeasure.RETRIES, 2),
                (LifeMeasure.RESCHEDULED_S, 1),
            ],
            id="a preemption as it should be",
        ),
        pytest.param(
            [(CREATED, 0), (NOMINATED, 1), (FAILED, 4), (FAILED, 6)],
            [
                (LifeMeasure.INVALIDATED, 1),
                (LifeMeasure.INTERRUPTED_S, 3),
                (LifeMeasure.RETRIES, 0),
            ],
            id="a nomination is invalidated once",
        ),
        pytest.param(
            [(CREATED, 0), (NOMINATED, 1), (GONE, 2), (NOMINATED, 5)],
            [
                (LifeMeasure.VICTIMS_DELETED_S, 1),
                (LifeMeasure.RETRIES, 0),
                (LifeMeasure.REPEATED, 1),
                (LifeMeasure.INVALIDATED, 1),
                (LifeMeasure.RESCHEDULED_S, 3),
                (LifeMeasure.INTERRUPTED_S, 995),
                (LifeMeasure.RETRIES, 0),
            ],
            id="room was made in vain",
        ),
        pytest.param(
            [(CREATED, 0), (NOMINATED, 1), (GONE, 2), (GATED, 3), (ADMITTED, 50), (SCHEDULED, 51)],
            [(LifeMeasure.VICTIMS_DELETED_S, 1), (LifeMeasure.RETRIES, 0)],
            id="what is gated is not waited for",
        ),
    ],
)
def test_preemptions_are_measured(story: Story, measured: list[tuple[str, float]]) -> None:
    """A preemption is measured until the last victim has terminated, and on to the next result."""
    assert but_intervals(story) == measured


def test_interval_measures_only_schedulable_time() -> None:
    """Gates end a round, a creation or an admission begins one; terminated victims do neither."""
    story = [(CREATED, 0.0), (FAILED, 2.0), (GONE, 3.0), (FAILED, 7.0), (GATED, 9.0)]
    story += [(ADMITTED, 100.0), (SCHEDULED, 101.0)]

    intervals = [value for what, value in lived(story)[0] if what is INTERVAL]

    assert intervals == [2.0, 5.0, 1.0]


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        ([(CREATED, 0), (FAILED, 300), (FAILED, 600)], []),
        ([(CREATED, 0), (FAILED, 301)], ["nothing happened for 301 s before scheduleFailure"]),
        (
            [(CREATED, 0), (NOMINATED, 1), (GONE, 32), (SCHEDULED, 43)],
            [
                "victims gone 31.0 s after the nomination",
                "11.0 s from the end of the victims to the next result",
            ],
        ),
        (
            [(CREATED, 0), (NOMINATED, 1), *[(LEAVING, 2)] * 4, (GONE, 3)],
            ["tried 4 times while victims were still there"],
        ),
        (
            [(CREATED, 0), (NOMINATED, 1), (NOMINATED, 2)],
            ["repeated preemption, number 2", "preemption invalidated by preemptNominated"],
        ),
    ],
)
def test_measure_above_its_limit_raises_an_alert(story: Story, expected: list[str]) -> None:
    """A measure equal to the original's default limit raises no alert."""
    assert lived(story, AlertLimits())[1] == expected
