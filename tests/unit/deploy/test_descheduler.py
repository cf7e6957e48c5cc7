"""The descheduler as it is installed: rights, command line, configuration."""

import json
from typing import Any

import yaml
from tests.unit.deploy.installed import CHART, NAMESPACE, OBJECTS, VALUES
from tests.unit.deploy.test_chart import FIXED, MEANINGLESS, json_names
from tests.unit.deploy.test_flags import parsed
from tests.unit.deploy.test_rbac import READ, Rights, resource_of, rights_of

from koordinator.api.control_plane import SubjectAccessReview, TokenReview
from koordinator.api.core import Namespace
from koordinator.api.event import CoreEvent, Event
from koordinator.api.kubescheduler import decode_configuration
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.reservation import Reservation
from koordinator.descheduler.configuration import (
    DeschedulerConfiguration,
    decode_descheduler_configuration,
)
from koordinator.descheduler.profile import DESCHEDULER_PLUGINS, choose_profiles
from koordinator.scheduler.fork import FOLLOWED

NAME = "koord-descheduler"
ADDRESSES = {"healthzBindAddress", "metricsBindAddress"}  # the chart's own


def container() -> Any:
    """Return the only container of the descheduler's pods."""
    (only,) = OBJECTS["Deployment", NAME]["spec"]["template"]["spec"]["containers"]
    return only


def installed_configuration() -> DeschedulerConfiguration:
    """Return the parsed file of the ConfigMap."""
    data = OBJECTS["ConfigMap", f"{NAME}-config"]["data"][f"{NAME}-config"]
    return decode_descheduler_configuration(yaml.load(data, yaml.CSafeLoader), "chart")


def needed() -> Rights:
    """Return what the code of the descheduler does with the API of the whole cluster."""
    watched = {kind for spec in DESCHEDULER_PLUGINS for kind in spec.watches}
    read: tuple[type[KubeObject], ...] = (Namespace, Node, Pod, *watched, *FOLLOWED)
    rights: Rights = {resource_of(kind): set(READ) for kind in read}
    writes: tuple[tuple[type[KubeObject], tuple[str, ...]], ...] = (
        (PodMigrationJob, ("create", "delete", "patch")),
        (Reservation, ("create", "delete", "patch")),
        (Pod, ("delete", "patch")),
        (Node, ("patch",)),
        (Event, ("create",)),
        (CoreEvent, ("patch",)),
        (TokenReview, ("create",)),
        (SubjectAccessReview, ("create",)),
    )
    for kind, verbs in writes:
        rights.setdefault(resource_of(kind), set()).update(verbs)
    rights["", f"{Pod.PLURAL}/eviction"] = {"create"}
    group, jobs = resource_of(PodMigrationJob)
    rights[group, f"{jobs}/status"] = {"patch"}
    return rights


def test_the_cluster_role_allows_what_the_descheduler_does_and_nothing_else() -> None:
    """A plugin that watches one more kind fails here until the role has it."""
    assert rights_of(OBJECTS["ClusterRole", NAME]["rules"]) == needed()


def test_one_lease_can_be_changed() -> None:
    """Role and configuration name the same one."""
    election = installed_configuration().leader_election
    named, unnamed = OBJECTS["Role", NAME]["rules"]
    assert OBJECTS["Role", NAME]["metadata"]["namespace"] == NAMESPACE
    assert election.resource_namespace == NAMESPACE
    assert named["resourceNames"] == [election.resource_name]
    assert unnamed["verbs"] == ["create"]


def test_every_argument_is_a_flag_of_the_command() -> None:
    """With the value that the chart means by it."""
    parameters, defaults = parsed(container()["args"]), parsed(["descheduler"])
    changed = {name: value for name, value in parameters.items() if value != defaults[name]}
    assert set(changed) == {"config", "scheduler_config", "verbosity"}
    assert changed["verbosity"] == VALUES["descheduler"]["log"]["level"]
    ports = [port["containerPort"] for port in container()["ports"]]
    assert ports == [parameters["secure_port"]]


def test_moves_are_proven_by_the_installed_scheduler_configuration() -> None:
    """The file is in the scheduler's ConfigMap; a change of it replaces the pods."""
    parameters = parsed(container()["args"])
    mounted = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}
    template = OBJECTS["Deployment", NAME]["spec"]["template"]
    volumes = {each["name"]: each for each in template["spec"]["volumes"]}
    source = volumes["scheduler-config"]["configMap"]
    ((item),) = source["items"]
    assert parameters["scheduler_config"] == f"{mounted['scheduler-config']}/{item['path']}"
    text = OBJECTS["ConfigMap", source["name"]]["data"][item["key"]]
    decode_configuration(yaml.load(text, yaml.CSafeLoader), "chart")
    assert "checksum/scheduler-config" in template["metadata"]["annotations"]


def test_the_configuration_is_accepted_and_moves_no_pod_by_itself() -> None:
    """Every plugin's arguments are valid; who enables LowNodeLoad has its thresholds already."""
    configuration = installed_configuration()
    (profile,) = choose_profiles(configuration, source="chart")
    assert profile.names_at["balance"] == profile.names_at["deschedule"] == ()
    assert profile.names_at["evict"] == ("MigrationController",)
    assert {config.name for config in configuration.profiles[0].plugin_config} == {
        "MigrationController",
        "LowNodeLoad",
    }


def test_the_schema_knows_every_value() -> None:
    """A misspelt value, or field of the configuration, is refused by Helm."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    accepted = schema["properties"]["descheduler"]["properties"]
    fields = accepted["config"]["properties"]
    configuration = DeschedulerConfiguration()
    election = json_names(type(configuration.leader_election))
    connection = json_names(type(configuration.client_connection))
    assert set(VALUES["descheduler"]) == set(accepted) - {"image", "port"}  # of the original
    assert set(fields) == json_names(DeschedulerConfiguration) - FIXED - ADDRESSES
    assert set(fields["leaderElection"]["properties"]) == election - FIXED
    assert set(fields["clientConnection"]["properties"]) == connection - MEANINGLESS
