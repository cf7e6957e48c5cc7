"""Explanations of pending pods, for users and for ScheduleExplanation objects."""

from koordinator.scheduler.features.explanation.answers import Explanations
from koordinator.scheduler.features.explanation.explainer import WAITS, explain, key_of
from koordinator.scheduler.features.explanation.feature import AnswerFeature, ExplanationFeature

__all__ = ["WAITS", "AnswerFeature", "ExplanationFeature", "Explanations", "explain", "key_of"]
