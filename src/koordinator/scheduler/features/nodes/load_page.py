"""Page of a node's load as load-aware scheduling computes it.

Source: koordinator pkg/scheduler/plugins/loadaware/service.go.
"""

from typing import Any

from koordinator.api.codec import to_manifest
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.rules.load.pod_load import Addends, Sum
from koordinator.scheduler.rules.load.rules import Amounts, LoadRules
from koordinator.scheduler.snapshot import ClusterState, PlacedPod
from koordinator.scheduler.snapshot.load_ledger import LoadLedger

_SUMS = {
    Sum.PROD_USAGE: "prodUsage",
    Sum.DELTA: "nodeDelta",
    Sum.PROD_DELTA: "prodDelta",
    Sum.ESTIMATED: "nodeEstimated",
}
_KIBI = 1024


def load_page(state: ClusterState, rules: LoadRules, name: str) -> dict[str, Any]:
    """Return the pods of a node and their estimates; empty without data."""
    row = state.nodes.rows.get(name)
    if row is None:
        return {}
    ledger = state.load.by(rules)
    pods = sorted(state.pods.on_row[row].values(), key=lambda placed: placed.since_s)
    page: dict[str, Any] = {"pods": [_pod(placed) for placed in pods]} if pods else {}
    measured = ledger.measured[row]
    if measured is not None:
        sums = _by_sum(ledger.sums(measured, pods))
        page |= {text: _quantities(ledger.rules, sums[which]) for which, text in _SUMS.items()}
        page |= {
            f"{_SUMS[which]}Pods": adding
            for which in (Sum.DELTA, Sum.PROD_DELTA, Sum.ESTIMATED)
            if (adding := _adding(ledger, pods, which))
        }
    return page


def _adding(ledger: LoadLedger, pods: list[PlacedPod], which: Sum) -> list[str]:
    return sorted(placed.key for placed in pods if any(_by_sum(ledger.added_by(placed))[which]))


def _by_sum(addends: Addends) -> list[Amounts]:
    width = len(addends) // len(Sum)
    return [addends[width * which : width * (which + 1)] for which in Sum]


def _pod(placed: PlacedPod) -> dict[str, Any]:
    when = to_datetime(placed.since_s).isoformat().replace("+00:00", "Z")
    return {"timestamp": when, "pod": to_manifest(placed.pod)}


def _quantities(rules: LoadRules, amounts: Amounts) -> dict[str, str]:
    shown = {}
    for name, amount in zip(rules.resources, amounts, strict=True):
        if name == "cpu":
            quantity = Quantity.from_milli(amount)
        else:
            quantity = Quantity.from_int(amount, binary=name == "memory" and amount % _KIBI == 0)
        shown[name] = str(quantity)
    return shown
