"""Binding through extenders, and retries of pods that an extender refused."""

from koordinator.scheduler.features.extenders.feature import ExtenderFeature

__all__ = ["ExtenderFeature"]
