"""Plain sentences for the reasons of the built-in plugins.

Messages of the scheduler equal the messages of Kubernetes and the original byte by byte, because
programs parse them.  Users get a sentence about the node ("the node is cordoned") or the pod ("its
quota …").  The plugin's ``detail`` gives the amounts per node.
"""

import re
from functools import cache
from typing import Final

from koordinator.scheduler.rules.reservations.match import BY_NODE, PREFIX

#: Pattern of the whole reason -> sentence with the pattern's groups.  The first match counts.  "It"
#: is the pod.
SENTENCES: Final[tuple[tuple[str, str], ...]] = (
    # amounts
    (r"Too many pods", "the node runs as many pods as it may"),
    (r"Insufficient amplified cpu", "too little CPU is free, counted before it is amplified"),
    (r"Insufficient NUMA (\S+)", r"too little {0} is free on the suitable NUMA nodes"),
    (r"Insufficient (\S+) VirtualFunctions", "too few virtual functions of {0} devices are free"),
    (r"Insufficient (gpu|rdma|fpga) devices", "too few {0} devices have enough left"),
    (r"Insufficient Partitioned GPU Devices", "no GPU partition of that size is free"),
    (r"Insufficient Topology Scoped GPU Devices", "too few GPUs are free in one topology scope"),
    (r"Insufficient GPU Devices", "too few GPUs are free that can be used together"),
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
        "the node's labels do not match the pod's node affinity or selector",
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
        "the node lacks the label of a topology spread constraint",
    ),
    (
        r"node\(s\) didn't match pod topology spread constraints",
        "the pod would exceed maxSkew of a topology spread constraint there",
    ),
    (r"node\(s\) didn't match pod affinity rules", "no pod that its podAffinity requires is there"),
    (
        r"node\(s\) didn't match pod anti-affinity rules",
        "pods that its podAntiAffinity excludes are there",
    ),
    (
        r"node\(s\) didn't satisfy existing pods anti-affinity rules",
        "pods whose podAntiAffinity excludes it are there",
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
        "the NUMA topology policy cannot be satisfied for the pod's requests",
    ),
    (r"Unsatisfied NUMA (\S+)", "the node's NUMA nodes have too little {0}"),
    (
        r"node\(s\) missing NUMA resources",
        "the node has not reported the amounts of its NUMA nodes",
    ),
    (
        r"node\(s\) NUMA Topology policy not match",
        "the node's NUMA topology policy differs from the pod's",
    ),
    (r"node\(s\) invalid CPU Topology", "the node has not reported its CPUs"),
    (
        r"node\(s\) invalid CPU amplification ratio",
        "the node's CPU amplification ratio is invalid",
    ),
    (r"not enough cpus available to satisfy request", "too few CPUs are free to be bound"),
    (r"insufficient resources on NUMA Node", "the node reports no amounts by NUMA node"),
    (
        r"insufficient CPUs to satisfy required cpu bind policy (\S+)",
        "the free CPUs cannot be bound by the policy {0}",
    ),
    (
        r"node\(s\) cpu bind policy conflicts with pod's required cpu bind policy",
        "the node binds CPUs by another policy than the pod requires",
    ),
    (
        r"node\(s\) requested cpus not multiple cpus per core",
        "the node allocates whole cores, and the pod requests a part of one",
    ),
    (
        r"the requested CPUs must be integer",
        "the pod binds CPUs and must therefore request whole ones",
    ),
    # devices
    (r"node\(s\) missing GPU Partition Table", "the node has not reported its GPU partitions"),
    (r"node\(s\) Unsupported number of GPU requests", "the node has no GPU partition of that size"),
    (
        r"node\(s\) missing GPU Device Topology Tree",
        "the node has not reported how its GPUs are wired",
    ),
    (
        r"node\(s\) Unsupported Multi-Shared GPU",
        "parts of several GPUs cannot be allocated together",
    ),
    (
        r"node\(s\) Device Joint-Allocate rules violation",
        "too few devices for joint allocation are free on one PCIe root",
    ),
    (r"no matched GPU shared resource template", "no template for shared GPUs is of that size"),
    (
        r"GPUIsolationProviderHAMICore not found on the node",
        "the node's GPUs are not shared by the isolation provider that the pod names",
    ),
    (
        r'model "(.*)" of vendor "(.*)" does not support GPU Share',
        "the node's GPUs ({1} {0}) cannot be shared",
    ),
    (r"invalid resource device requests: (.*)", "these device requests cannot be combined: {0}"),
    (r"invalid resource unit (.*)", "the amount of a device request is invalid: {0}"),
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
        "a claim {0} exists that does not belong to the ephemeral volume of the pod",
    ),
    (
        r'persistentvolumeclaim "(.*)" bound to non-existent persistentvolume "(.*)"',
        "its PersistentVolumeClaim {0} is bound to the volume {1}, which does not exist",
    ),
    (
        r'persistentvolumeclaim "(.*)" is being deleted',
        "its PersistentVolumeClaim {0} is being deleted",
    ),
    (r'persistentvolume "(.*)" not found', "the PersistentVolume {0} of its claim does not exist"),
    (r'storageclass\.storage\.k8s\.io "(.*)" not found', "the StorageClass {0} does not exist"),
    (
        r"pod has unbound immediate PersistentVolumeClaims",
        "one of its claims is not bound to a volume yet",
    ),
    (r"PersistentVolumeClaim had no pv name and storageClass name", "its claim has no volume"),
    (r"PersistentVolume had no name", "its claim has no volume"),
    (
        r"node\(s\) unavailable due to one or more pvc\(s\) bound to non-existent pv\(s\)",
        "the PersistentVolume of a claim does not exist",
    ),
    (r"node\(s\) didn't match PersistentVolume's node affinity", "a volume cannot be used there"),
    (
        r"node\(s\) didn't find available persistent volumes to bind",
        "no volume for a claim is available there, and none can be provisioned",
    ),
    (r"node\(s\) did not have enough free storage", "no storage for a new volume is left there"),
    (r"node\(s\) had no available volume zone", "a volume of the pod is in another zone"),
    (r'provisioning failed for PVC "(.*)"', "provisioning a volume for its claim {0} failed"),
    (r"node\(s\) exceed max volume count", "the node cannot attach more volumes"),
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
        "it requires a reservation, and none that it may use is there",
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
        "this reservation cannot take over running pods",
    ),
    (
        r"node\(s\) no pod match reservation with pre allocation required",
        "no running pod is there that the reservation could take over",
    ),
    (
        r"node\(s\) no pod\(s\) to meet the pre-allocation requirements",
        "the pods that the reservation could take over do not hold enough",
    ),
    (
        r"reservation requires cluster mode pre-allocation which is disabled",
        "the scheduler's configuration disables pre-allocation of pods of others (cluster mode)",
    ),
    (
        r"pod resize fits, waiting for Kubelet actuation",
        "its resize fits; the kubelet has not granted it yet",
    ),
    (
        r"node had resize preemption disabled",
        "the node forbids preemption for resizes (spec.podPreemptionPolicy)",
    ),
    # quotas, gates, gangs
    (r"waits for its turn in (the queue of quota \S+)", "it is not its turn in {0}"),
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
        "the min of quota {0}, the limit for non-preemptible pods, has too little {1}",
    ),
    (
        r"Insufficient non-preemptible quotas, quotaName: (\S+), .*",
        "the min of quota {0}, the limit for non-preemptible pods, is used up",
    ),
    (
        r"Insufficient (?:non-preemptible )?quotas even without victims",
        "the quota has too little left even without its preemptible pods",
    ),
    (r"CheckPod failed for hook plugin (.*), err: (.*)", "the quota hook {0} refuses it: {1}"),
    (r"waiting for scheduling gates: (.*)", "it has scheduling gates: {0}"),
    (
        (
            r"gang (\S+) needs (\S+) members; there were (\S+) when this was written"
            r"(, and \S+ with closed scheduling gates)?"
        ),
        "gang {0} starts with {1} members, and there are {2}{3}",
    ),
    (r"(gang \S+ needs .*) when this was written", "{0}"),
    (r"gang (\S+) is not known", "the gang {0}, which must start with its own, is unknown"),
    (
        r"gang (\S+) needs members, but .*",
        "the number of members that its gang {0} needs is unknown",
    ),
    (r"PodGroup (\S+) does not exist", "the PodGroup {0} does not exist"),
    (
        r"PodGroup (\S+) of scheduling\.k8s\.io does not exist",
        "the PodGroup {0} of scheduling.k8s.io does not exist",
    ),
    (r"Workload (\S+) does not exist", "the Workload {0} does not exist"),
    (r"Workload (\S+) has no podGroup (\S+)", "the Workload {0} has no group {1} of pods"),
    (r"Gang not found", "its gang is unknown"),
    (
        r"gang group (\S+) is represented in the queue by pod (\S+)",
        "pod {1} represents its gang {0} in the queue",
    ),
    (
        r"no candidate topology nodes can accommodate job, .*best was (\S+) with room for (.*)",
        "no network domain has room for its gang; the best, {0}, has room for {1}",
    ),
    (
        r"no candidate topology nodes can accommodate job, .*",
        "no network domain has room for its gang",
    ),
    (
        r"no cluster network topology.*",
        "its gang requires network proximity, but no network topology is defined",
    ),
    (
        r"no node has the label (\S+) that nodes of PodGroup (\S+) must share",
        "no node has the label {0} that the nodes of PodGroup {1} must share",
    ),
    (
        r"members of PodGroup (\S+) are on nodes with (\S+), which have room for (.*)",
        "the nodes with {1}, where members of PodGroup {0} are, have room for {2} more",
    ),
    (
        (
            r"no value of the label (\S+) has enough nodes for PodGroup (\S+); best was (\S+) with"
            r" room for (.*)"
        ),
        "no nodes that share a value of {0} have room for PodGroup {1}; the best, {2}, for {3}",
    ),
    (
        r"CompositePodGroup (\S+): 0/\d+ placements are available, first placement status: (.*)",
        "no placements have room for enough groups of CompositePodGroup {0}: {1}",
    ),
    # resource claims
    (
        r"waiting for the resourceclaim of (.+) to be created",
        "the resource claim for its {0} has not been created from its template yet",
    ),
    (r"resourceclaim\.resource\.k8s\.io \"(\S+)\" not found", "there is no resource claim {0}"),
    (
        r"ResourceClaim (\S+) was not created for pod \S+ \(pod is not owner\)",
        "the resource claim {0} has the name of its own claim, and belongs to another pod",
    ),
    (
        r"ResourceClaim (\S+) was not created for pod \S+ \(neither pod nor PodGroup (\S+) is .*",
        "the resource claim {0} belongs neither to the pod nor to its PodGroup {1}",
    ),
    (
        r"[Rr]esource[Cc]laim \"?([^\s\"]+)\"? is being deleted",
        "its resource claim {0} is being deleted",
    ),
    (
        r"cannot allocate all claims",
        "its free devices do not satisfy all claims of the pod together",
    ),
    (
        r"resourceclaim not available on the node",
        "its claim has devices that are out of reach of the node",
    ),
    (
        r"node allocatable resource claim (\S+) has a mapped device and cannot be .*",
        "its claim {0} has a device that takes resources of the node, and another pod uses it",
    ),
    (
        r"devices for extended resources take resources of the node, which needs a .*",
        "only a claim that the pod references may have devices that take resources of the node",
    ),
    (
        r"claim (\S+), device (\S+), driver (\S+): device \S+ not found in pool (\S+) .*",
        "its claim {0} has device {1} of driver {2}, which pool {3} offers no longer",
    ),
    (
        r"ResourceClaim (\S+) was replaced by another of that name",
        "its resource claim {0} was recreated in the meantime",
    ),
    (
        r"cannot schedule extended resource claim",
        "the claim that an earlier attempt created for it must be deleted first",
    ),
    (r"cannot fit resource", "the node lacks an extended resource that it requests"),
    (
        r"running PreBind plugin \"DynamicResources\": \S+ names for its claim are taken",
        "other resource claims use all the names available for its own",
    ),
    (
        r"ResourceClaim (\S+) was created for other requests",
        "the resource claim {0} has the name of its own claim, and was created for other requests",
    ),
    (
        r"ResourceClaim (\S+) is no longer allocated",
        "its resource claim {0} is no longer allocated",
    ),
    (
        r"ResourceClaim (\S+) has other devices allocated",
        "its resource claim {0} has other devices",
    ),
    (r"ResourceClaim (\S+) is in use", "its resource claim {0} is in use"),
    (
        r"add reservation to claim (\S+): .*",
        "its resource claim {0} is used by the maximum number of pods",
    ),
    (r"claim (\S+): device (\S+) reports (.*)", "device {1} of its resource claim {0} reports {2}"),
    (
        r"claim (\S+): devices were not ready in time",
        "the devices of its resource claim {0} were not ready in time",
    ),
    (r"(.*\b(?:must|is required) .*)", "one of its settings is invalid: {0}"),
)

#: Reasons of nodes about which koordlet has not reported enough, with the kind of the report.
_REPORTS: Final = (
    (r"node\(s\) (?:missing NUMA resources|invalid CPU Topology)", "NodeResourceTopology"),
    (r"insufficient resources on NUMA Node", "NodeResourceTopology"),
    (r"node\(s\) missing GPU (?:Partition Table|Device Topology Tree)", "Device"),
)

#: Numbers, and ``namespace/name`` or ``layer/domain``; a resource's first part has a dot.
_PARTICULAR: Final = re.compile(
    r"(?<![\w./-])(?:\d+(?:\.\d+)?(?![\w/-])|[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?/[A-Za-z0-9][A-Za-z0-9.-]*)"
)
_SHORT_INSIDE: Final = re.compile(r"(Too many pods|Insufficient (\S+?))(?:, requested: .*)?")


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), words) for pattern, words in SENTENCES)


def sentence(reason: str) -> str:
    """Return the plain sentence of a reason, or the reason itself without one."""
    if reason.startswith(PREFIX):
        inside = _SHORT_INSIDE.fullmatch(reason.removeprefix(PREFIX))
        if inside is not None:
            shortage = f"too little {inside.group(2)} left" if inside.group(2) else "too many pods"
            return f"its reservation has {shortage}"
    text, by_node = reason.removesuffix(BY_NODE), reason.endswith(BY_NODE)
    for pattern, words in _patterns():
        match = pattern.fullmatch(text)
        if match is not None:
            text = words.format(*(group or "" for group in match.groups()))
            return f"{text} beside reservations" if by_node else text
    return reason


def reported_in(reason: str) -> str:
    """Return the kind in which koordlet reports what such a node lacks; empty for other reasons."""
    return next((kind for pattern, kind in _REPORTS if re.fullmatch(pattern, reason)), "")


def without_names(text: str) -> str:
    """Return a sentence without names of objects and numbers, to group similar cases.

    Names of resources are kept.
    """
    return _PARTICULAR.sub("…", text)


def has_sentence(reason: str) -> bool:
    """Return whether a reason has a plain sentence."""
    return sentence(reason) != reason
