"""The types of custom resources: JSON names, defaults, rules."""

import json
from typing import Any

import pytest
import yaml

from koordinator.api.codec import decode_object, to_manifest
from koordinator.api.colocation import ClusterColocationProfile
from koordinator.api.device import NUMA_UNKNOWN, Device
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.meta import KubeObject
from koordinator.api.node_metric import NodeMetric
from koordinator.api.node_slo import NodeSlo
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.reservation import DEFAULT_TTL, Reservation, ReservationPhase
from koordinator.api.validation import validate
from koordinator.foundation.errors import InputError

RESERVATION = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata:
  name: ml-warm-pool-1
  labels: {pool: warm, scheduling.koordinator.sh/reservation-order: "20"}
spec:
  allocateOnce: false
  allocatePolicy: Restricted
  ttl: 6h0m0s
  taints: [{key: pool, value: warm, effect: NoSchedule}]
  owners:
  - labelSelector: {matchLabels: {team: vision}}
  - controller:
      {apiVersion: apps/v1, kind: StatefulSet, name: trainer, uid: 1b6f0d6e, namespace: ml}
  template:
    spec:
      schedulerName: koord-scheduler
      containers:
      - {name: hold, image: none, resources: {requests: {cpu: "6", memory: 12Gi, pods: "3"}}}
"""
DEVICE = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata:
  name: npu-node-7
  labels: {node.koordinator.sh/gpu-vendor: huawei}
spec:
  devices:
  - type: gpu
    id: npu-0-0
    minor: 0
    moduleID: 3
    health: true
    resources: {huawei.com/npu-core: "20", koordinator.sh/gpu-memory: 64Gi}
    topology: {socketID: -1, nodeID: -1, pcieID: "pci0000:15", busID: "0000:17:00.0"}
    vfGroups: [{labels: {fabric: ib0}, vfs: [{minor: -1, busID: "0000:17:00.2"}]}]
    conditions:
    - type: Healthy
      status: "True"
      reason: DeviceHealthy
      message: device is healthy
      lastTransitionTime: "2026-01-02T03:04:05Z"
"""
POD_GROUP = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata:
  name: trainer-ps
  namespace: ml
  annotations: {gang.scheduling.koordinator.sh/groups: '["ml/trainer-ps","ml/trainer-worker"]'}
spec: {minMember: 2, scheduleTimeoutSeconds: 180}
"""
QUOTA = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata:
  name: research-nlp
  namespace: tenants
  labels:
    quota.scheduling.koordinator.sh/parent: research
    quota.scheduling.koordinator.sh/allow-lent-resource: "false"
  annotations:
    quota.scheduling.koordinator.sh/shared-weight: '{"cpu":"2","memory":"8Gi"}'
spec: {min: {cpu: "10", memory: 40Gi}, max: {cpu: "60", memory: 240Gi}}
"""
PROFILE = """
apiVersion: quota.koordinator.sh/v1alpha1
kind: ElasticQuotaProfile
metadata: {name: pool-a, namespace: kube-system}
spec:
  quotaName: pool-a-root
  quotaLabels: {quota.scheduling.koordinator.sh/is-parent: "true"}
  resourceRatio: "0.85"
  nodeSelector: {matchLabels: {pool: a}}
"""
TOPOLOGY = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: ClusterNetworkTopology
metadata: {name: default}
spec:
  networkTopologySpec:
  - {topologyLayer: HallLayer, labelKey: ["dc.example.com/hall"]}
  - topologyLayer: RackLayer
    parentTopologyLayer: HallLayer
    labelKey: ["dc.example.com/rack", "legacy.example.com/rack"]
  - {topologyLayer: NodeTopologyLayer, parentTopologyLayer: RackLayer}
status:
  detailStatus:
  - topologyInfo: {topologyLayer: ClusterTopologyLayer, topologyName: ""}
    childTopologyLayer: HallLayer
    childTopologyNames: [h1]
    nodeNum: 4
"""
NUMA_TOPOLOGY = """
apiVersion: topology.node.k8s.io/v1alpha1
kind: NodeResourceTopology
metadata: {name: n1}
topologyPolicies: [SingleNUMANodePodLevel]
zones:
- name: node-0
  type: Node
  costs: [{name: node-1, value: 20}]
  resources: [{name: cpu, capacity: "16", allocatable: "15", available: "15"}]
"""
NODE_METRIC = """
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeMetric
metadata: {name: n1}
spec:
  metricCollectPolicy:
    aggregateDurationSeconds: 300
    reportIntervalSeconds: 60
    nodeAggregatePolicy: {durations: [5m0s, 10m0s]}
    nodeMemoryCollectPolicy: usageWithoutPageCache
status:
  updateTime: "2026-01-02T03:04:05Z"
  nodeMetric:
    nodeUsage: {resources: {cpu: 9420m, memory: 41Gi}}
    aggregatedNodeUsages:
    - {duration: 5m0s, usage: {p95: {resources: {cpu: "12", memory: 43Gi}}}}
    numaUsages: [{numaNodeID: 0, nodeUsage: {resources: {cpu: "4"}}}]
  podsMetric:
  - namespace: shop
    name: cart-0
    podUsage: {resources: {cpu: 310m}}
    priority: koord-prod
    qos: LS
    extensions: {note: {depth: 2}}
  prodReclaimableMetric: {resource: {resources: {cpu: "3"}}}
"""
NODE_SLO = """
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeSLO
metadata: {name: n1}
spec:
  resourceUsedThresholdWithBE:
    enable: true
    cpuSuppressThresholdPercent: 65
    cpuEvictBESatisfactionLowerPercent: 30
    cpuEvictBESatisfactionUpperPercent: 50
    cpuEvictBEUsageThresholdPercent: 90
  resourceQOSStrategy:
    policies: {cpuPolicy: groupIdentity, netQOSPolicy: tc}
    beClass:
      cpuQOS: {enable: true, groupIdentity: -1}
      memoryQOS: {enable: true, wmarkMinAdj: 50}
      blkioQOS:
        enable: true
        blocks: [{name: /dev/sdb, type: device, ioCfg: {readIOPS: 100, modelReadSeqIOPS: 9}}]
      resctrlQOS: {enable: true, catRangeStartPercent: 0, catRangeEndPercent: 30}
      networkQOS: {enable: true, egressLimit: 50M, ingressLimit: 40}
  cpuBurstStrategy: {policy: auto, cpuBurstPercent: 1000, sharePoolThresholdPercent: 50}
  systemStrategy: {schedFeatures: {ID_BOOK_CPU: true}, totalNetworkBandwidth: "0"}
  hostApplications:
  - name: yarn-task
    priority: koord-batch
    qos: BE
    cgroupPath: {base: KubepodsBesteffort, relativePath: hadoop-yarn/}
  extensions: {other: [1, 2]}
"""
COLOCATION = """
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: nightly-etl}
spec:
  namespaceSelector: {matchLabels: {tier: offline}}
  selector: {matchLabels: {app: etl}}
  probability: 40%
  qosClass: BE
  priorityClassName: koord-batch
  koordinatorPriority: 120
  labels: {team: data}
  labelSuffixes: {release: "-colo"}
  schedulerName: koord-scheduler
  patch: {spec: {terminationGracePeriodSeconds: 15}}
"""
JOB = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: PodMigrationJob
metadata: {name: move-cart-7}
spec:
  mode: ReservationFirst
  ttl: 10m0s
  podRef: {namespace: shop, name: cart-7}
  reservationOptions: {template: {spec: {allocateOnce: true}}}
  deleteOptions: {gracePeriodSeconds: 30}
status:
  phase: Running
  preemptedPodsReservation: [{name: r1, nodeName: n2}]
"""
EXPLANATION = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: ScheduleExplanation
metadata: {name: why, namespace: ml}
spec: {questionObjectKey: ml/trainer}
status:
  detailedExplanation:
  - topologyDomain: rack-1
    scheduleExplanation:
      nodeFailedDetails:
      - {failedPlugin: Fit, reason: Insufficient cpu, preemptMightHelp: true, failedNodes: [n1]}
"""
RECOMMENDATION = """
apiVersion: analysis.koordinator.sh/v1alpha1
kind: Recommendation
metadata: {name: web, namespace: shop}
spec: {target: {type: workload, workload: {apiVersion: apps/v1, kind: Deployment, name: web}}}
status:
  podStatus: {containerStatuses: [{containerName: main, resources: {cpu: 250m}}]}
"""
MANIFESTS = {
    text.split("kind: ")[1].split()[0]: text
    for text in (
        RESERVATION,
        DEVICE,
        POD_GROUP,
        QUOTA,
        PROFILE,
        TOPOLOGY,
        NUMA_TOPOLOGY,
        NODE_METRIC,
        NODE_SLO,
        COLOCATION,
        JOB,
        EXPLANATION,
        RECOMMENDATION,
    )
}


def manifest(kind: str) -> dict[str, Any]:
    """Return the example of a kind, as JSON has it: without dates."""
    tree: dict[str, Any] = json.loads(json.dumps(yaml.load(MANIFESTS[kind], yaml.CSafeLoader)))
    return tree


def read(tree: dict[str, Any]) -> KubeObject:
    obj = decode_object(tree)
    validate(obj)
    return obj


def changed(kind: str, path: str, value: object) -> dict[str, Any]:
    """Return the example of a kind with another value at a path such as ``spec/owners/0``."""
    tree = manifest(kind)
    *steps, last = [int(step) if step.isdecimal() else step for step in path.split("/")]
    place: Any = tree
    for step in steps:
        place = place[step]
    place[last] = value
    return tree


@pytest.mark.parametrize("kind", MANIFESTS)
def test_examples_survive_reading_and_writing(kind: str) -> None:
    """An example that is read and written again has the same content."""
    assert to_manifest(read(manifest(kind))) == manifest(kind)


@pytest.mark.parametrize("kind", MANIFESTS)
def test_unknown_fields_are_tolerated(kind: str) -> None:
    """A newer API server may send fields that we don't know."""
    tree = manifest(kind) | {"future": {"a": [1]}}
    if "spec" in tree:
        tree["spec"] |= {"future": True}

    assert to_manifest(read(tree)) == manifest(kind)


def test_reservation_defaults_to_one_pod_and_one_day() -> None:
    """A null counts as absent: allocateOnce is true, ttl 24h and the phase Pending."""
    tree = manifest("Reservation")
    tree["spec"] |= {"allocateOnce": None, "ttl": None}
    reservation = read(tree)

    assert isinstance(reservation, Reservation)
    assert reservation.spec.allocate_once
    assert reservation.spec.ttl == DEFAULT_TTL
    assert reservation.status.phase == ReservationPhase.PENDING


def test_device_without_numa_node_and_health() -> None:
    """NUMA node -1 is unknown, and a device without the field health is unhealthy."""
    tree = manifest("Device")
    del tree["spec"]["devices"][0]["health"]
    device = read(tree)

    assert isinstance(device, Device)
    (info,) = device.spec.devices
    assert not info.health
    assert info.topology is not None
    assert info.topology.node_id == NUMA_UNKNOWN


def test_irregular_json_names_are_read() -> None:
    """QOS, BE, IOPS and the like keep their capitals in JSON."""
    slo = read(manifest("NodeSLO"))

    assert isinstance(slo, NodeSlo)
    strategy, thresholds = slo.spec.resource_qos_strategy, slo.spec.resource_used_threshold_with_be
    assert strategy is not None
    assert strategy.be_class is not None
    assert strategy.be_class.blkio_qos is not None
    assert strategy.be_class.blkio_qos.blocks[0].io_cfg.model_read_seq_iops == 9
    assert strategy.be_class.network_qos is not None
    assert strategy.be_class.network_qos.egress_limit == "50M"
    assert thresholds is not None
    assert thresholds.cpu_evict_be_satisfaction_lower_percent == 30


def test_words_that_upstream_does_not_check_are_kept() -> None:
    """An object with an unknown mode or class is accepted."""
    job = read(changed("PodMigrationJob", "spec/mode", "Teleport"))
    metric = read(changed("NodeMetric", "status/podsMetric/0/priority", "gold"))

    assert isinstance(job, PodMigrationJob)
    assert isinstance(metric, NodeMetric)
    assert job.spec.mode == "Teleport"
    assert metric.status.pods_metric[0].priority == "gold"


@pytest.mark.parametrize(("name", "parent"), [("a", "koordinator-root-quota"), ("b", "a")])
def test_quota_without_parent_belongs_to_the_root(name: str, parent: str) -> None:
    """Only the root quota itself has no parent."""
    labels = {} if parent.startswith("koordinator") else {"parent": parent}
    prefixed = {f"quota.scheduling.koordinator.sh/{key}": label for key, label in labels.items()}
    tree = manifest("ElasticQuota")
    tree["metadata"] = {"name": name, "namespace": "x", "labels": prefixed}
    quota = read(tree)
    tree["metadata"]["name"] = "koordinator-root-quota"
    tree["metadata"]["labels"] = {}
    root = read(tree)

    assert isinstance(quota, ElasticQuota)
    assert isinstance(root, ElasticQuota)
    assert (quota.parent, root.parent) == (parent, "")
    assert quota.lends


@pytest.mark.parametrize(
    ("kind", "place", "value", "message"),
    [
        ("Reservation", "spec/owners", [], "Reservation ml-warm-pool-1: spec.owners: "),
        ("Reservation", "spec/owners/0", {}, "spec.owners[0]: must set at least one of object,"),
        ("Reservation", "spec/allocatePolicy", "Loose", "spec.allocatePolicy: "),
        ("Reservation", "spec/ttl", "1d", "spec.ttl: "),
        (
            "Reservation",
            "spec/owners/0/labelSelector",
            {"matchExpressions": [{"key": "a", "operator": "Is"}]},
            "spec.owners[0].labelSelector.matchExpressions[0].operator: must be In or NotIn",
        ),
        (
            "Reservation",
            "spec/taints/0/effect",
            "Never",
            "spec.taints[0].effect: must be NoSchedule or",
        ),
        (
            "Reservation",
            "spec/template/spec/containers/0/resources/requests/cpu",
            "-6",
            (
                "spec.template.spec.containers[0].resources.requests.cpu: must be an amount of at "
                "least 0, got '-6'"
            ),
        ),
        ("Device", "spec/devices/0/minor", 2**31, "spec.devices[0].minor: "),
        ("Device", "spec/devices/0/topology", {}, "spec.devices[0].topology.socketID: is required"),
        (
            "Device",
            "spec/devices/0/conditions/0/reason",
            "ECC error",
            "spec.devices[0].conditions[0].reason: ",
        ),
        (
            "Device",
            "spec/devices/0/resources/x",
            "-1",
            "spec.devices[0].resources.x: must be an amount of at least 0, got '-1'",
        ),
        (
            "PodGroup",
            "spec/minMember",
            "2",
            "PodGroup ml/trainer-ps: spec.minMember: must be an integer",
        ),
        (
            "ElasticQuota",
            "spec/min/cpu",
            "61",
            "spec.min[cpu]: must be at most 60, as in spec.max, got '61'",
        ),
        ("ElasticQuota", "spec/min/disk", "1", "spec.min[disk]: must be set in spec.max"),
        (
            "ElasticQuota",
            "spec/max/cpu",
            "-60",
            "spec.max[cpu]: must be an amount of at least 0, got '-60'",
        ),
        (
            "ElasticQuota",
            "metadata/annotations",
            {"quota.scheduling.koordinator.sh/shared-weight": "{"},
            "metadata.annotations[quota.scheduling.koordinator.sh/shared-weight]: not valid JSON",
        ),
        ("ElasticQuotaProfile", "spec/quotaName", "A b", "spec.quotaName: must be at most 253"),
        (
            "ElasticQuotaProfile",
            "spec/resourceRatio",
            "85%",
            "spec.resourceRatio: must be a number above 0 and at most 1, got '85%'",
        ),
        (
            "ClusterNetworkTopology",
            "spec/networkTopologySpec/1/parentTopologyLayer",
            "Hall",
            "spec.networkTopologySpec: layer Hall has no entry; layers must form one chain",
        ),
        (
            "ClusterNetworkTopology",
            "spec/networkTopologySpec/0/parentTopologyLayer",
            "RackLayer",
            "layer RackLayer names a parent of itself",
        ),
        (
            "ClusterNetworkTopology",
            "spec/networkTopologySpec/1/parentTopologyLayer",
            "",
            "all layers must form one chain; not connected to NodeTopologyLayer: HallLayer",
        ),
        (
            "ClusterNetworkTopology",
            "spec/networkTopologySpec/1/topologyLayer",
            "HallLayer",
            "spec.networkTopologySpec[1].topologyLayer: must be unique, got 'HallLayer'",
        ),
        (
            "NodeSLO",
            "spec/cpuBurstStrategy/cpuBurstPercent",
            10_001,
            "cpuBurstPercent: must be an integer <= 10000, got 10001",
        ),
        (
            "NodeMetric",
            "spec/metricCollectPolicy/nodeMemoryCollectPolicy",
            "all",
            "CollectPolicy: ",
        ),
        ("ClusterColocationProfile", "spec/qosClass", "GOLD", "spec.qosClass: "),
        (
            "ClusterColocationProfile",
            "spec/probability",
            "140%",
            "spec.probability: must be 0..100 or 0%..100%, got '140%'",
        ),
        (
            "ClusterColocationProfile",
            "spec/probability",
            101,
            "spec.probability: must be 0..100 or 0%..100%, got 101",
        ),
        ("PodMigrationJob", "spec/podRef", None, "spec.podRef: is required"),
        ("NodeResourceTopology", "zones/0/resources/0/available", None, "available: is required"),
    ],
)
def test_bad_values_are_refused_with_their_path(
    kind: str, place: str, value: object, message: str
) -> None:
    """The error names the object, the field, what was found and what is accepted."""
    with pytest.raises(InputError) as caught:
        read(changed(kind, place, value))

    assert message in str(caught.value)


@pytest.mark.parametrize("probability", [None, 0, 100, "0%", "99%", "100%"])
def test_probabilities_are_percentages(probability: object) -> None:
    """With or without a percent sign; without a value it is 100."""
    assert isinstance(
        read(changed("ClusterColocationProfile", "spec/probability", probability)),
        ClusterColocationProfile,
    )
