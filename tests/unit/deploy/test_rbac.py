"""Rights of the scheduler: those that it needs, and no others."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from tests.unit.deploy.installed import NAMESPACE, OBJECTS, scheduler_configuration, scheduler_pod

from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.api.core import Namespace
from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.event import CoreEvent, Event
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup
from koordinator.api.reservation import Reservation
from koordinator.api.schedule_explanation import ScheduleExplanation
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim
from koordinator.scheduler.profile import WATCHED

Rights = dict[tuple[str, str], set[str]]  # (API group, resource) -> verbs

READ = {"get", "list", "watch"}

WRITES: Rights = {
    ("", "pods/binding"): {"create"},
    ("", "pods/status"): {"patch"},
    ("", "pods"): {"delete", "patch"},
    ("", "pods/eviction"): {"create"},
    ("scheduling.sigs.k8s.io", ElasticQuota.PLURAL): {"create", "patch"},
    ("", Node.PLURAL): {"patch"},
    ("", PersistentVolume.PLURAL): {"patch"},
    ("", PersistentVolumeClaim.PLURAL): {"patch"},
    ("resource.k8s.io", ResourceClaim.PLURAL): {"create", "delete", "patch", "update"},
    # API servers from 1.36 on require it to change allocation or reservedFor of a status.
    ("resource.k8s.io", f"{ResourceClaim.PLURAL}/binding"): {"patch", "update"},
    ("resource.k8s.io", f"{ResourceClaim.PLURAL}/status"): {"patch", "update"},
    ("scheduling.koordinator.sh", Reservation.PLURAL): {"delete", "patch"},
    ("scheduling.koordinator.sh", f"{Reservation.PLURAL}/status"): {"patch"},
    ("scheduling.sigs.k8s.io", PodGroup.PLURAL): {"patch"},
    ("scheduling.k8s.io", "podgroups/status"): {"patch"},
    ("scheduling.koordinator.sh", "scheduleexplanations/status"): {"patch"},
    ("scheduling.koordinator.sh", ScheduleExplanation.PLURAL): {"delete"},
    ("scheduling.koordinator.sh", f"{ClusterNetworkTopology.PLURAL}/status"): {"patch"},
    ("events.k8s.io", Event.PLURAL): {"create"},
    ("", CoreEvent.PLURAL): {"patch"},
    ("authentication.k8s.io", "tokenreviews"): {"create"},
    ("authorization.k8s.io", "subjectaccessreviews"): {"create"},
}


def resource_of(kind: type[KubeObject]) -> tuple[str, str]:
    """Return API group and plural, as RBAC names a kind."""
    group, _, _version = kind.API_VERSION.rpartition("/")
    return group, kind.PLURAL


def rights_of(rules: Iterable[Mapping[str, Any]]) -> Rights:
    """Return what the rules of a role come to."""
    rights: Rights = {}
    for rule in rules:
        for url in rule.get("nonResourceURLs", ()):
            rights.setdefault(("nonResourceURLs", url), set()).update(rule["verbs"])
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                rights.setdefault((group, resource), set()).update(rule["verbs"])
    return rights


def needed() -> Rights:
    """Return what the code of the scheduler does with the API of the whole cluster."""
    read: tuple[type[KubeObject], ...] = (Namespace, Node, Pod, *WATCHED)
    rights: Rights = {resource_of(kind): set(READ) for kind in read}
    for resource, verbs in WRITES.items():
        rights.setdefault(resource, set()).update(verbs)
    return rights


def test_the_cluster_role_allows_what_the_scheduler_does_and_nothing_else() -> None:
    """A plugin that watches one more kind fails here until the role has it."""
    assert rights_of(OBJECTS["ClusterRole", "koord-scheduler"]["rules"]) == needed()


def test_the_lease_of_the_election_is_the_only_one_that_can_be_changed() -> None:
    """Role and configuration name the same lease, in the namespace of the installation."""
    role = OBJECTS["Role", "koord-scheduler"]
    election = scheduler_configuration()["leaderElection"]
    named, unnamed = role["rules"]

    assert role["metadata"]["namespace"] == election["resourceNamespace"] == NAMESPACE
    assert named["resourceNames"] == [election["resourceName"]]
    assert set(named["verbs"]) == {"get", "patch", "update", "watch"}
    assert unnamed["verbs"] == ["create"]
    assert set(rights_of(role["rules"])) == {("coordination.k8s.io", "leases")}


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_no_role_has_wildcards_or_secrets(kind: str) -> None:
    """An attacker in a component gets neither all rights nor any password.

    A Secret of the component itself, by name or to be created, is allowed.
    """
    for (object_kind, name), role in OBJECTS.items():
        if object_kind == kind:
            for (group, resource), verbs in rights_of(role["rules"]).items():
                assert "*" not in {group, resource, *verbs}, name
            anybodys = [rule for rule in role["rules"] if "resourceNames" not in rule]
            assert rights_of(anybodys).get(("", "secrets"), {"create"}) == {"create"}, name


@pytest.mark.parametrize("kind", ["ClusterRoleBinding", "RoleBinding"])
def test_roles_are_bound_to_the_account_of_the_pods(kind: str) -> None:
    """The token of its ServiceAccount is all that a component needs; it has the role's name."""
    assert scheduler_pod()["serviceAccountName"] == "koord-scheduler"
    bindings = [manifest for (name, _), manifest in OBJECTS.items() if name == kind]

    assert bindings
    for binding in bindings:
        account = binding["roleRef"]["name"]
        assert (binding["roleRef"]["kind"], account) in OBJECTS
        assert ("ServiceAccount", account) in OBJECTS
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
        ]
