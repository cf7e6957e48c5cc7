"""Explanations of pending pods, for users and for ScheduleExplanation objects."""

from koordinator.scheduler.features.explanation.answers import (
    AnswerFeature,
    ExplanationFeature,
    Explanations,
)
from koordinator.scheduler.features.explanation.explainer import WAITS, explain, key_of, kind_of

__all__ = [
    "WAITS",
    "AnswerFeature",
    "ExplanationFeature",
    "Explanations",
    "explain",
    "key_of",
    "kind_of",
]
