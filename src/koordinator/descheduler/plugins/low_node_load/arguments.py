"""Arguments of LowNodeLoad, and detectors of anomalous nodes.

Source: koordinator pkg/descheduler/apis/config v1alpha2/types_loadaware.go,
v1alpha2/defaults.go, validation/validation_loadaware.go; koordinator
pkg/descheduler/utils/anomaly/basic_detector.go; patrickmn/go-cache for the expiration of
detectors.
"""

from collections.abc import Mapping
from math import isfinite

from koordinator.api.kubescheduler.structs import ConfigStruct, fill
from koordinator.api.meta import Int32, Int64, LabelSelector
from koordinator.descheduler.configuration import (
    DeschedulerPluginArgs,
    NamedPodSelector,
    NamespaceLists,
    check_namespaces,
    check_pod_selectors,
    check_selector,
    field_error,
)
from koordinator.foundation.clock import Duration
from koordinator.foundation.lazy_dataclass import dataclass

UsagePercentages = Mapping[str, float]  # resource -> percent of allocatable

_TIMEOUT = Duration(seconds=60)
_ABNORMALITIES, _NORMALITIES = 5, 3
_NOT_NEGATIVE = "percentage must be greater than or equal to 0"

_DEFAULT_TIMEOUT_S = 60.0


class LoadAnomalyCondition(ConfigStruct, frozen=True, kw_only=True):
    """Number of consecutive cycles with high usage; a count of 0 means the default."""

    timeout: Duration = _TIMEOUT  # after which an anomalous node is normal again
    #: cycles with high usage after which a node is anomalous; 0: 5, or in a pool as outside of it
    consecutive_abnormalities: int = 0
    #: cycles without high usage after which it is normal again; 0: 3, or in a pool as outside of it
    consecutive_normalities: int = 0

    def over(self, default: "LoadAnomalyCondition") -> "LoadAnomalyCondition":
        """Return the condition with the counts of ``default`` where this has none."""
        return LoadAnomalyCondition(
            timeout=self.timeout,
            consecutive_abnormalities=(
                self.consecutive_abnormalities or default.consecutive_abnormalities
            ),
            consecutive_normalities=self.consecutive_normalities or default.consecutive_normalities,
        )

    def validate(self, path: str) -> None:
        """Raise InputError unless both counts are positive."""
        counts = {
            "consecutiveAbnormalities": self.consecutive_abnormalities,
            "consecutiveNormalities": self.consecutive_normalities,
        }
        for name, count in counts.items():
            if count <= 0:
                raise field_error(f"{path}.{name}", count, f"{name} must be greater than 0")


_CONDITION = LoadAnomalyCondition(
    consecutive_abnormalities=_ABNORMALITIES, consecutive_normalities=_NORMALITIES
)


class LowNodeLoadNodePool(ConfigStruct, frozen=True, kw_only=True):
    """Pool of nodes balanced separately; fields that are None inherit from the arguments."""

    name: str = ""  # name of the pool
    node_selector: LabelSelector | None = None
    use_deviation_thresholds: bool = False  # whether thresholds are distances from the average
    #: usage in percent by resource above which pods leave a node
    high_thresholds: dict[str, float] | None = None
    #: usage in percent by resource below which a node takes pods
    low_thresholds: dict[str, float] | None = None
    #: the same as highThresholds for prod pods alone
    prod_high_thresholds: dict[str, float] | None = None
    #: the same as lowThresholds for prod pods alone
    prod_low_thresholds: dict[str, float] | None = None
    resource_weights: dict[str, Int64] | None = None  # weight by resource in the order of pods
    #: number of cycles until a node counts as anomalous
    anomaly_condition: LoadAnomalyCondition | None = None

    def validate(self, path: str) -> None:
        """Raise InputError with the path for an invalid percentage or order of thresholds."""
        check_selector(self.node_selector, _joined(path, "nodeSelector"))
        high, low = self.high_thresholds or {}, self.low_thresholds or {}
        prod_high, prod_low = self.prod_high_thresholds or {}, self.prod_low_thresholds or {}
        for name, percentages in (
            ("highThresholds", high),
            ("lowThresholds", low),
            ("prodHighThresholds", prod_high),
            ("prodLowThresholds", prod_low),
        ):
            for resource, percentage in percentages.items():
                if not (isfinite(percentage) and percentage >= 0):
                    raise field_error(
                        _joined(path, f"{name}[{resource}]"), percentage, _NOT_NEGATIVE
                    )
        _check_order(
            low, high, _joined(path, "lowThresholds"),
            "low percentage must be less than or equal to highThresholds",
        )  # fmt: skip
        _check_order(
            prod_high, high, _joined(path, "prodHighThresholds"),
            "node percentage must be greater than or equal to prodHighThresholds",
        )  # fmt: skip
        _check_order(
            prod_low, prod_high, _joined(path, "prodLowThresholds"),
            "low percentage must be less than or equal to prodHighThresholds",
        )  # fmt: skip
        if self.anomaly_condition is not None:
            self.anomaly_condition.validate(_joined(path, "anomalyCondition"))


class LowNodeLoadArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Thresholds of the default pool, which has all nodes, and further pools."""

    paused: bool = False
    dry_run: bool = False
    number_of_nodes: Int32 = 0  # the plugin runs if more nodes than this have low usage
    node_metric_expiration_seconds: Int64 = 180  # age from which a NodeMetric is ignored
    evictable_namespaces: NamespaceLists | None = None
    node_selector: LabelSelector | None = None
    pod_selectors: tuple[NamedPodSelector, ...] = ()
    node_fit: bool = True
    use_deviation_thresholds: bool = False  # whether thresholds are distances from the average
    #: usage in percent by resource above which pods leave a node
    high_thresholds: dict[str, float] | None = None
    #: usage in percent by resource below which a node takes pods
    low_thresholds: dict[str, float] | None = None
    #: the same as highThresholds for prod pods alone
    prod_high_thresholds: dict[str, float] | None = None
    #: the same as lowThresholds for prod pods alone
    prod_low_thresholds: dict[str, float] | None = None
    resource_weights: dict[str, Int64] | None = None  # weight by resource in the order of pods
    #: number of cycles until a node counts as anomalous
    anomaly_condition: LoadAnomalyCondition = _CONDITION
    #: time after which the count of a node is forgotten
    detector_cache_timeout: Duration = Duration(seconds=300)
    node_pools: tuple[LowNodeLoadNodePool, ...] = ()  # pools of nodes that are balanced separately

    def __post_init__(self) -> None:
        thresholds = (self.low_thresholds or {}, self.high_thresholds or {})
        needed = ("cpu", "memory", *(name for each in thresholds for name in each))
        weights = dict(self.resource_weights or {})
        weights |= {name: 1 for name in needed if weights.get(name, 0) <= 0}
        fill(
            self,
            resource_weights=weights,
            anomaly_condition=self.anomaly_condition.over(_CONDITION),
        )

    def pools(self) -> tuple[LowNodeLoadNodePool, ...]:
        """Return all pools in the order of balancing, with inherited fields filled in."""
        whole = LowNodeLoadNodePool(
            name="__default_node_pool__",
            node_selector=self.node_selector,
            use_deviation_thresholds=self.use_deviation_thresholds,
            high_thresholds=self.high_thresholds,
            low_thresholds=self.low_thresholds,
            prod_high_thresholds=self.prod_high_thresholds,
            prod_low_thresholds=self.prod_low_thresholds,
            resource_weights=self.resource_weights,
            anomaly_condition=self.anomaly_condition,
        )
        return (whole, *(self._completed(pool) for pool in self.node_pools))

    def validate(self) -> None:
        if self.number_of_nodes < 0:
            message = "must be greater than or equal to 0"
            raise field_error("numberOfNodes", self.number_of_nodes, message)
        if self.node_metric_expiration_seconds <= 0:
            message = "nodeMetricExpiredSeconds should be a positive value"
            value = self.node_metric_expiration_seconds
            raise field_error("nodeMetricExpirationSeconds", value, message)
        check_namespaces(self.evictable_namespaces, "evictableNamespaces")
        check_pod_selectors(self.pod_selectors)
        for index, pool in enumerate(self.pools()):
            pool.validate(f"nodePools[{index - 1}]" if index else "")

    def _completed(self, pool: LowNodeLoadNodePool) -> LowNodeLoadNodePool:
        given = pool.anomaly_condition

        def own(name: str) -> dict[str, float] | None:
            own_value: dict[str, float] | None = getattr(pool, name)
            inherited: dict[str, float] | None = getattr(self, name)
            return inherited if own_value is None else own_value

        return LowNodeLoadNodePool(
            name=pool.name,
            node_selector=pool.node_selector,
            use_deviation_thresholds=pool.use_deviation_thresholds,
            high_thresholds=own("high_thresholds"),
            low_thresholds=own("low_thresholds"),
            prod_high_thresholds=own("prod_high_thresholds"),
            prod_low_thresholds=own("prod_low_thresholds"),
            resource_weights=(
                self.resource_weights if pool.resource_weights is None else pool.resource_weights
            ),
            anomaly_condition=(
                self.anomaly_condition if given is None else given.over(self.anomaly_condition)
            ),
        )


def _check_order(lower: UsagePercentages, upper: UsagePercentages, path: str, message: str) -> None:
    for resource, percentage in lower.items():
        if resource in upper and percentage > upper[resource]:
            raise field_error(f"{path}[{resource}]", percentage, message)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


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
