"""Anomaly detectors: nodes with high usage over several cycles, one state machine per node.

Source: koordinator pkg/descheduler/utils/anomaly/basic_detector.go; patrickmn/go-cache for the
expiration of detectors.
"""

from dataclasses import dataclass

from koordinator.descheduler.plugins.low_node_load.arguments import LoadAnomalyCondition

_DEFAULT_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Detector:
    """Detector of a node: anomalous after *more* marks than the count, until ``timeout``."""

    condition: LoadAnomalyCondition
    expires_s: float  # removed then unless marked abnormal before
    anomalous_until_s: float | None = None  # None: normal
    abnormal: int = 0  # consecutive marks
    normal: int = 0

    def mark(self, *, normal: bool, now_s: float) -> bool:
        """Count a mark; return whether the node is anomalous."""
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
        """Make an anomalous node normal; the marks of a normal one are kept."""
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
    """Detectors by node; they expire some time after the last abnormal mark."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._by_node: dict[str, Detector] = {}

    def find_anomalous(
        self, nodes: list[str], condition: LoadAnomalyCondition | None, now_s: float
    ) -> list[str]:
        """Mark nodes as abnormal; return the anomalous ones in the same order.

        With a condition of one abnormality all are anomalous without a detector.
        """
        if condition is None or condition.consecutive_abnormalities == 1:
            return nodes
        self._remove_expired(now_s)
        anomalous = []
        for node in nodes:
            detector = self._by_node.get(node)
            if detector is None:
                detector = self._by_node[node] = Detector(condition, now_s)
            if detector.mark(normal=False, now_s=now_s):
                anomalous.append(node)
            detector.expires_s = now_s + self._timeout_s
        return anomalous

    def reset(self, node: str, now_s: float) -> None:
        """Reset the detector of a node with normal usage."""
        detector = self._known(node, now_s)
        if detector is not None:
            detector.reset()

    def mark_normal(self, node: str, now_s: float) -> None:
        """Add a normal mark after pods of a node were evicted."""
        detector = self._known(node, now_s)
        if detector is not None:
            detector.mark(normal=True, now_s=now_s)

    def _known(self, node: str, now_s: float) -> Detector | None:
        detector = self._by_node.get(node)
        return None if detector is None or detector.expires_s < now_s else detector

    def _remove_expired(self, now_s: float) -> None:
        expired = [node for node, each in self._by_node.items() if each.expires_s < now_s]
        for node in expired:
            del self._by_node[node]
