"""What a scheduler saw, in one file, and what became of its pods.

``batch``       the lines of a recording: what arrived together, and when
``reports``     those of usage, whose windows stay text until somebody looks at them
``anonymous``   names replaced, the same one always by the same
``comparison``  the decisions of two runs, pod by pod and in totals
"""

from koordinator.domain.recording.anonymous import Anonymiser
from koordinator.domain.recording.batch import (
    Recorded,
    RecordedBatch,
    RecordedEvent,
    RecordingHeader,
    read_recording,
    to_line,
)
from koordinator.domain.recording.comparison import Comparison, PodFate, compare

__all__ = [
    "Anonymiser",
    "Comparison",
    "PodFate",
    "Recorded",
    "RecordedBatch",
    "RecordedEvent",
    "RecordingHeader",
    "compare",
    "read_recording",
    "to_line",
]
