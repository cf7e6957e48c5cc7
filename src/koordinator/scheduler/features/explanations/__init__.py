"""Explanations of pending pods, for users and for ScheduleExplanation objects."""

from koordinator.scheduler.features.explanations.answers import (
    ExplanationFeature,
    Explanations,
    ScheduleExplanationFeature,
    explain,
)

__all__ = [
    "ExplanationFeature",
    "Explanations",
    "ScheduleExplanationFeature",
    "explain",
]
