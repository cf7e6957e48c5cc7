"""What a scheduler saw, in one file, and what became of its pods.

``batch``       the lines of a recording: what arrived together, and when
``reports``     those of usage, whose windows stay text until somebody looks at them
``anonymous``   names replaced, the same one always by the same
``comparison``  the decisions of two runs, pod by pod and in totals
"""

from koordinator.simulator.recording.anonymous import Anonymiser
from koordinator.simulator.recording.batch import (
    RecordedBatch,
    RecordedEvent,
    Recording,
    RecordingHeader,
    read_recording,
    to_line,
)
from koordinator.simulator.recording.comparison import Comparison, PodOutcome, compare

__all__ = [
    "Anonymiser",
    "Comparison",
    "PodOutcome",
    "RecordedBatch",
    "RecordedEvent",
    "Recording",
    "RecordingHeader",
    "compare",
    "read_recording",
    "to_line",
]
