"""The chart's dashboard: off by default, reads what the scheduler reads, and writes nothing."""

import re
from pathlib import Path

import yaml
from tests.unit.deploy.installed import CHART, OBJECTS, VALUES
from tests.unit.deploy.test_rbac import READ, Rights, resource_of, rights_of

from koordinator.api.control_plane import (
    Lease,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from koordinator.api.core import Namespace
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cli.commands import COMMANDS
from koordinator.dashboard.whatif import UNFOLLOWED
from koordinator.domain.component_health import LEASES
from koordinator.scheduler.profile import WATCHED

TEMPLATE: Path = CHART / "templates/koord-dashboard/dashboard.yaml"


def test_it_is_off_by_default() -> None:
    """A default installation has neither the page nor its service account."""
    assert VALUES["dashboard"]["enabled"] is False
    assert not [name for _, name in OBJECTS if "dashboard" in name]


def test_the_cluster_role_reads_what_the_dashboard_follows_and_writes_nothing() -> None:
    """Creating a review is asking a question; nothing else is created."""
    (rules,) = re.findall(r"^rules:\n(.*?)^---", TEMPLATE.read_text(), re.DOTALL | re.MULTILINE)
    read: tuple[type[KubeObject], ...] = (Namespace, Node, Pod, *WATCHED)
    needed: Rights = {resource_of(kind): set(READ) for kind in read}
    for kind in UNFOLLOWED:  # for plans of moves
        needed[resource_of(kind)] = {"list"}
    for kind in (Lease, MutatingWebhookConfiguration, ValidatingWebhookConfiguration):
        needed[resource_of(kind)] = {"get"}  # named objects of the chart
    needed["authentication.k8s.io", "tokenreviews"] = {"create"}
    needed["authorization.k8s.io", "subjectaccessreviews"] = {"create"}

    assert rights_of(yaml.load(rules, yaml.CSafeLoader)) == needed


def test_it_may_read_the_lease_of_each_component() -> None:
    """A name that is missing here would hide all findings: the API server forbids the request."""
    (names,) = re.findall(r"leases\]\n +resourceNames: \[(.*)\]", TEMPLATE.read_text())

    assert set(names.split(", ")) == set(LEASES)


def test_every_argument_is_a_flag_of_the_command() -> None:
    """The pod of the chart would not start otherwise."""
    (listed,) = re.findall(r"args:\n(.*?) +ports:", TEMPLATE.read_text(), re.DOTALL)
    command, *given = re.findall(r"^ +- ([\w-]+)", listed, re.MULTILINE)
    flags = {flag for param in COMMANDS[command].load().params for flag in param.opts}

    assert {"--config", "--feature-gates"} <= set(given) <= flags
