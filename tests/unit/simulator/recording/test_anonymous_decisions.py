"""The scheduler decides about what was made anonymous as about the original."""

import io
import os
from pathlib import Path

from koordinator.api.codec import decode_object, to_manifest
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cli.input.configuration import read_configuration
from koordinator.simulator import schedule
from koordinator.simulator.manifests.reader import read_manifests
from koordinator.simulator.policies import default_configuration
from koordinator.simulator.recording import Anonymiser

EXAMPLES = Path(__file__).parents[4] / "examples"
WORLD = """
apiVersion: v1
kind: Node
metadata:
  name: rack-7.corp
  labels: {kubernetes.io/hostname: rack-7.corp,
    corp.example/team: red, topology.kubernetes.io/zone: eu}
spec: {taints: [{key: corp.example/only, value: finance, effect: NoSchedule}]}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "20",
    corp.example/chip: "2", hugepages-2Mi: 1Gi}}
---
apiVersion: v1
kind: Node
metadata:
  name: rack-8.corp
  labels: {kubernetes.io/hostname: rack-8.corp,
    corp.example/team: blue, topology.kubernetes.io/zone: us}
status: {allocatable: {cpu: "16", memory: 64Gi, pods: "20"}}
---
apiVersion: v1
kind: Pod
metadata: {name: ledger, namespace: bank, labels: {app: ledger}}
spec:
  tolerations: [{key: corp.example/only, operator: Equal, value: finance}]
  containers: [{name: c, resources: {limits: {corp.example/chip: "1"}, requests: {cpu: "1"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: shadow, namespace: bank, labels: {app: shadow}}
spec:
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - labelSelector: {matchExpressions: [{key: app, operator: In, values: [ledger]}]}
        topologyKey: topology.kubernetes.io/zone
  containers: [{name: c, resources: {requests: {cpu: "1"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: pinned, namespace: bank}
spec:
  nodeSelector: {corp.example/team: blue}
  containers: [{name: c, resources: {requests: {cpu: "1"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: lost, namespace: bank}
spec:
  nodeSelector: {corp.example/team: green}
  containers: [{name: c, resources: {requests: {cpu: "1"}}}]
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata:
  {name: traders, namespace: bank, labels: {quota.scheduling.koordinator.sh/is-parent: "false"}}
spec: {min: {cpu: "1", memory: 1Gi}, max: {cpu: "2", memory: 4Gi}}
---
apiVersion: v1
kind: Pod
metadata:
  {name: small, namespace: bank, labels: {quota.scheduling.koordinator.sh/name: traders}}
spec:
  schedulerName: koord-scheduler
  containers: [{name: c, resources: {requests: {cpu: "1", memory: 1Gi}}}]
---
apiVersion: v1
kind: Pod
metadata:
  {name: large, namespace: bank, labels: {quota.scheduling.koordinator.sh/name: traders}}
spec:
  schedulerName: koord-scheduler
  containers: [{name: c, resources: {requests: {cpu: "2", memory: 1Gi}}}]
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: for-payroll}
spec:
  ttl: 1h
  owners: [{labelSelector: {matchLabels: {job: payroll}}}]
  template:
    spec:
      schedulerName: koord-scheduler
      containers: [{name: c, resources: {requests: {cpu: "6"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: payroll, namespace: bank, labels: {job: payroll}}
spec:
  schedulerName: koord-scheduler
  containers: [{name: c, resources: {requests: {cpu: "6"}}}]
---
apiVersion: v1
kind: Pod
metadata:
  name: member-0
  namespace: bank
  annotations:
    gang.scheduling.koordinator.sh/name: settlement
    gang.scheduling.koordinator.sh/min-available: "2"
    gang.scheduling.koordinator.sh/groups: '["bank/settlement"]'
spec:
  schedulerName: koord-scheduler
  containers: [{name: c, resources: {requests: {cpu: "2"}}}]
---
apiVersion: v1
kind: Pod
metadata:
  name: member-1
  namespace: bank
  annotations:
    gang.scheduling.koordinator.sh/name: settlement
    gang.scheduling.koordinator.sh/min-available: "2"
    gang.scheduling.koordinator.sh/groups: '["bank/settlement"]'
spec:
  schedulerName: koord-scheduler
  containers: [{name: c, resources: {requests: {cpu: "2"}}}]
"""


def decided(objects: list[KubeObject], configuration: KubeSchedulerConfiguration) -> dict[str, str]:
    result = schedule(objects, configuration, now_s=1.8e9)
    return {it.pod: it.node for it in result.placements} | {
        it.pod: "" for it in result.unschedulable
    }


def hidden(objects: list[KubeObject], one: Anonymiser) -> list[KubeObject]:
    return [decode_object(one.manifest(to_manifest(obj))) for obj in objects]


def test_anonymous_recording_gives_the_same_decisions() -> None:
    """Selectors, taints, resources of vendors, quotas, gangs, reservations."""
    objects = read_manifests(["-"], io.BytesIO(WORLD.encode()))
    configuration, one = default_configuration(), Anonymiser(os.urandom(16))
    before = decided(objects, configuration)
    after = decided(hidden(objects, one), configuration)

    def shown(pod: str) -> str:
        namespace, _, name = pod.partition("/")
        return f"{one.name(namespace)}/{one.pod_name(name)}"

    assert {shown(pod): one.name(node) for pod, node in before.items()} == after
    assert len(set(before.values())) > 1
    assert len(before) == sum(isinstance(obj, Pod) for obj in objects)


def test_anonymous_network_places_as_many_members() -> None:
    """As many members are placed; among equal domains the names decide, which are others."""
    objects = read_manifests([str(EXAMPLES / "topology.yaml")], io.BytesIO())
    configuration = read_configuration(EXAMPLES / "topology-scheduler.yaml")
    before = decided(objects, configuration)
    after = decided(hidden(objects, Anonymiser(os.urandom(16))), configuration)

    assert sorted(map(bool, before.values())) == sorted(map(bool, after.values()))
    assert any(before.values())
