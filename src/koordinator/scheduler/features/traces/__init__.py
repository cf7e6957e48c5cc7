"""Traces of pods with OpenTelemetry, from the watch event to the bind."""

from koordinator.scheduler.features.traces.feature import PodTraces

__all__ = ["PodTraces"]
