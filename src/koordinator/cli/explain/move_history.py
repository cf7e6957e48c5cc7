"""Moves of pods and reasons for which they stayed, from the descheduler's audit trail."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cli.audit import read_entries
from koordinator.domain.audit import AuditEntry, AuditOutcome
from koordinator.foundation.clock import UTC

_ABOUT_MOVES = frozenset((AuditOutcome.MOVED, AuditOutcome.STAYS))
MOST_ENTRIES = 20  # per pod, the newest


def moves_of(
    paths: Sequence[Path], names: Iterable[str], objects: Iterable[KubeObject]
) -> Mapping[str, Sequence[AuditEntry]]:
    """Return the entries about each pod, ``namespace/name``, oldest first.

    For a pod that exists, entries about other pods of its workload are included, since it may have
    replaced one of them.  Raises InputError for files that can't be read.
    """
    wanted = dict.fromkeys(names, "")
    for obj in objects:
        if isinstance(obj, Pod) and obj.key in wanted:
            wanted[obj.key] = _workload(obj)
    moves: dict[str, list[AuditEntry]] = {name: [] for name in wanted}
    for entry in read_entries(paths) if wanted else ():
        if entry.outcome not in _ABOUT_MOVES:
            continue
        pods = {each.pod for each in entry.pods}
        for name, workload in wanted.items():
            if name in pods or (workload and entry.job == workload):
                moves[name].append(entry)
    return {name: entries[-MOST_ENTRIES:] for name, entries in moves.items()}


def print_moves(out: Console, moves: Mapping[str, Sequence[AuditEntry]]) -> None:
    """Print a line per entry."""
    for name, entries in moves.items():
        out.print(f"Moves of {name} and its workload in the audit trail:", markup=False)
        for entry in entries:
            out.print(f"  {entry_text(entry)}", markup=False, soft_wrap=True)
        if not entries:
            out.print("  none")


def entry_text(entry: AuditEntry) -> str:
    """Return an entry as a sentence."""
    at = dt.datetime.fromtimestamp(entry.at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    pod = entry.pods[0]
    if entry.outcome is AuditOutcome.MOVED:
        where = f"{entry.node} -> {pod.node}" if pod.node else f"away from {entry.node}"
        return f"{at} {pod.pod} moved {where} by {entry.plugin}: {entry.reason}"
    return f"{at} {pod.pod} stayed on {entry.node}; {entry.plugin}: {entry.reason}"


def _workload(pod: Pod) -> str:
    name = next((each.name for each in pod.metadata.owner_references if each.controller), "")
    return f"{pod.metadata.namespace}/{name}" if name else ""
