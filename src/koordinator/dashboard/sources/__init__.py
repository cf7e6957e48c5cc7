"""What a dashboard looks at.

Every source has a scheduler that has taken the cluster in; ``follow`` keeps it up to date.
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
