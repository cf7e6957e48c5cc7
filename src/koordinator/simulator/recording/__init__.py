"""Recordings of a scheduler's watch events, and comparison of the outcomes of pods.

``batch``       lines of a recording: header and batches of events, with usage reports, whose time
                windows are decoded on access
``anonymous``   replacement of names by pseudonyms
``comparison``  decisions of two runs, by pod and in total
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
