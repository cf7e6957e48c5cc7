"""Validation of the pod fields on which scheduling relies.

What the API server fills in is expected to be there: see ``koordinator.api.defaults``.
Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go, ``ValidatePodSpec`` and below.
"""

import ipaddress
from collections.abc import Sequence

from koordinator.api.core import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    ResourceList,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
)
from koordinator.api.pod import Container, ContainerPort, Pod, PodSpec
from koordinator.api.resource_validation import (
    check_container_resources,
    check_overhead,
    check_pod_resources,
)
from koordinator.api.selectors import (
    check_label_selector,
    check_node_selector,
    check_node_selector_term,
)
from koordinator.api.syntax import (
    check_dns_label,
    check_dns_subdomain,
    check_label_key,
    check_label_value,
    check_labels,
    check_one_of,
    invalid_value,
    join_path,
)
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")

_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown", "")
_RESTART_POLICIES = ("Always", "OnFailure", "Never", "")
_PROTOCOLS = ("TCP", "UDP", "SCTP", "")
_OPERATORS = ("Exists", "Equal", "Lt", "Gt", "")
_MAX_PORT = 65_535
_MAX_WEIGHT = 100
_NAME_AND_SOURCE = 2  # fields of a volume


def check_pod(pod: Pod) -> None:
    """Raise InputError for the first rule that the pod breaks."""
    spec = pod.spec
    if not spec.containers:
        raise InputError("must have at least one container", path="spec.containers")
    _check_containers(spec)
    _check_choices(pod)
    if spec.node_selector:
        check_labels(spec.node_selector, "spec.nodeSelector")
    for index, toleration in enumerate(spec.tolerations):
        _check_toleration(toleration, f"spec.tolerations[{index}]")
    if spec.affinity is not None:
        _check_affinity(spec.affinity, "spec.affinity")
    if spec.topology_spread_constraints:
        _check_spread(spec.topology_spread_constraints, "spec.topologySpreadConstraints")
    if spec.volumes:
        _check_volumes(spec)
    _check_gates(spec)
    if spec.overhead:
        check_overhead(spec.overhead, "spec.overhead")
    _check_claims(spec)
    if spec.resources is not None:
        check_pod_resources(spec.resources, "spec.resources")
        _check_against_containers(spec, spec.resources)


def check_phase(pod: Pod) -> None:
    """Raise InputError for a phase that there is not."""
    check_one_of(pod.status.phase, _PHASES, "status.phase")


def _check_choices(pod: Pod) -> None:
    spec = pod.spec
    check_phase(pod)
    check_one_of(spec.restart_policy, _RESTART_POLICIES, "spec.restartPolicy")
    if spec.preemption_policy is not None:
        check_one_of(spec.preemption_policy, PREEMPTION_POLICIES, "spec.preemptionPolicy")
    if spec.node_name:
        check_dns_subdomain(spec.node_name, "spec.nodeName")
    if spec.priority_class_name:
        check_dns_subdomain(spec.priority_class_name, "spec.priorityClassName")
    if spec.runtime_class_name is not None:
        check_dns_subdomain(spec.runtime_class_name, "spec.runtimeClassName")
    if spec.service_account_name:
        check_dns_subdomain(spec.service_account_name, "spec.serviceAccountName")
    seconds = spec.active_deadline_seconds
    if seconds is not None and not 0 < seconds < 1 << 31:
        path = "spec.activeDeadlineSeconds"
        raise InputError(f"must be from 1 to {(1 << 31) - 1}, got {seconds}", path=path)


def _check_containers(spec: PodSpec) -> None:
    names: set[str] = set()
    host_ports: set[tuple[int, str, str]] = set()
    for field, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for index, container in enumerate(containers):
            path = f"spec.{field}[{index}]"
            _check_container(container, spec, path)
            if container.name in names:
                raise invalid_value(f"{path}.name", container.name, "unique among the containers")
            names.add(container.name)
            if container.ports:
                runs_on = field == "containers" or container.restart_policy == "Always"
                taken = host_ports if runs_on else set()
                _check_ports(container.ports, taken, spec.host_network, f"{path}.ports")


def _check_container(container: Container, spec: PodSpec, path: str) -> None:
    check_dns_label(container.name, f"{path}.name")
    if container.restart_policy is not None:
        check_one_of(container.restart_policy, _RESTART_POLICIES, f"{path}.restartPolicy")
    check_container_resources(container.resources, f"{path}.resources")
    for index, claim in enumerate(container.resources.claims):
        names = tuple(known.name for known in spec.resource_claims)
        if claim.name not in names:
            raise invalid_value(
                f"{path}.resources.claims[{index}].name",
                claim.name,
                f"the name of an entry of spec.resourceClaims: {', '.join(names) or 'none'}",
            )


def _check_ports(
    ports: Sequence[ContainerPort],
    taken: set[tuple[int, str, str]],
    host_network: bool,
    path: str,
) -> None:
    for index, port in enumerate(ports):
        field_path = f"{path}[{index}]"
        if not 0 < port.container_port <= _MAX_PORT:
            raise invalid_value(f"{field_path}.containerPort", port.container_port, "1..65535")
        if not 0 <= port.host_port <= _MAX_PORT:
            raise invalid_value(f"{field_path}.hostPort", port.host_port, "1..65535, or 0 for none")
        check_one_of(port.protocol, _PROTOCOLS, f"{field_path}.protocol")
        if port.host_ip and not _is_ip(port.host_ip):
            raise invalid_value(f"{field_path}.hostIP", port.host_ip, "an IP address")
        if host_network and port.host_port not in {0, port.container_port}:
            raise invalid_value(
                f"{field_path}.hostPort",
                port.host_port,
                f"the containerPort ({port.container_port}), as the pod uses the host network",
            )
        if port.host_port:
            use = (port.host_port, port.protocol or "TCP", port.host_ip)
            if use in taken:
                raise invalid_value(
                    f"{field_path}.hostPort",
                    port.host_port,
                    "unique among the containers of the pod",
                )
            taken.add(use)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_toleration(toleration: Toleration, path: str) -> None:
    operator, effect = toleration.operator, toleration.effect
    check_one_of(operator, _OPERATORS, f"{path}.operator")
    if effect:
        check_one_of(effect, TAINT_EFFECTS, f"{path}.effect")
    if toleration.key:
        check_label_key(toleration.key, f"{path}.key")
    elif operator != "Exists":
        raise invalid_value(f"{path}.operator", operator, "Exists when there is no key")
    if operator == "Exists":
        if toleration.value:
            raise invalid_value(f"{path}.value", toleration.value, "empty with operator Exists")
    elif operator in {"Lt", "Gt"}:
        if not toleration.value.removeprefix("-").isdecimal():
            raise invalid_value(
                f"{path}.value", toleration.value, f"an integer with operator {operator}"
            )
    else:
        check_label_value(toleration.value, f"{path}.value")
    if toleration.toleration_seconds is not None and effect != "NoExecute":
        raise invalid_value(f"{path}.effect", effect, "NoExecute with tolerationSeconds")


def _check_affinity(affinity: Affinity, path: str) -> None:
    nodes = affinity.node_affinity
    if nodes is not None:
        required = nodes.required_during_scheduling_ignored_during_execution
        if required is not None:
            field_path = f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            check_node_selector(required, field_path)
        preferred = nodes.preferred_during_scheduling_ignored_during_execution
        for index, term in enumerate(preferred):
            field_path = (
                f"{path}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
            )
            _check_weight(term.weight, field_path)
            check_node_selector_term(term.preference, f"{field_path}.preference")
    if affinity.pod_affinity is not None:
        _check_pod_affinity(affinity.pod_affinity, f"{path}.podAffinity")
    if affinity.pod_anti_affinity is not None:
        _check_pod_affinity(affinity.pod_anti_affinity, f"{path}.podAntiAffinity")


def _check_pod_affinity(affinity: PodAffinity, path: str) -> None:
    for index, term in enumerate(affinity.required_during_scheduling_ignored_during_execution):
        field_path = f"{path}.requiredDuringSchedulingIgnoredDuringExecution[{index}]"
        _check_pod_affinity_term(term, field_path)
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    for index, weighted in enumerate(preferred):
        field_path = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        _check_weight(weighted.weight, field_path)
        _check_pod_affinity_term(weighted.pod_affinity_term, f"{field_path}.podAffinityTerm")


def _check_pod_affinity_term(term: PodAffinityTerm, path: str) -> None:
    check_label_key(term.topology_key, f"{path}.topologyKey")
    check_label_selector(term.label_selector, f"{path}.labelSelector")
    check_label_selector(term.namespace_selector, f"{path}.namespaceSelector")
    for index, namespace in enumerate(term.namespaces):
        check_dns_label(namespace, f"{path}.namespaces[{index}]")
    _check_label_keys(term, term.match_label_keys, f"{path}.matchLabelKeys")
    _check_label_keys(term, term.mismatch_label_keys, f"{path}.mismatchLabelKeys")
    for key in term.match_label_keys:
        if key in term.mismatch_label_keys:
            raise invalid_value(
                f"{path}.matchLabelKeys", key, "a key that mismatchLabelKeys does not have"
            )


def _check_label_keys(
    selecting: PodAffinityTerm | TopologySpreadConstraint, keys: tuple[str, ...], path: str
) -> None:
    if keys and selecting.label_selector is None:
        raise invalid_value(path, list(keys), "empty without a labelSelector")
    for index, key in enumerate(keys):
        check_label_key(key, f"{path}[{index}]")


def _check_weight(weight: int, path: str) -> None:
    if not 0 < weight <= _MAX_WEIGHT:
        raise invalid_value(f"{path}.weight", weight, "1..100")


def _check_spread(constraints: tuple[TopologySpreadConstraint, ...], path: str) -> None:
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        field_path = f"{path}[{index}]"
        _check_spread_constraint(constraint, field_path)
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            raise invalid_value(
                field_path, pair, "a unique pair of topologyKey and whenUnsatisfiable"
            )
        seen.add(pair)


def _check_spread_constraint(constraint: TopologySpreadConstraint, path: str) -> None:
    if constraint.max_skew <= 0:
        raise invalid_value(f"{path}.maxSkew", constraint.max_skew, "at least 1")
    check_label_key(constraint.topology_key, f"{path}.topologyKey")
    when = constraint.when_unsatisfiable
    check_one_of(when, ("DoNotSchedule", "ScheduleAnyway"), f"{path}.whenUnsatisfiable")
    domains = constraint.min_domains
    if domains is not None and (domains <= 0 or when != "DoNotSchedule"):
        accepted = "at least 1, and only with whenUnsatisfiable DoNotSchedule"
        raise invalid_value(f"{path}.minDomains", domains, accepted)
    for policy, field in (
        (constraint.node_affinity_policy, "nodeAffinityPolicy"),
        (constraint.node_taints_policy, "nodeTaintsPolicy"),
    ):
        if policy is not None:
            check_one_of(policy, ("Honor", "Ignore"), f"{path}.{field}")
    check_label_selector(constraint.label_selector, f"{path}.labelSelector")
    _check_label_keys(constraint, constraint.match_label_keys, f"{path}.matchLabelKeys")


def _check_volumes(spec: PodSpec) -> None:
    names: set[str] = set()
    for index, volume in enumerate(spec.volumes):
        path = f"spec.volumes[{index}]"
        check_dns_label(volume.name, f"{path}.name")
        if volume.name in names:
            raise invalid_value(f"{path}.name", volume.name, "unique among the volumes")
        names.add(volume.name)
        sources = [name for name in volume.__struct_fields__ if getattr(volume, name) is not None]
        if len(sources) > _NAME_AND_SOURCE:
            raise InputError("must have one source, got several", path=path)
        claim = volume.persistent_volume_claim
        if claim is not None:
            check_dns_subdomain(claim.claim_name, f"{path}.persistentVolumeClaim.claimName")


def _check_claims(spec: PodSpec) -> None:
    names: set[str] = set()
    for index, claim in enumerate(spec.resource_claims):
        path = f"spec.resourceClaims[{index}]"
        check_dns_label(claim.name, f"{path}.name")
        if claim.name in names:
            raise invalid_value(f"{path}.name", claim.name, "unique among the claims")
        names.add(claim.name)
        given = [
            (field, name)
            for field, name in (
                ("resourceClaimName", claim.resource_claim_name),
                ("resourceClaimTemplateName", claim.resource_claim_template_name),
            )
            if name is not None
        ]
        if len(given) != 1:
            raise InputError(
                "must have either resourceClaimName or resourceClaimTemplateName", path=path
            )
        check_dns_subdomain(given[0][1], f"{path}.{given[0][0]}")


def _check_against_containers(spec: PodSpec, whole: ResourceRequirements) -> None:
    """Check that requests and limits of a pod are no less than the sums of its containers."""
    for field, all_amounts in (("requests", whole.requests), ("limits", whole.limits)):
        for resource, amount in all_amounts.items():
            if field == "limits" and not resource.startswith("hugepages-"):
                continue
            together = _together(spec, resource, field)
            if together > amount.nanos:
                raise InputError(
                    f"must be at least {Quantity(together)}, as much as its containers together, "
                    f"got {amount}",
                    path=join_path(f"spec.resources.{field}", resource),
                )
    for index, container in enumerate(spec.containers):
        for resource, limit in container.resources.limits.items():
            most = whole.limits.get(resource)
            if most is not None and limit.nanos > most.nanos:
                path = join_path(f"spec.containers[{index}].resources.limits", resource)
                raise InputError(f"must be at most the pod's limit {most}, got {limit}", path=path)


def _together(spec: PodSpec, resource: str, field: str) -> int:
    """Return the nanos that the containers of a pod take at most at once."""

    def amount(container: Container) -> int:
        amounts: ResourceList = getattr(container.resources, field)
        quantity = amounts.get(resource)
        return 0 if quantity is None else quantity.nanos

    sidecars = most = 0
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            sidecars += amount(container)
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + amount(container))
    return max(most, sidecars + sum(map(amount, spec.containers)))


def _check_gates(spec: PodSpec) -> None:
    names: set[str] = set()
    for index, gate in enumerate(spec.scheduling_gates):
        path = f"spec.schedulingGates[{index}].name"
        check_label_key(gate.name, path)
        if gate.name in names:
            raise invalid_value(path, gate.name, "unique among the gates")
        names.add(gate.name)
    if spec.scheduling_gates and spec.node_name:
        raise invalid_value(
            "spec.nodeName", spec.node_name, "empty while there are schedulingGates"
        )
