"""From reject codes to words: "0/5000 nodes are available: 3 Insufficient cpu, …".

Source: kubernetes pkg/scheduler/framework/types.go ``FitError.Error``.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

import numpy as np

from koordinator.api.labels import HOSTNAME
from koordinator.api.resource_names import BATCH_CPU, MID_CPU
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.contract import Rejections
from koordinator.scheduler.snapshot import ClusterState, PodClass

MAX_MESSAGE = 1024  # characters of an event or condition
CPU_IN_MILLI = 1000
_MILLI_CPU = (BATCH_CPU, MID_CPU)
NO_NODES = "no nodes available to schedule pods"
ALIKE = 0.6  # minimum similarity of a suggested name
ALIKE_DOMAIN = 0.75  # the same for the part before the slash, as most domains end alike
MOST_KNOWN = 2000  # comparing more names takes seconds; values that many are identifiers
_SERIAL = re.compile(r"\d+|(?<![a-z])[a-z](?![a-z])")  # parts in which like objects differ
_KINDS = {
    "topology.kubernetes.io/zone": "zone",
    "topology.kubernetes.io/region": "region",
    "failure-domain.beta.kubernetes.io/zone": "zone",
    "failure-domain.beta.kubernetes.io/region": "region",
    HOSTNAME: "host",
}
NODE_COUNT = "NodeCount"  # in place of a plugin in a cluster without nodes


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Causes why a pod found no node; ``rejected`` has the row of every existing node."""

    node_count: int
    refused_by: str  # plugin that refused the pod as a whole; empty: none did
    refusal: str
    counts: Mapping[tuple[str, str], int]  # (plugin, reason) -> nodes
    rejected: IntArray
    resolvable: BoolArray  # per rejected row: preemption might help
    may_end: bool = False  # an unresolvable cause may disappear without preemption
    behind: frozenset[str] = frozenset()  # plugins to whose verdicts the refusal is due

    @property
    def plugins(self) -> frozenset[str]:
        """The plugins that rejected the pod."""
        if self.refused_by:
            return self.behind | {self.refused_by}
        if self.node_count == 0:
            return frozenset((NODE_COUNT,))
        return frozenset(plugin for plugin, _ in self.counts)

    @property
    def main(self) -> tuple[str, str]:
        """The plugin and reason that keep the most nodes away; ties: the first in the alphabet."""
        if self.refused_by:
            return self.refused_by, self.refusal
        if not self.counts:
            return "", NO_NODES
        return min(self.counts, key=lambda key: (-self.counts[key], key))

    def with_rejections(self, more: Mapping[int, tuple[str, tuple[str, ...]]]) -> "Diagnosis":
        """Return the diagnosis with further rejected rows: their plugin and reasons."""
        counts = dict(self.counts)
        for plugin, reasons in more.values():
            for reason in reasons:
                counts[plugin, reason] = counts.get((plugin, reason), 0) + 1
        return replace(
            self,
            counts=counts,
            rejected=np.append(self.rejected, np.array(list(more), np.int64)),
            resolvable=np.append(self.resolvable, np.ones(len(more), bool)),
        )

    def message(self, after: str = "") -> str:
        """Return the message of the pod's condition; ``after`` is the one of PostFilter plugins."""
        if self.node_count == 0:
            return NO_NODES
        reasons: Counter[str] = Counter()
        for (_, reason), count in self.counts.items():
            reasons[reason] += count
        listed = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
        causes = ", ".join(text for text in (self.refusal, listed) if text)
        text = f"0/{self.node_count} nodes are available: {causes}."
        return f"{text} {after}" if after else text


def never_fits(diagnosis: Diagnosis, state: ClusterState, pod: PodClass) -> str:
    """Return why no node of the cluster could ever hold the pod, even empty; empty if one could."""
    if diagnosis.node_count == 0 or diagnosis.refused_by or diagnosis.resolvable.any():
        return ""
    if diagnosis.may_end:
        return ""
    nodes = state.nodes
    largest = nodes.allocatable[:, nodes.alive].max(axis=1)
    served = {column for column, _ in pod.served}
    for column, amount in pod.demand:
        if amount > largest[column] and column not in served:
            name, most = state.axis.names[column], int(largest[column])
            request, limit = (quantity(name, number) for number in (amount, most))
            return f"no node can ever hold it: it requests {request} of {name}, the most is {limit}"
    return "no node can ever hold it as they are, not even an empty one"


def quantity(name: str, amount: int) -> str:
    """Return an amount of a resource as Kubernetes writes it."""
    if name == "cpu":
        return Quantity.from_milli(amount).canonical()
    binary = amount % 1024 == 0
    return Quantity.from_int(amount, binary=binary).canonical()


def amount_text(name: str, amount: int) -> str:
    """Return an amount of a resource for messages: batch and mid CPU are counted in milli."""
    if name in _MILLI_CPU:
        return f"{amount / 1000:g} CPU{'' if amount == CPU_IN_MILLI else 's'} ({amount}m)"
    return quantity(name, amount)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like an unknown one; empty if none is alike.

    The parts before and after a slash must be alike each.  A name without a slash must be equal to
    what follows the other's: ``gpu`` may mean ``nvidia.com/gpu``, ``amd.com/gpu`` does not mean
    ``cpu``.  Numbers and single letters are not misspelt: ``zone-b`` does not mean ``zone-a``.
    More than ``MOST_KNOWN`` names are not compared.
    """
    names = sorted(known)
    if len(names) > MOST_KNOWN:
        return ""
    likeness = {one: _likeness(name.lower(), one.lower()) for one in names}
    best = max(likeness, key=lambda one: likeness[one], default="")
    return best if likeness.get(best, 0) >= ALIKE else ""


def missing_label(key: str, known: Collection[str]) -> str:
    """Say that a node lacks a label, and whether any node has it; ``known`` are labels of nodes."""
    text = f"it has no label {key}"
    if key in known:
        return text
    intended = did_you_mean(key, known)
    return f"{text}, and no node has it{f': did you mean {intended}?' if intended else ''}"


def place(key: str, values: Sequence[str]) -> str:
    """Return the value of a label of a node for messages: ``zone b``."""
    return f"{_KINDS.get(key, key)} {' or '.join(values)}"


def _likeness(name: str, other: str) -> float:
    if sorted(_SERIAL.findall(name)) != sorted(_SERIAL.findall(other)):
        return 0
    (first, _, last), (other_first, _, other_last) = name.rpartition("/"), other.rpartition("/")
    if bool(first) != bool(other_first):
        return float(last == other_last)  # the domain was forgotten, or does not belong there
    if not first:
        return SequenceMatcher(None, last, other_last).ratio()
    domain = SequenceMatcher(None, first, other_first).ratio()
    own = SequenceMatcher(None, last, other_last).ratio()
    return (domain + own) / 2 if domain >= ALIKE_DOMAIN and own >= ALIKE else 0


def count_reasons(rejections: Rejections, rows: IntArray) -> dict[str, int]:
    """Return how many of the rows are rejected for each reason; a row may have several."""
    if rejections.explain is not None:
        return Counter(reason for row in rows.tolist() for reason in reasons_of(rejections, row))
    codes = rejections.codes[rows]
    return {
        reason: int(count)
        for bit, reason in enumerate(rejections.reasons)
        if (count := np.count_nonzero(codes >> bit & 1))
    }


def reasons_of(rejections: Rejections, row: int) -> list[str]:
    """Return the reasons that hold for one row."""
    code = int(rejections.codes[row])
    if rejections.explain is not None:
        return list(rejections.explain(row)) if code else []
    return [reason for bit, reason in enumerate(rejections.reasons) if code >> bit & 1]


def shortened(message: str) -> str:
    """Return the message as it fits into an event or condition."""
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 4] + " ..."
