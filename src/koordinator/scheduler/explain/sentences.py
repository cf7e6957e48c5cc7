"""What the reasons of the built-in plugins mean, in plain words.

Messages of the scheduler are those of Kubernetes and the original, byte by byte, as programs read
them.  People get a sentence, about the node ("the node is cordoned") or the pod ("its quota …").
The amounts are told by the plugin's ``detail``, node by node.
"""

import re
from typing import Final

from koordinator.scheduler.rules.reservations.fit import BY_NODE, PREFIX

#: Pattern of the whole reason -> sentence, with the groups of the pattern.  The first that matches
#: counts.  "It" is the pod.
SENTENCES: Final[tuple[tuple[str, str], ...]] = (
    # amounts
    (r"Too many pods", "the node runs as many pods as it may"),
    (r"Insufficient amplified cpu", "too little CPU is free, counted before it is amplified"),
    (r"Insufficient NUMA (\S+)", r"too little {0} is free on the NUMA nodes that would serve"),
    (r"Insufficient (\S+) VirtualFunctions", "too few virtual functions of {0} devices are free"),
    (r"Insufficient (gpu|rdma|fpga) devices", "too few {0} devices have enough left"),
    (r"Insufficient Partitioned GPU Devices", "no GPU partition of that size is free"),
    (r"Insufficient Topology Scoped GPU Devices", "too few GPUs are free in one topology scope"),
    (r"Insufficient GPU Devices", "too few GPUs are free that could be used together"),
    (r"Insufficient NUMA Scoped Devices", "no set of NUMA nodes has all the devices"),
    (r"Insufficient (kubernetes\.io/(?:batch|mid)-\S+)", "too little {0} is left by other pods"),
    (r"Insufficient (\S+)", "too little {0} is free"),
    # facts of nodes
    (r"node\(s\) were unschedulable", "the node is cordoned"),
    (
        r"node\(s\) had untolerated taint\(s\)",
        "the node has a taint that the pod does not tolerate",
    ),
    (
        r"node\(s\) didn't match Pod's node affinity/selector",
        "the node's labels are not what the pod selects",
    ),
    (
        r"node\(s\) didn't match scheduler-enforced node affinity",
        "the scheduler's configuration (addedAffinity) keeps pods off the node",
    ),
    (r"pod affinity terms conflict", "the node names that the pod requires exclude each other"),
    (
        r"node\(s\) didn't match the requested node name",
        "the node is not the one that the pod names",
    ),
    (
        r"node\(s\) not in the pod's scheduling hint",
        "the pod's scheduling hint does not name the node",
    ),
    (r"node\(s\) didn't have free ports for the requested pod ports", "a host port is taken"),
    # other pods
    (
        r"node\(s\) didn't match pod topology spread constraints \(missing required label\)",
        "the node lacks the label by which the pod wants to be spread",
    ),
    (
        r"node\(s\) didn't match pod topology spread constraints",
        "with the pod there, pods like it would be spread too unevenly",
    ),
    (r"node\(s\) didn't match pod affinity rules", "no pod that it must be near to is there"),
    (r"node\(s\) didn't match pod anti-affinity rules", "pods that it keeps away from are there"),
    (
        r"node\(s\) didn't satisfy existing pods anti-affinity rules",
        "pods that keep such pods away are there",
    ),
    # measured load
    (r"node\(s\) nodeMetric expired", "the node's load has not been reported for too long"),
    (r"node\(s\) (\S+) usage exceed threshold", "too much of the node's {0} would be in use"),
    (
        r"node\(s\) (\S+) aggregated usage exceed threshold",
        "too much of the node's {0} would be in use, by the average or percentile that counts",
    ),
    # NUMA nodes and CPUs
    (
        r"Unaligned NUMA Hint cause .*",
        "what the pod asks for can't come from NUMA nodes as the policy wants",
    ),
    (r"Unsatisfied NUMA (\S+)", "the node's NUMA nodes have too little {0}"),
    (r"node\(s\) missing NUMA resources", "the node has not reported what its NUMA nodes have"),
    (
        r"node\(s\) NUMA Topology policy not match",
        "the node's NUMA topology policy is another one than the pod's",
    ),
    (r"node\(s\) invalid CPU Topology", "the node has not reported its CPUs"),
    (
        r"node\(s\) invalid CPU amplification ratio",
        "the node's CPU amplification ratio can't be read",
    ),
    (r"not enough cpus available to satisfy request", "too few CPUs are free to be bound"),
    (r"insufficient resources on NUMA Node", "the node has no NUMA nodes with amounts"),
    (
        r"insufficient CPUs to satisfy required cpu bind policy (\S+)",
        "the free CPUs can't be bound by the policy {0}",
    ),
    (
        r"node\(s\) cpu bind policy conflicts with pod's required cpu bind policy",
        "the node binds CPUs by another policy than the pod requires",
    ),
    (
        r"node\(s\) requested cpus not multiple cpus per core",
        "the node gives out whole cores, and the pod asks for a part of one",
    ),
    (
        r"the requested CPUs must be integer",
        "the pod's CPUs are to be bound, so that it has to ask for whole ones",
    ),
    # devices
    (r"node\(s\) missing GPU Partition Table", "the node has not reported its GPU partitions"),
    (r"node\(s\) Unsupported number of GPU requests", "the node has no GPU partition of that size"),
    (
        r"node\(s\) missing GPU Device Topology Tree",
        "the node has not reported how its GPUs are wired",
    ),
    (r"node\(s\) Unsupported Multi-Shared GPU", "parts of several GPUs can't be had together"),
    (
        r"node\(s\) Device Joint-Allocate rules violation",
        "too few of the devices that go together are free on one PCIe root",
    ),
    (r"no matched GPU shared resource template", "no template for shared GPUs is of that size"),
    (
        r"GPUIsolationProviderHAMICore not found on the node",
        "the node's GPUs are not shared by the isolation provider that the pod names",
    ),
    (
        r'model "(.*)" of vendor "(.*)" does not support GPU Share',
        "the node's GPUs ({1} {0}) are only given out whole",
    ),
    (r"invalid resource device requests: (.*)", "these device requests don't go together: {0}"),
    (r"invalid resource unit (.*)", "the amount of a device request is not possible: {0}"),
    # volumes
    (r'persistentvolumeclaim "(.*)" not found', "its PersistentVolumeClaim {0} does not exist"),
    (
        r'looking up PVC (.*): persistentvolumeclaim ".*" not found',
        "its PersistentVolumeClaim {0} does not exist",
    ),
    (
        r'waiting for ephemeral volume controller to create the persistentvolumeclaim "(.*)"',
        "the claim {0} of its ephemeral volume has not been created yet",
    ),
    (
        r"PVC (\S+) was not created for pod (\S+) \(pod is not owner\)",
        "a claim {0} exists that was not made for the ephemeral volume of the pod",
    ),
    (
        r'persistentvolumeclaim "(.*)" bound to non-existent persistentvolume "(.*)"',
        "its PersistentVolumeClaim {0} is bound to the volume {1}, which is gone",
    ),
    (r'persistentvolumeclaim "(.*)" is being deleted', "its PersistentVolumeClaim {0} is deleted"),
    (r'persistentvolume "(.*)" not found', "the PersistentVolume {0} of its claim does not exist"),
    (r'storageclass\.storage\.k8s\.io "(.*)" not found', "the StorageClass {0} does not exist"),
    (
        r"pod has unbound immediate PersistentVolumeClaims",
        "one of its claims has no volume yet, and the StorageClass does not wait for pods",
    ),
    (r"PersistentVolumeClaim had no pv name and storageClass name", "its claim has no volume"),
    (r"PersistentVolume had no name", "its claim has no volume"),
    (
        r"node\(s\) unavailable due to one or more pvc\(s\) bound to non-existent pv\(s\)",
        "the PersistentVolume of a claim is gone",
    ),
    (r"node\(s\) didn't match PersistentVolume's node affinity", "a volume can't be reached there"),
    (
        r"node\(s\) didn't find available persistent volumes to bind",
        "no volume for a claim is free there, and none can be made",
    ),
    (r"node\(s\) did not have enough free storage", "no storage for a new volume is left there"),
    (r"node\(s\) had no available volume zone", "a volume of the pod is in another zone"),
    (r'provisioning failed for PVC "(.*)"', "no volume could be made for its claim {0}"),
    (r"node\(s\) exceed max volume count", "the node can't attach more volumes"),
    (r"(.*) CSI driver is not installed on the node", "the node does not have the CSI driver {0}"),
    (
        r"node\(s\) didn't match Pod's required features",
        "the node's kubelet does not declare a feature that the pod needs",
    ),
    (
        r"node declared features check failed - unsatisfied requirements: (.*)",
        "the node's kubelet does not declare the feature {0}",
    ),
    (r"node\(s\) had no available disk", "a disk of the pod is in use there"),
    (
        (
            r"node\(s\) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode"
            r" already in-use by another pod"
        ),
        "another pod uses a claim that only one pod may use (ReadWriteOncePod)",
    ),
    # reservations
    (
        r"node\(s\) no reservations match reservation affinity",
        "it needs a reservation, and none that it may use is there",
    ),
    (r"node\(s\) no reservation\(s\) to meet the requirements", "no reservation has enough left"),
    (
        r"node\(s\) didn't match the nodeName specified by reservation",
        "the reservation names another node",
    ),
    (
        r"node\(s\) reservation allocate policy conflict",
        "a reservation of another allocate policy is there",
    ),
    (
        r"node\(s\) reservation pre allocation is unsupported with current attributes",
        "this reservation can't take over running pods",
    ),
    (
        r"node\(s\) no pod match reservation with pre allocation required",
        "no running pod is there that the reservation could take over",
    ),
    (
        r"node\(s\) no pod\(s\) to meet the pre-allocation requirements",
        "the pods that the reservation could take over don't hold enough",
    ),
    (
        r"reservation requires cluster mode pre-allocation which is disabled",
        "the scheduler's configuration does not let it take over pods of others (cluster mode)",
    ),
    # quotas, gates, gangs
    (
        r"Insufficient quotas, quotaName: (\S+), .*exceedDimensions: \[(.*)\]",
        "quota {0} has too little {1} left",
    ),
    (r"Insufficient quotas, quotaName: (\S+), .*", "quota {0} has too little left"),
    (
        r"Insufficient quotas, quotaNameTopo: \[(.*)\], .*exceedDimensions: \[(.*)\]",
        "a quota above its own ({0}) has too little {1} left",
    ),
    (
        r"Insufficient quotas, quotaNameTopo: \[(.*?)\], .*",
        "a quota above its own ({0}) has too little left",
    ),
    (
        r"Insufficient non-preemptible quotas, quotaName: (\S+), .*exceedDimensions: \[(.*)\]",
        "the min of quota {0}, which holds for pods that can't be preempted, has too little {1}",
    ),
    (
        r"Insufficient non-preemptible quotas, quotaName: (\S+), .*",
        "the min of quota {0}, which holds for pods that can't be preempted, is used up",
    ),
    (
        r"Insufficient (?:non-preemptible )?quotas even without victims",
        "the quota has too little left even if pods of it went",
    ),
    (r"CheckPod failed for hook plugin (.*), err: (.*)", "the quota hook {0} refuses it: {1}"),
    (r"waiting for scheduling gates: (.*)", "scheduling gates are closed: {0}"),
    (
        (
            r"gang (\S+) needs (\S+) members; there were (\S+) when this was written"
            r"(, and \S+ with closed scheduling gates)?"
        ),
        "its gang {0} starts with {1} members, and there are {2}{3}",
    ),
    (r"(gang \S+ needs .*) when this was written", "{0}"),
    (r"gang (\S+) is not known", "the gang {0}, with which its own starts, is not known"),
    (r"gang (\S+) needs members, but .*", "nobody has said how many members its gang {0} needs"),
    (r"PodGroup (\S+) does not exist", "the PodGroup {0} does not exist"),
    (
        r"PodGroup (\S+) of scheduling\.k8s\.io does not exist",
        "the PodGroup {0} of scheduling.k8s.io does not exist",
    ),
    (r"Workload (\S+) does not exist", "the Workload {0} does not exist"),
    (r"Workload (\S+) has no podGroup (\S+)", "the Workload {0} has no group {1} of pods"),
    (r"Gang not found", "its gang is not known"),
    (r"gang group (\S+) is represented in the queue by pod (\S+)", "{1} stands for its gang {0}"),
    (
        r"no candidate topology nodes can accommodate job, .*best was (\S+) with room for (.*)",
        "no part of the network has room for its gang; the best, {0}, for {1}",
    ),
    (
        r"no candidate topology nodes can accommodate job, .*",
        "no part of the network has room for its gang",
    ),
    (r"no cluster network topology.*", "its gang is to be gathered, but no network is described"),
    # resource claims
    (
        r"waiting for the resourceclaim of (.+) to be created",
        "the resource claim for its {0} has not been made from the template yet",
    ),
    (r"resourceclaim\.resource\.k8s\.io \"(\S+)\" not found", "there is no resource claim {0}"),
    (
        r"ResourceClaim (\S+) was not created for pod \S+ \(pod is not owner\)",
        "the resource claim {0} has the name that its own would have, and belongs to another pod",
    ),
    (
        r"[Rr]esource[Cc]laim \"?([^\s\"]+)\"? is being deleted",
        "its resource claim {0} is being deleted",
    ),
    (r"cannot allocate all claims", "its free devices don't meet all claims of the pod together"),
    (r"resourceclaim not available on the node", "its claim got devices that the node can't reach"),
    (
        r"ResourceClaim (\S+) is another one by now",
        "its resource claim {0} was made anew meanwhile",
    ),
    (
        r"cannot schedule extended resource claim",
        "the claim that an earlier attempt made for it has to be deleted first",
    ),
    (r"cannot fit resource", "the node has nothing of an extended resource that it asks for"),
    (
        r"running PreBind plugin \"DynamicResources\": \S+ names for its claim are taken",
        "other resource claims have all the names that its own could have",
    ),
    (
        r"ResourceClaim (\S+) was made for something else",
        "the resource claim {0} has the name that its own would have, and was made for another",
    ),
    (r"ResourceClaim (\S+) has lost its devices", "its resource claim {0} has lost its devices"),
    (r"ResourceClaim (\S+) has got other devices", "its resource claim {0} has got other devices"),
    (r"ResourceClaim (\S+) is in use", "its resource claim {0} is in use"),
    (
        r"add reservation to claim (\S+): .*",
        "its resource claim {0} is used by as many pods as may use one",
    ),
    (r"claim (\S+): device (\S+) reports (.*)", "device {1} of its resource claim {0} reports {2}"),
    (
        r"claim (\S+): devices were not ready in time",
        "the devices of its resource claim {0} were not made ready in time",
    ),
    (r"(.*\b(?:must|is required) .*)", "what is written about it can't be read: {0}"),
)
_PATTERNS: Final = tuple((re.compile(pattern), words) for pattern, words in SENTENCES)
#: Numbers, and ``namespace/name`` or ``layer/domain``; a resource's first part has a dot.
_PARTICULAR: Final = re.compile(
    r"(?<![\w./-])(?:\d+(?:\.\d+)?(?![\w/-])|[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?/[A-Za-z0-9][A-Za-z0-9.-]*)"
)
_SHORT_INSIDE: Final = re.compile(r"(Too many pods|Insufficient (\S+?))(?:, requested: .*)?")


def sentence(reason: str) -> str:
    """Return a reason in plain words; as it is if nobody has any for it."""
    if reason.startswith(PREFIX):
        inside = _SHORT_INSIDE.fullmatch(reason.removeprefix(PREFIX))
        if inside is not None:
            what = f"too little {inside.group(2)} left" if inside.group(2) else "too many pods"
            return f"its reservation has {what}"
    text, by_node = reason.removesuffix(BY_NODE), reason.endswith(BY_NODE)
    for pattern, words in _PATTERNS:
        found = pattern.fullmatch(text)
        if found is not None:
            said = words.format(*(group or "" for group in found.groups()))
            return f"{said} beside reservations" if by_node else said
    return reason


def without_names(said: str) -> str:
    """Return a sentence without the objects and numbers in it: what differs between like cases.

    Names of resources stay, as they say what is lacking.
    """
    return _PARTICULAR.sub("…", said)


def has_sentence(reason: str) -> bool:
    """Return whether there are words for a reason."""
    return sentence(reason) != reason
