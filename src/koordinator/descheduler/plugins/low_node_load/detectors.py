"""Nodes that have been too hot for long enough: one small state machine per node.

Source: koordinator pkg/descheduler/utils/anomaly/basic_detector.go; patrickmn/go-cache for how
long a node that is not seen is remembered.
"""

from dataclasses import dataclass

from koordinator.descheduler.plugins.low_node_load.arguments import LoadAnomalyCondition

_DEFAULT_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Detector:
    """Counts marks; anomalous after *more* than so many abnormal ones, for ``timeout`` at most."""

    condition: LoadAnomalyCondition
    expires_s: float  # when it is forgotten unless it is marked abnormal before
    anomalous_until_s: float | None = None  # None: all is well
    abnormal: int = 0  # marks in a row
    normal: int = 0

    def mark(self, *, normal: bool, now_s: float) -> bool:
        """Note how the node was found; return whether it is anomalous now."""
        self._expire(now_s)
        if normal:
            self.normal, self.abnormal = self.normal + 1, 0
        else:
            self.abnormal, self.normal = self.abnormal + 1, 0
            if (
                self.anomalous_until_s is None
                and self.abnormal > self.condition.consecutive_abnormalities
            ):
                timeout_s = self.condition.timeout.total_seconds()
                self._clear(now_s + (timeout_s if timeout_s > 0 else _DEFAULT_TIMEOUT_S))
        self._expire(now_s)
        return self.anomalous_until_s is not None

    def reset(self) -> None:
        """Make an anomalous node a normal one; marks of a normal one stay."""
        if self.anomalous_until_s is not None:
            self._clear(None)

    def _expire(self, now_s: float) -> None:
        until_s = self.anomalous_until_s
        if until_s is not None and (
            until_s < now_s or self.normal > self.condition.consecutive_normalities
        ):
            self._clear(None)

    def _clear(self, anomalous_until_s: float | None) -> None:
        self.anomalous_until_s = anomalous_until_s
        self.abnormal = self.normal = 0


class Detectors:
    """Detectors by node, forgotten some time after the last abnormal mark."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._by_node: dict[str, Detector] = {}

    def find_anomalous(
        self, nodes: list[str], condition: LoadAnomalyCondition | None, now_s: float
    ) -> list[str]:
        """Mark these nodes as abnormal; return those that are anomalous, in their order.

        A condition of one abnormality asks no detector.
        """
        if condition is None or condition.consecutive_abnormalities == 1:
            return nodes
        self._forget(now_s)
        found = []
        for node in nodes:
            detector = self._by_node.get(node)
            if detector is None:
                detector = self._by_node[node] = Detector(condition, now_s)
            if detector.mark(normal=False, now_s=now_s):
                found.append(node)
            detector.expires_s = now_s + self._timeout_s
        return found

    def reset(self, node: str, now_s: float) -> None:
        """Note that a node has become normal."""
        detector = self._known(node, now_s)
        if detector is not None:
            detector.reset()

    def mark_normal(self, node: str, now_s: float) -> None:
        """Note that something was done for a node."""
        detector = self._known(node, now_s)
        if detector is not None:
            detector.mark(normal=True, now_s=now_s)

    def _known(self, node: str, now_s: float) -> Detector | None:
        detector = self._by_node.get(node)
        return None if detector is None or detector.expires_s < now_s else detector

    def _forget(self, now_s: float) -> None:
        gone = [node for node, each in self._by_node.items() if each.expires_s < now_s]
        for node in gone:
            del self._by_node[node]
