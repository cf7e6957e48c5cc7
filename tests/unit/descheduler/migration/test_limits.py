"""Limits of unavailable pods, and rate limits of evictions."""

import pytest
from msgspec.structs import replace
from tests.worlds import pod

from koordinator.api.meta import OwnerReference
from koordinator.api.pod import Pod
from koordinator.descheduler.configuration import decode_plugin_args
from koordinator.descheduler.migration.arbitration import SPARE_BUCKETS, ObjectLimiters
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.workloads import resolved_limit
from koordinator.foundation.errors import InputError


@pytest.mark.parametrize(
    ("replicas", "amount", "limit"),
    [
        (9, "33%", 2),
        (9, "5%", 1),
        (25, None, 2),
        (11, None, 1),
        (10, None, 2),
        (5, None, 2),
        (4, None, 2),
        (3, None, 1),
        (0, None, 0),
        (4, 9, 4),
        (4, 0, 1),
        (3, "100%", 3),
    ],
)
def test_limit_is_resolved_for_the_replicas(
    replicas: int, amount: int | str | None, limit: int
) -> None:
    """The examples of the specification."""
    assert resolved_limit(replicas, amount) == limit


def limiters(**object_limiters: object) -> ObjectLimiters:
    data = {"objectLimiters": object_limiters} if object_limiters else {}
    return ObjectLimiters(decode_plugin_args(MigrationControllerArgs, data, "args", "test"))


def web(namespace: str = "default") -> Pod:
    made = pod("web-0", namespace=namespace)
    owner = OwnerReference(kind="ReplicaSet", name="web", uid="rs", controller=True)
    return replace(made, metadata=replace(made.metadata, owner_references=(owner,)))


def test_default_limiter_evicts_one_of_ten_replicas_in_150_seconds() -> None:
    """2 of 10 within 5 minutes, and one at once."""
    result = limiters()
    assert result.next_eviction_s(web(), 1000.0) == 1000.0
    result.note_eviction("rs", "default", 10, 1000.0)
    assert result.next_eviction_s(web(), 1000.0) == 1150.0
    assert result.next_eviction_s(web(), 1150.0) == 1150.0


def test_burst_allows_several_immediate_evictions() -> None:
    """The bucket holds as many tokens."""
    result = limiters(workload={"duration": "100s", "maxMigrating": 1, "burst": 2})
    result.note_eviction("rs", "default", 10, 0.0)
    assert result.next_eviction_s(web(), 0.0) == 0.0
    result.note_eviction("rs", "default", 10, 0.0)
    assert result.next_eviction_s(web(), 0.0) == 100.0


def test_percentage_of_a_namespace_is_no_limit() -> None:
    """A percentage has nothing that it could be of: it is no limit, as in the original."""
    counted = limiters(namespace={"duration": "10s", "maxMigrating": 1})
    counted.note_eviction("", "default", 0, 0.0)
    assert counted.next_eviction_s(web(), 0.0) == 10.0
    assert counted.next_eviction_s(web("other"), 0.0) == 0.0
    percent = limiters(namespace={"duration": "10s", "maxMigrating": "10%"})
    percent.note_eviction("", "default", 10, 0.0)
    assert percent.next_eviction_s(web(), 0.0) == 0.0


def test_duration_of_zero_disables_the_limiter() -> None:
    """The limiter is switched off."""
    result = limiters(workload={"duration": "0s"})
    result.note_eviction("rs", "default", 1, 0.0)
    assert result.next_eviction_s(web(), 0.0) == 0.0


def test_buckets_of_deleted_workloads_expire() -> None:
    """A bucket lasts one and a half durations after its last eviction."""
    result = limiters()
    for index in range(10 * SPARE_BUCKETS):
        result.note_eviction(f"rs-{index}", "default", 10, index * 1000.0)
    assert len(result._buckets) <= SPARE_BUCKETS + 1


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"maxMigratingPerNode": -1}, "maxMigratingPerNode should be greater or equal 0"),
        ({"maxMigratingGlobally": -1}, "maxMigratingGlobally should be greater or equal 0"),
        ({"maxMigratingPerNamespace": -1}, "maxMigratingPerNamespace should be greater or equal 0"),
        ({"maxMigratingPerWorkload": "ten"}, "maxMigratingPerWorkload is invalid"),
        ({"maxUnavailablePerWorkload": True}, "must be an integer or a string, got true"),
        ({"evictQPS": 0}, "evictQPS must be greater than 0"),
        ({"evictQPS": "fast"}, "evictQPS must be greater than 0"),
        ({"evictBurst": 0}, "evictBurst must be greater than 0"),
        ({"maxConcurrentReconciles": 0}, "should be greater than or equal to 1"),
        ({"defaultJobMode": "Now"}, "defaultJobMode must be ReservationFirst or EvictDirectly"),
        ({"defaultJobTTL": "-1s"}, "defaultJobTTL should be positive or zero"),
        ({"evictionPolicy": "Shoot"}, "must be one of Eviction, Delete, SoftEviction"),
        ({"skipEvictionGates": ["NodeFit", "Luck"]}, "unknown eviction gate"),
        ({"namespaces": {"include": ["a"], "exclude": ["b"]}}, "only one of Include/Exclude"),
        ({"objectLimiters": {"cluster": {}}}, "must be one of workload, namespace"),
        ({"labelSelector": {"matchLabels": {"a b": "c"}}}, "labelSelector"),
        ({"priorityThreshold": {"value": 1, "weight": 2}}, "priorityThreshold.weight"),
    ],
)
def test_invalid_arguments_are_rejected(args: dict[str, object], problem: str) -> None:
    """With the field, and what is accepted."""
    with pytest.raises(InputError) as raised:
        decode_plugin_args(MigrationControllerArgs, args, "profiles[0].pluginConfig[0].args", "f")
    assert problem in str(raised.value)
    assert str(raised.value).startswith("f: profiles[0].pluginConfig[0].args.")


def test_defaults_equal_the_originals() -> None:
    """Of every field that has one."""
    args = decode_plugin_args(MigrationControllerArgs, {}, "args", "f")
    assert args.default_job_mode == "ReservationFirst"
    assert str(args.default_job_ttl) == "5m0s"
    assert args.scheduler_names == ("koord-scheduler",)
    assert (args.evictions_per_s, args.evict_burst) == (10.0, 1)
    assert args.eviction_policy == "Eviction"
    assert args.max_migrating_per_node == 2
    assert args.arbitration_interval_s == 0.5
    assert str(args.object_limiters["workload"].duration) == "5m0s"
    text = decode_plugin_args(MigrationControllerArgs, {"evictQPS": "2.5"}, "args", "f")
    assert text.evictions_per_s == 2.5
