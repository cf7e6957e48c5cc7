"""Network QoS from the NodeSLO: traffic classes on this machine, or files for Terway.

The thread of the outbox runs the tools of the machine, because they take long.
"""

from collections import deque
from collections.abc import Collection

from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import Files
from koordinator.koordlet.app.outbox import Outbox
from koordinator.koordlet.executor import Executor
from koordinator.koordlet.executor.traffic_control import TrafficControl
from koordinator.koordlet.qos.tc_network import (
    SETS,
    NetworkShape,
    plan_network_classes,
    plan_network_shape,
)
from koordinator.koordlet.qos.terway_network import NODE_FILE, POD_FILE, plan_terway
from koordinator.koordlet.view.node_view import NodeView

AGAIN_S = 60.0  # other programs may change the network
RETRY_S = 10.0
_MOST_RESULTS = 16


@dataclass(frozen=True, slots=True)
class _Result:
    wanted: NetworkShape | None
    problem: str
    warnings: tuple[str, ...] = ()


class NetworkQosManager:
    """Network QoS.  ``terway_folder`` is read by Terway; None for ``traffic`` skips the classes."""

    def __init__(
        self,
        executor: Executor,
        outbox: Outbox,
        files: Files,
        gates: Collection[str],
        *,
        traffic: TrafficControl | None,
        terway_folder: str,
    ) -> None:
        self._executor = executor
        self._outbox = outbox
        self._files = files
        self._gates = gates
        self._traffic = traffic
        self._terway_folder = terway_folder
        #: Appended by the thread of the outbox, consumed by the loop.
        self._results: deque[_Result] = deque(maxlen=_MOST_RESULTS)
        self._requested: NetworkShape | None = None
        self._next_s = 0.0
        self._noted = ("", "")  # last entry of the audit
        self._written: dict[str, str | None] = {}  # last content by file

    def reconcile(self, view: NodeView, now_s: float) -> None:
        """Apply changes immediately, and everything once a minute."""
        if "TerwayQoS" in self._gates:
            self._write_terway_files(view, now_s)
        if "TCNetworkQoS" in self._gates and self._traffic is not None:
            self._process_results(now_s)
            self._shape(self._traffic, view, now_s)

    def _write_terway_files(self, view: NodeView, now_s: float) -> None:
        try:
            wanted = plan_terway(view)
        except InputError as error:
            self._executor.note_network("terway", "", str(error), now_s)
            return
        texts = {
            NODE_FILE: None if wanted is None else wanted.node,
            POD_FILE: None if wanted is None else wanted.pods,
        }
        for name, text in texts.items():
            if name in self._written and self._written[name] == text:
                continue
            path = f"{self._terway_folder}/{name}"
            try:
                if text is not None:
                    self._files.replace(path, text)
                elif self._files.exists(path):
                    self._files.remove(path)
            except HostError as error:
                self._executor.note_network(path, "", str(error), now_s)
                continue
            self._written[name] = text
            if text is not None:
                self._executor.note_network(path, "written", "", now_s)

    def _shape(self, traffic: TrafficControl, view: NodeView, now_s: float) -> None:
        try:
            wanted = plan_network_shape(view)
        except InputError as error:
            self._executor.note_network("tc", "", str(error), now_s)
            return
        if wanted is not None:
            self._executor.apply(plan_network_classes(view), now_s)
        if wanted == self._requested and now_s < self._next_s:
            return
        self._requested, self._next_s = wanted, now_s + AGAIN_S
        results = self._results

        def work(_: Cluster) -> None:
            try:
                if wanted is None:
                    traffic.clear(tuple(SETS.values()))
                    results.append(_Result(wanted, ""))
                else:
                    results.append(_Result(wanted, "", tuple(traffic.shape(wanted))))
            except HostError as error:
                results.append(_Result(wanted, str(error)))

        self._outbox.put("network QoS", work)

    def _process_results(self, now_s: float) -> None:
        while self._results:
            result = self._results.popleft()
            done = "cleared" if result.wanted is None else f"{result.wanted.total_bps} bit/s"
            if (done, result.problem) != self._noted:
                self._noted = (done, result.problem)
                self._executor.note_network("tc", done, result.problem, now_s)
            for problem in result.warnings:
                self._executor.note_network("tc filter", "", problem, now_s)
            if result.problem:
                self._next_s = min(self._next_s, now_s + RETRY_S)
