"""Pods that an extender binds, and pods that wait for an extender to answer again."""

from koordinator.scheduler.features.extenders.feature import ExtenderFeature

__all__ = ["ExtenderFeature"]
