"""Sources of cluster state for a dashboard.

Every source has a scheduler with the state of the cluster; ``follow`` keeps it up to date.
"""

from koordinator.dashboard.sources.contract import (
    ClusterSource,
    ControllableSource,
    Pause,
    ReportedSource,
    SourceControl,
    SourceKind,
    SourcePhase,
    SourceStatus,
    TimelineMark,
)

__all__ = [
    "ClusterSource",
    "ControllableSource",
    "Pause",
    "ReportedSource",
    "SourceControl",
    "SourceKind",
    "SourcePhase",
    "SourceStatus",
    "TimelineMark",
]
