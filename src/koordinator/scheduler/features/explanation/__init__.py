"""Why a pod waits: asked by people, and by ScheduleExplanation objects in the cluster."""

from koordinator.scheduler.features.explanation.answers import Explanations
from koordinator.scheduler.features.explanation.explainer import WAITS, explain, key_of
from koordinator.scheduler.features.explanation.feature import AnswerFeature, ExplanationFeature

__all__ = ["WAITS", "AnswerFeature", "ExplanationFeature", "Explanations", "explain", "key_of"]
