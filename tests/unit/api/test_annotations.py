"""Annotations and labels: JSON texts, lenient readings, errors that name the annotation."""

from typing import Any

import pytest

from koordinator.api.annotations import (
    devices,
    gang,
    node,
    numa,
    pod_qos,
    quota,
    reservation,
    scheduling,
)
from koordinator.api.annotations.codec import AnnotationCodec, read_float, read_int32
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaSpec
from koordinator.api.labels import (
    CORE_SCHED_POLICY,
    GPU_PARTITION_POLICY,
    LIGHTWEIGHT_MIN_AVAILABLE,
    LIGHTWEIGHT_POD_GROUP,
    POD_GROUP,
    RESERVATION_ORDER,
    CoreSchedPolicy,
    GpuPartitionPolicy,
    core_sched_policy,
    gpu_partition_policy,
    is_preemptible,
    is_quota_preemptible,
    reservation_order,
)
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

EXAMPLES: list[tuple[AnnotationCodec[Any], str]] = [
    (
        devices.ALLOCATED,
        (
            '{"gpu":[{"minor":3,"resources":{"koordinator.sh/gpu-core":"40",'
            '"koordinator.sh/gpu-memory":"9830Mi"},"id":"GPU-77aa"}],'
            '"rdma":[{"minor":1,"resources":{"koordinator.sh/rdma":"1"},"id":"0000:5e:00.0",'
            '"extension":{"vfs":[{"minor":-1,"busID":"0000:5e:00.2"}]}}]}'
        ),
    ),
    (
        devices.ALLOCATE_HINTS,
        (
            '{"gpu":{"requiredTopologyScope":"PCIe"},'
            '"rdma":{"selector":{"matchLabels":{"fabric":"ib0"}},"vfSelector":{}}}'
        ),
    ),
    (devices.JOINT_ALLOCATE, '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'),
    (devices.GPU_PARTITION_SPEC, '{"allocatePolicy":"Restricted","ringBusBandwidth":"200Gi"}'),
    (devices.METAX_ALLOCATED, '[[{"uuid":"m-1","compute":30,"vRam":1024}]]'),
    (
        reservation.AFFINITY,
        '{"reservationSelector":{"pool":"warm"},"tolerations":[{"key":"pool","operator":"Exists"}]}',
    ),
    (
        reservation.AFFINITY,
        (
            '{"requiredDuringSchedulingIgnoredDuringExecution":{"reservationSelectorTerms":'
            '[{"matchExpressions":[{"key":"pool","operator":"In","values":["warm"]}]}]}}'
        ),
    ),
    (reservation.EXACT_MATCH, '{"resourceNames":["nvidia.com/gpu"]}'),
    (reservation.ALLOCATED, '{"name":"ml-warm-pool-1","uid":"1b6f"}'),
    (reservation.RESTRICTED_OPTIONS, '{"resources":["cpu"]}'),
    (reservation.RESIZE_ALLOCATABLE, '{"resources":{"cpu":"5"}}'),
    (reservation.OWNERS, '[{"labelSelector":{"matchLabels":{"team":"vision"}}}]'),
    (reservation.CURRENT_OWNER, '{"namespace":"ml","name":"trainer","uid":"7"}'),
    (gang.GROUPS, '["ml/trainer-ps","ml/trainer-worker"]'),
    (
        gang.NETWORK_TOPOLOGY_SPEC,
        (
            '{"gatherStrategy":[{"layer":"HallLayer","strategy":"MustGather"},'
            '{"layer":"RackLayer","strategy":"PreferGather","podCountMultiple":4}]}'
        ),
    ),
    (
        scheduling.SCHEDULING_HINT,
        '{"nodeNames":["n1"],"preferredNodeNames":["n2"],"extensions":{"p":{"a":1}}}',
    ),
    (quota.SHARED_WEIGHT, '{"cpu":"2","memory":"8Gi"}'),
    (quota.NAMESPACES, '["nlp-dev","nlp-prod"]'),
    (quota.RESOURCE_KEYS, '["cpu","memory"]'),
    (quota.MAX_STRICT_CHECK_RESOURCE_KEYS, '["nvidia.com/gpu"]'),
    (
        numa.NUMA_TOPOLOGY_SPEC,
        '{"numaTopologyPolicy":"SingleNUMANode","singleNUMANodeExclusive":"Required"}',
    ),
    (
        numa.RESOURCE_SPEC,
        '{"requiredCPUBindPolicy":"SpreadByPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}',
    ),
    (
        numa.RESOURCE_STATUS,
        '{"cpuset":"4-7","numaNodeResources":[{"node":0,"resources":{"cpu":"4","memory":"8Gi"}}]}',
    ),
    (numa.CPU_TOPOLOGY, '{"detail":[{"id":0,"core":0,"socket":0,"node":0}]}'),
    (numa.CPU_SHARED_POOLS, '[{"socket":0,"node":0,"cpuset":"0-9"}]'),
    (numa.BE_CPU_SHARED_POOLS, '[{"socket":0,"node":0,"cpuset":"0-9"}]'),
    (
        numa.POD_CPU_ALLOCATIONS,
        '[{"namespace":"a","name":"b","uid":"c","cpuset":"0-1","managedByKubelet":true}]',
    ),
    (
        numa.KUBELET_CPU_MANAGER_POLICY,
        '{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0-1"}',
    ),
    (numa.CPU_BASIC_INFO, '{"cpuModel":"X","turboEnabled":true,"catL3CbmMask":"f","vendorID":"G"}'),
    (
        numa.NODE_RESERVATION,
        '{"resources":{"cpu":"2","memory":"4Gi"},"reservedCPUs":"0-3","applyPolicy":"Default"}',
    ),
    (numa.SYSTEM_QOS_RESOURCE, '{"cpuset":"0-1","cpusetExclusive":false}'),
    (
        node.THIRD_PARTY_ALLOCATIONS,
        (
            '{"allocations":[{"name":"hadoop-yarn","priority":"koord-batch",'
            '"resources":{"kubernetes.io/batch-cpu":"7000"}}]}'
        ),
    ),
    (
        node.ORIGIN_EXTENDED_ALLOCATABLE,
        '{"resources":{"kubernetes.io/batch-cpu":"30500","kubernetes.io/batch-memory":"64Gi"}}',
    ),
    (node.RAW_ALLOCATABLE, '{"cpu":"15900m"}'),
    (
        node.COLOCATION_STRATEGY,
        '{"enable":true,"midCPUThresholdPercent":40,"batchCPUThresholdPercent":10}',
    ),
    (
        node.USAGE_THRESHOLDS,
        (
            '{"usageThresholds":{"cpu":60},"aggregatedUsage":{"usageThresholds":{"cpu":70},'
            '"usageAggregationType":"p99","usageAggregatedDuration":"10m0s"}}'
        ),
    ),
    (
        pod_qos.EXTENDED_RESOURCE_SPEC,
        '{"containers":{"c":{"limits":{"kubernetes.io/batch-cpu":"2000"}}}}',
    ),
    (pod_qos.CPU_BURST, '{"policy":"auto","cpuBurstPercent":1000}'),
    (pod_qos.MEMORY_QOS, '{"wmarkRatio":95,"policy":"auto"}'),
    (pod_qos.CPU_QOS, '{"enable":true,"groupIdentity":-1}'),
    (pod_qos.BLKIO_QOS, '{"enable":true,"blocks":[{"name":"v","type":"podvolume"}]}'),
    (pod_qos.NETWORK_QOS, '{"ingressLimit":"40M","egressLimit":"10M"}'),
    (
        pod_qos.RESCTRL,
        (
            '{"llc":{"schemata":{"range":[0,40]},"schemataPerCache":[{"range":[0,20],"cacheID":1}]},'
            '"mb":{"schemata":{"percent":50}}}'
        ),
    ),
    (pod_qos.OOM_SCORE_ADJ_SPEC, '{"sidecar":-500}'),
    (pod_qos.EVICTION_POLICY, '["BECPUEvict"]'),
    (pod_qos.ESTIMATED_SCALING_FACTORS, '{"cpu":80}'),
    (
        scheduling.SOFT_EVICTION,
        (
            '{"timestamp":"2026-01-02T03:04:05Z","deleteOptions":{"gracePeriodSeconds":30},'
            '"initiator":"koord-descheduler","reason":"x"}'
        ),
    ),
]


def annotated(**annotations: str) -> ObjectMeta:
    return ObjectMeta(annotations=annotations)


@pytest.mark.parametrize(("codec", "text"), EXAMPLES, ids=lambda part: getattr(part, "key", ""))
def test_examples_survive_reading_and_writing(codec: AnnotationCodec[Any], text: str) -> None:
    """An example that is read and written again has the same content."""
    value = codec.read(annotated(**{codec.key: text}))

    assert codec.entry(value) == {codec.key: text}


def test_equal_values_have_equal_texts() -> None:
    """The order in which amounts were put together doesn't show, as in upstream."""
    cpu, memory = Quantity.parse("2"), Quantity.parse("8Gi")
    text = '{"cpu":"2","memory":"8Gi"}'

    assert quota.REQUEST.write({"memory": memory, "cpu": cpu}) == text
    assert quota.REQUEST.write({"cpu": cpu, "memory": memory}) == text


@pytest.mark.parametrize("text", [None, "", " ", "null"])
def test_nothing_is_read_as_none(text: str | None) -> None:
    """A missing, an empty and a null annotation are the same."""
    meta = annotated() if text is None else annotated(**{numa.POD_CPU_ALLOCATIONS.key: text})

    assert numa.POD_CPU_ALLOCATIONS.read(meta) is None


def test_nulls_inside_are_missing_fields() -> None:
    """Go writes null for what is empty."""
    text = '{"cpuset":"0-1","numaNodeResources":null}'
    status = numa.RESOURCE_STATUS.read(annotated(**{numa.RESOURCE_STATUS.key: text}))

    assert status == numa.CpuAllocation(cpuset="0-1")


@pytest.mark.parametrize(
    ("codec", "text", "message"),
    [
        (
            devices.ALLOCATED,
            '{"gpu":[{"resources":{}}]}',
            (
                "metadata.annotations[scheduling.koordinator.sh/device-allocated].gpu[0].minor: "
                "is required"
            ),
        ),
        (
            gang.GROUPS,
            "ml/a",
            "metadata.annotations[gang.scheduling.koordinator.sh/groups]: not valid JSON",
        ),
        (
            gang.GROUPS,
            "[1]",
            "annotations[gang.scheduling.koordinator.sh/groups][0]: must be a string, got 1",
        ),
        (
            quota.SHARED_WEIGHT,
            '{"cpu":"two"}',
            "metadata.annotations[quota.scheduling.koordinator.sh/shared-weight].cpu: ",
        ),
        (reservation.EXACT_MATCH, "[]", "/exact-match-reservation]: must be an object, got []"),
    ],
)
def test_broken_texts_name_annotation_and_place(
    codec: AnnotationCodec[Any], text: str, message: str
) -> None:
    """The error leads to the very field inside of the annotation."""
    with pytest.raises(InputError) as caught:
        codec.read(annotated(**{codec.key: text}))

    assert message in str(caught.value)


def test_former_key_counts_where_the_current_one_is_missing_or_empty() -> None:
    """A scheduling hint may still stand under its old name."""
    former, current = scheduling.SCHEDULING_HINT.former_key, scheduling.SCHEDULING_HINT.key
    old, new = '{"nodeNames":["old"]}', '{"nodeNames":["new"]}'

    for annotations, names in (
        ({former: old}, ("old",)),
        ({former: old, current: ""}, ("old",)),
        ({former: old, current: new}, ("new",)),
    ):
        hint = scheduling.SCHEDULING_HINT.read(annotated(**annotations))
        assert hint is not None
        assert hint.node_names == names


@pytest.mark.parametrize("score", ["7", '"7"'])
@pytest.mark.parametrize("brackets", ["[]", "  "])
def test_partition_tables_are_read_leniently(score: str, brackets: str) -> None:
    """A score in quotes and a lone partition without list are understood."""
    partition = f'{{"minors":[0,1],"gpuLinkType":"NVLink","allocationScore":{score}}}'
    text = f'{{"2":{brackets[0]}{partition}{brackets[1]}}}'
    table = devices.read_gpu_partitions(annotated(**{devices.GPU_PARTITIONS: text}))

    expected = devices.GpuPartition(minors=(0, 1), gpu_link_type="NVLink", allocation_score=7)
    assert table == {2: (expected,)}


@pytest.mark.parametrize(
    "group",
    [
        '{"NVLINK":[%s]}',
        '{"NVLINK":%s}',
        '[{"NVLINK":[%s]}]',
        '[{"NVLINK":%s}]',
    ],
)
def test_partitions_may_be_grouped_by_link_type(group: str) -> None:
    """As in the release note of v1.6; a partition without a link type has that of its group."""
    for own, link_type in (("", "NVLINK"), (',"gpuLinkType":"NVLink"', "NVLink")):
        text = '{"1":%s}' % (group % f'{{"minors":[0]{own},"allocationScore":"1"}}')
        table = devices.read_gpu_partitions(annotated(**{devices.GPU_PARTITIONS: text}))

        expected = devices.GpuPartition(minors=(0,), gpu_link_type=link_type, allocation_score=1)
        assert table == {1: (expected,)}


@pytest.mark.parametrize(
    ("group", "path"),
    [
        ("7", r"\[1\]: must be a partition with minors, got 7"),
        ('["x"]', r"\[1\]: must be a partition with minors, got 'x'"),
        ('{"NVLINK":[3]}', r"\[1\]\[NVLINK\]: must be a partition with minors, got 3"),
        ('{"NVLINK":{"NVLINK":[]}}', r"\[1\]\[NVLINK\].*minors"),
        ('[{"minors":["a"]}]', r"\[1\].*minors"),
        ("[{}]", r"\[1\].*minors"),
    ],
)
def test_broken_partitions_are_refused_with_their_place(group: str, path: str) -> None:
    """The value at the place of a partition may be of any JSON type."""
    meta = annotated(**{devices.GPU_PARTITIONS: f'{{"1":{group}}}'})

    with pytest.raises(InputError, match=rf"gpu-partitions\]{path}"):
        devices.read_gpu_partitions(meta)


def test_partition_tables_survive_writing_and_reading() -> None:
    """Scores are written as numbers, which is all that upstream reads."""
    pair = devices.GpuPartition(minors=(2, 3), gpu_link_type="HCCS", allocation_score=1)
    entry = devices.gpu_partitions_entry({2: (pair,)})

    assert entry == {
        devices.GPU_PARTITIONS: '{"2":[{"minors":[2,3],"gpuLinkType":"HCCS","allocationScore":1}]}'
    }
    assert devices.read_gpu_partitions(annotated(**entry)) == {2: (pair,)}


def test_partition_scores_are_numbers() -> None:
    """A score that is no number is refused, with the size of its group."""
    meta = annotated(**{devices.GPU_PARTITIONS: '{"2":[{"minors":[0],"allocationScore":"a"}]}'})

    with pytest.raises(
        InputError, match=r"gpu-partitions\]\[2\]: allocationScore must be an integer, got 'a'"
    ):
        devices.read_gpu_partitions(meta)


def test_partition_spec_without_policy_is_best_effort() -> None:
    """An empty object is still a wish for a partition."""
    spec = devices.GPU_PARTITION_SPEC.read(annotated(**{devices.GPU_PARTITION_SPEC.key: "{}"}))

    assert spec is not None
    assert spec.allocate_policy == devices.GpuPartitionAllocatePolicy.BEST_EFFORT


def test_empty_vf_selector_is_not_a_missing_one() -> None:
    """An empty selector selects any virtual function, a missing one none."""
    hints = devices.ALLOCATE_HINTS.read(
        annotated(**{devices.ALLOCATE_HINTS.key: '{"rdma":{"vfSelector":{}},"gpu":{}}'})
    )

    assert hints is not None
    assert (hints["rdma"].vf_selector, hints["gpu"].vf_selector) == (LabelSelector(), None)


def test_empty_reservation_affinity_requires_any_reservation() -> None:
    """Only without the annotation a pod may do without reservation."""
    key = reservation.AFFINITY.key

    assert reservation.read_reservation_affinity(annotated()) is None
    for text in ("", "null", "{}"):
        result = reservation.read_reservation_affinity(annotated(**{key: text}))
        assert result == reservation.ReservationAffinity()


def test_system_cpus_are_exclusive_unless_it_is_denied() -> None:
    """A missing flag is true."""
    result = numa.SYSTEM_QOS_RESOURCE.read(
        annotated(**{numa.SYSTEM_QOS_RESOURCE.key: '{"cpuset":"0-1"}'})
    )

    assert result is not None
    assert result.cpuset_exclusive


@pytest.mark.parametrize(
    ("labels", "annotations", "name"),
    [
        ({POD_GROUP: "a", LIGHTWEIGHT_POD_GROUP: "b"}, {gang.NAME: "c"}, "a"),
        ({POD_GROUP: "", LIGHTWEIGHT_POD_GROUP: "b"}, {gang.NAME: "c"}, "b"),
        ({}, {gang.NAME: "c"}, "c"),
        ({}, {}, ""),
    ],
)
def test_gang_name_comes_from_the_first_nonempty_key(
    labels: dict[str, str], annotations: dict[str, str], name: str
) -> None:
    """The label of the PodGroup, then the lightweight label, then the annotation."""
    assert gang.gang_name(ObjectMeta(labels=labels, annotations=annotations)) == name


@pytest.mark.parametrize(
    ("text", "minimum"), [("3", 3), ("", None), ("three", None), (str(2**31), None)]
)
def test_gang_minimum_is_a_number_of_32_bits(text: str, minimum: int | None) -> None:
    """Anything else leaves the gang without minimum; the label goes before the annotation."""
    assert gang.min_available(annotated(**{gang.MIN_AVAILABLE: text})) == minimum
    meta = ObjectMeta(
        labels={LIGHTWEIGHT_MIN_AVAILABLE: text}, annotations={gang.MIN_AVAILABLE: ""}
    )
    assert gang.min_available(meta) == minimum


@pytest.mark.parametrize(
    ("text", "wait"), [("90s", Duration(seconds=90)), ("0", None), ("-1s", None), ("soon", None)]
)
def test_gang_waits_for_a_positive_time_or_the_default(text: str, wait: Duration | None) -> None:
    """Invalid times, zero and negative times select the configured default."""
    assert gang.waiting_time(annotated(**{gang.WAITING_TIME: text})) == wait


def test_unknown_words_of_gangs_mean_the_default() -> None:
    """A mode is Strict, and a policy up to the scheduler, unless they are known."""
    odd = annotated(**{gang.MODE: "Lax", gang.MATCH_POLICY: "some"})
    alias = annotated(**{gang.MODE: "NonStrict", gang.MATCH_POLICY_ALIAS: "only-waiting"})

    assert (gang.mode(odd), gang.match_policy(odd)) == (gang.GangMode.STRICT, None)
    assert gang.mode(alias) == gang.GangMode.NON_STRICT
    assert gang.match_policy(alias) == gang.GangMatchPolicy.ONLY_WAITING


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("", 0),
        ("0", 0),
        ("10", 10),
        ("-10", -10),
        ("+10", 0),
        ("007", 0),
        ("many", 0),
        (str(2**31 - 1), scheduling.NEVER_EVICT),
        (str(2**31), 0),
    ],
)
def test_eviction_cost_is_a_plain_number(text: str, cost: int) -> None:
    """A plus, leading zeros and everything else count as 0."""
    assert scheduling.eviction_cost(annotated(**{scheduling.EVICTION_COST: text})) == cost


def test_amplification_ratios_have_two_decimals() -> None:
    """Trailing zeros are written, as upstream does."""
    entry = node.amplification_entry({"memory": 2.0, "cpu": 1.5})

    assert entry == {node.AMPLIFICATION_RATIOS: '{"cpu":1.50,"memory":2.00}'}
    assert node.read_amplification_ratios(ObjectMeta(annotations=entry)) == {
        "cpu": 1.5,
        "memory": 2.0,
    }
    assert node.cpu_normalization_entry(1.2) == {node.CPU_NORMALIZATION_RATIO: "1.20"}


@pytest.mark.parametrize("text", ["0", "-1", "nan", "fast"])
def test_normalization_ratio_is_above_zero(text: str) -> None:
    """No other field has the ratio, so it must be valid."""
    with pytest.raises(InputError, match="cpu-normalization-ratio"):
        node.read_cpu_normalization_ratio(annotated(**{node.CPU_NORMALIZATION_RATIO: text}))


def test_plain_numbers_amounts_name_their_annotation() -> None:
    """Annotations that are no JSON are read with the same care."""
    meta = annotated(n="5", f="0.7", bad="x", **{node.NETWORK_BANDWIDTH: "10G"})

    assert (read_int32(meta, "n"), read_float(meta, "f")) == (5, 0.7)
    assert node.read_network_bandwidth(meta) == Quantity.parse("10G")
    assert (read_int32(meta, "-"), read_float(meta, "-")) == (None, None)
    for read in (read_int32, read_float):
        with pytest.raises(InputError, match=r"metadata\.annotations\[bad\]"):
            read(meta, "bad")


def test_group_identity_of_a_pod_is_bounded() -> None:
    """The kernel knows -1 to 2."""
    meta = annotated(**{pod_qos.CPU_QOS.key: '{"groupIdentity":3}'})

    with pytest.raises(InputError, match=r"cpuQOS\].groupIdentity: must be in -1..2, got 3"):
        pod_qos.read_cpu_qos(meta)


@pytest.mark.parametrize(
    ("text", "weight"), [("", "60"), ("{", "60"), ('{"cpu":"0"}', "60"), ('{"cpu":"2"}', "2")]
)
def test_shared_weight_defaults_to_the_maximum(text: str, weight: str) -> None:
    """A missing, broken or zero weight is replaced."""
    elastic_quota = ElasticQuota(
        metadata=annotated(**{quota.SHARED_WEIGHT.key: text}),
        spec=ElasticQuotaSpec(max={"cpu": Quantity.parse("60")}),
    )

    assert quota.shared_weight(elastic_quota) == {"cpu": Quantity.parse(weight)}


def test_unreadable_namespaces_annotation_binds_no_namespace() -> None:
    """The quota itself stays usable."""
    for text, namespaces in (("{}", ()), ("", ()), ('["a"]', ("a",))):
        elastic_quota = ElasticQuota(metadata=annotated(**{quota.NAMESPACES.key: text}))
        assert quota.bound_namespaces(elastic_quota) == namespaces


def test_labels_are_read_leniently() -> None:
    """An unknown value counts as a missing label."""
    assert gpu_partition_policy({GPU_PARTITION_POLICY: "honor"}) is GpuPartitionPolicy.PREFER
    assert gpu_partition_policy({GPU_PARTITION_POLICY: "Honor"}) is GpuPartitionPolicy.HONOR
    assert core_sched_policy({CORE_SCHED_POLICY: "?"}) is CoreSchedPolicy.DEFAULT
    assert core_sched_policy({CORE_SCHED_POLICY: "exclusive"}) is CoreSchedPolicy.EXCLUSIVE
    assert [reservation_order({RESERVATION_ORDER: text}) for text in ("20", "x", "")] == [20, 0, 0]


def test_only_a_clear_word_protects_a_pod() -> None:
    """Preemption is off for ``true`` in one label, and for ``false`` in the other."""
    assert not is_preemptible({"scheduling.koordinator.sh/disable-preemptible": "true"})
    assert is_preemptible({"scheduling.koordinator.sh/disable-preemptible": "yes"})
    assert not is_quota_preemptible({"quota.scheduling.koordinator.sh/preemptible": "false"})
    assert is_quota_preemptible({"quota.scheduling.koordinator.sh/preemptible": "no"})
