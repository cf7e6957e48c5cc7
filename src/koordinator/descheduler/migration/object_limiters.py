"""Rate limits of evictions per workload and per namespace.

Each workload and namespace has a token bucket.  The buckets depend on past evictions only: after a
restart they are rebuilt from the evictions recorded in jobs.
Source: koordinator pkg/descheduler/controllers/migration/controller.go, ``trackEvictedPod``,
``checkPodExceedObjectLimiter``; golang.org/x/time/rate.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from koordinator.api.pod import Pod
from koordinator.descheduler.migration.arguments import (
    LimitedObject,
    MigrationControllerArgs,
    MigrationObjectLimiter,
)
from koordinator.descheduler.migration.workloads import controller_of, resolved_limit

_EXPIRED_AFTER = 1.5  # durations since the last eviction
SPARE_BUCKETS = 64  # expired buckets kept before a sweep


@dataclass(slots=True)
class EvictionBucket:
    """Token bucket; a new one is full."""

    rate_per_s: float
    burst: int
    tokens: float
    counted_s: float

    def available(self, now_s: float) -> float:
        """Return the number of tokens, which may be negative."""
        earned = max(0.0, now_s - self.counted_s) * self.rate_per_s
        return min(float(self.burst), self.tokens + earned)

    def take(self, now_s: float, rate_per_s: float) -> None:
        """Take a token if one is available, and set the refill rate."""
        tokens = self.available(now_s)
        self.tokens = tokens - 1 if tokens >= 1 else tokens
        self.counted_s = max(now_s, self.counted_s)
        self.rate_per_s = rate_per_s

    def next_s(self, now_s: float) -> float:
        """Return when a token is available."""
        shortfall = 1 - self.available(now_s)
        return now_s if shortfall <= 0 else now_s + shortfall / self.rate_per_s


class ObjectLimiters:
    """Token buckets of the workloads and namespaces with evictions."""

    def __init__(self, args: MigrationControllerArgs) -> None:
        self._per_workload = args.max_migrating_per_workload
        self._limiters = {
            LimitedObject(name): limiter
            for name, limiter in args.object_limiters.items()
            if limiter.duration.total_seconds() > 0
        }
        self._buckets: dict[tuple[LimitedObject, str], EvictionBucket] = {}
        self._swept = SPARE_BUCKETS

    def next_eviction_s(self, pod: Pod, now_s: float) -> float:
        """Return the earliest time at which a pod may be evicted."""
        owner = controller_of(pod)
        keys = self._keys("" if owner is None else owner.uid, pod.metadata.namespace)
        return max((self._next_s(kind, name, now_s) for kind, _, name in keys), default=now_s)

    def note_eviction(
        self, workload_uid: str, namespace: str, replicas: int, when_s: float
    ) -> None:
        """Count an eviction; ``replicas`` is the scale of the workload at that time."""
        for kind, limiter, name in self._keys(workload_uid, namespace):
            most = self._most(kind, limiter, replicas)
            if most <= 0:
                continue
            rate_per_s = most / limiter.duration.total_seconds()
            bucket = self._buckets.get((kind, name))
            if bucket is None or self._is_expired(kind, bucket, when_s):
                burst = limiter.burst or 1
                bucket = EvictionBucket(rate_per_s, burst, float(burst), when_s)
                self._buckets[kind, name] = bucket
            bucket.take(when_s, rate_per_s)
        self._sweep(when_s)

    def _keys(
        self, workload_uid: str, namespace: str
    ) -> Iterator[tuple[LimitedObject, MigrationObjectLimiter, str]]:
        for kind, limiter in self._limiters.items():
            name = workload_uid if kind is LimitedObject.WORKLOAD else namespace
            if name:
                yield kind, limiter, name

    def _next_s(self, kind: LimitedObject, name: str, now_s: float) -> float:
        bucket = self._buckets.get((kind, name))
        if bucket is None or self._is_expired(kind, bucket, now_s):
            return now_s
        return bucket.next_s(now_s)

    def _most(self, kind: LimitedObject, limiter: MigrationObjectLimiter, replicas: int) -> int:
        amount = limiter.max_migrating
        if (
            kind is LimitedObject.NAMESPACE
        ):  # a percentage has no base: as in the original, no limit
            return amount if isinstance(amount, int) else 0
        return resolved_limit(replicas, self._per_workload if amount is None else amount)

    def _is_expired(self, kind: LimitedObject, bucket: EvictionBucket, now_s: float) -> bool:
        kept_s = self._limiters[kind].duration.total_seconds() * _EXPIRED_AFTER
        return now_s > bucket.counted_s + kept_s

    def _sweep(self, now_s: float) -> None:
        if len(self._buckets) < self._swept:
            return
        self._buckets = {
            key: bucket
            for key, bucket in self._buckets.items()
            if not self._is_expired(key[0], bucket, now_s)
        }
        self._swept = 2 * len(self._buckets) + SPARE_BUCKETS
