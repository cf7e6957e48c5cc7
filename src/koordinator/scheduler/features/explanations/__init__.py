"""Explanations of pending pods, for users and for ScheduleExplanation objects."""

from koordinator.scheduler.features.explanations.answers import (
    AnswerFeature,
    ExplanationFeature,
    Explanations,
    explain,
)

__all__ = [
    "AnswerFeature",
    "ExplanationFeature",
    "Explanations",
    "explain",
]
