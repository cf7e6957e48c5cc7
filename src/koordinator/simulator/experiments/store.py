"""Results of an experiment's runs: one file per run, written as a whole or not at all."""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import field

from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError
from koordinator.simulator.experiments.definition import ExperimentRun

_FOLDER: Final = "runs"
_ENDING: Final = ".json"
_LOCK: Final = "lock"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a run, or its error.

    ``allocation`` is the GPU allocation in percent by the percentage of demand that has arrived;
    ``fragmented`` and ``fragmented_of_free`` are the fragmented GPUs, of all and of the free ones.
    Real time is in ``wall_s`` only, since tables must not depend on it.
    """

    key: str
    labels: dict[str, Any]
    error: str = ""
    wall_s: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, list[Any]] = field(default_factory=dict)
    allocation: dict[int, float] = field(default_factory=dict)
    fragmented: dict[int, float] = field(default_factory=dict)
    fragmented_of_free: dict[int, float] = field(default_factory=dict)
    queued_s: list[float] = field(default_factory=list)
    completion_s: list[float] = field(default_factory=list)


class RunStore:
    """Folder of an experiment's results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            (folder / _FOLDER).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = f"must be a folder that can be written: {error.strerror}"
            raise InputError(text, source=str(folder)) from None

    def write(self, record: RunRecord) -> None:
        """Write the file of a run.  A reader, and a run that is killed, see all of it or none."""
        path = self._path(record.key)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def read(self, key: str) -> RunRecord | None:
        """Return the record of a run; None if it is missing or damaged."""
        try:
            return decode_json(self._path(key).read_bytes(), RunRecord)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def missing(self, runs: Iterable[ExperimentRun]) -> list[ExperimentRun]:
        """Return the runs without a result; one that failed counts as missing."""
        return [run for run in runs if (record := self.read(run.key)) is None or record.error]

    def records(self, runs: Iterable[ExperimentRun]) -> Mapping[str, RunRecord]:
        """Return the records by key, in the order of the runs."""
        stored = {run.key: self.read(run.key) for run in runs}
        return {key: record for key, record in stored.items() if record is not None}

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other processes from executing runs of this folder; remove incomplete files.

        Raises InputError if another process executes runs of it.
        """
        with (self.folder / _FOLDER / _LOCK).open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                text = "must not be the folder of an experiment that is running"
                raise InputError(text, source=str(self.folder)) from None
            for draft in (self.folder / _FOLDER).glob("*.tmp"):
                draft.unlink(missing_ok=True)
            yield

    def _path(self, key: str) -> Path:
        return self.folder / _FOLDER / f"{key}{_ENDING}"
