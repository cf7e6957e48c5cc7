"""Keeps the network as the NodeSLO wants it: classes of bandwidth here, or files for Terway.

What the tools of the machine take their time for is done by the thread that reports.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import HostError, InputError
from koordinator.host.port import Files
from koordinator.koordlet.app.outbox import Outbox
from koordinator.koordlet.executor import Executor
from koordinator.koordlet.executor.traffic_control import TrafficControl
from koordinator.koordlet.qos.network_shape import NetworkShape
from koordinator.koordlet.qos.tc_network import SETS, plan_network_classes, plan_network_shape
from koordinator.koordlet.qos.terway_network import NODE_FILE, POD_FILE, plan_terway
from koordinator.koordlet.view.node_view import NodeView

AGAIN_S = 60.0  # somebody else may have changed the network
RETRY_S = 10.0
_MOST_ANSWERS = 16


@dataclass(frozen=True, slots=True)
class _Answer:
    wanted: NetworkShape | None
    problem: str
    lacks: tuple[str, ...] = ()


class NetworkQosManager:
    """``terway_folder`` is where Terway looks; without ``traffic`` no classes are made."""

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
        self._answers: deque[_Answer] = deque(maxlen=_MOST_ANSWERS)  # of the thread that works
        self._asked: NetworkShape | None = None
        self._next_s = 0.0
        self._told = ("", "")  # in the audit last
        self._wrote: dict[str, str | None] = {}

    def reconcile(self, view: NodeView, now_s: float) -> None:
        """Do what has changed, and once a minute all of it."""
        if "TerwayQoS" in self._gates:
            self._tell_terway(view, now_s)
        if "TCNetworkQoS" in self._gates and self._traffic is not None:
            self._take_answers(now_s)
            self._shape(self._traffic, view, now_s)

    def _tell_terway(self, view: NodeView, now_s: float) -> None:
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
            if name in self._wrote and self._wrote[name] == text:
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
            self._wrote[name] = text
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
        if wanted == self._asked and now_s < self._next_s:
            return
        self._asked, self._next_s = wanted, now_s + AGAIN_S
        answers = self._answers

        def work(_: Cluster) -> None:
            try:
                if wanted is None:
                    traffic.clear(tuple(SETS.values()))
                    answers.append(_Answer(wanted, ""))
                else:
                    answers.append(_Answer(wanted, "", tuple(traffic.shape(wanted))))
            except HostError as error:
                answers.append(_Answer(wanted, str(error)))

        self._outbox.put("network QoS", work)

    def _take_answers(self, now_s: float) -> None:
        while self._answers:
            answer = self._answers.popleft()
            done = "cleared" if answer.wanted is None else f"{answer.wanted.total_bps} bit/s"
            if (done, answer.problem) != self._told:
                self._told = (done, answer.problem)
                self._executor.note_network("tc", done, answer.problem, now_s)
            for problem in answer.lacks:
                self._executor.note_network("tc filter", "", problem, now_s)
            if answer.problem:
                self._next_s = min(self._next_s, now_s + RETRY_S)
