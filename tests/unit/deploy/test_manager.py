"""The manager as it is installed: rights, command line, hooks, configuration."""

import json
import re
from typing import Any

import pytest
from tests.unit.deploy.installed import CHART, NAMESPACE, OBJECTS, VALUES
from tests.unit.deploy.test_flags import parsed
from tests.unit.deploy.test_rbac import READ, Rights, resource_of, rights_of

from koordinator.api.annotations.quota import REPORTED
from koordinator.api.control_plane import (
    MANAGER_LEASE,
    MutatingWebhookConfiguration,
    SubjectAccessReview,
    TokenReview,
    ValidatingWebhookConfiguration,
)
from koordinator.api.core import ConfigMap, Secret
from koordinator.api.event import CoreEvent, Event
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.slo_config import CONFIG_NAME
from koordinator.cli.manager.process import SECRET, SERVICE
from koordinator.manager.admission.gates import DEFAULT_GATES, ManagerFeature
from koordinator.manager.admission.hooks import (
    MUTATING_NAME,
    VALIDATING_NAME,
    HookOptions,
    all_hooks,
)
from koordinator.manager.app import WATCHED, WRITTEN
from koordinator.manager.configuration.checks import check_config
from koordinator.manager.configuration.reader import read_config
from koordinator.manager.configuration.strategies import colocation_strategy
from koordinator.manager.lookups import FOLLOWED
from koordinator.manager.quota_view import NAME as QUOTA_RECORD
from koordinator.process.logs import LogFormat

NAME = "koord-manager"
#: Hooks that record the objects that they admit.
CHARGING = ("velasticquota.koordinator.sh", "vpod.koordinator.sh")

pytestmark = pytest.mark.skipif(
    ("Deployment", NAME) not in OBJECTS,
    reason="deploy/koordinator.yaml was rendered before the chart had a manager",
)


def pod() -> Any:
    """Return the spec of the manager's pods."""
    return OBJECTS["Deployment", NAME]["spec"]["template"]["spec"]


def container() -> Any:
    """Return the only container of these pods."""
    (only,) = pod()["containers"]
    return only


def needed() -> Rights:
    """Return what the code of the manager does with the API of the whole cluster."""
    rights: Rights = {resource_of(kind): set(READ) for kind in (*WATCHED, *FOLLOWED)}
    for kind, verbs in WRITTEN.items():
        rights.setdefault(resource_of(kind), set()).update(verbs)
    rights["", f"{Node.PLURAL}/status"] = {"patch"}
    rights[resource_of(Event)] = {"create"}
    rights[resource_of(CoreEvent)] = {"patch"}
    for review in (TokenReview, SubjectAccessReview):
        rights[resource_of(review)] = {"create"}
    for configuration in (MutatingWebhookConfiguration, ValidatingWebhookConfiguration):
        rights[resource_of(configuration)] = {"get", "patch"}
    return rights


def test_the_cluster_role_allows_what_the_manager_does_and_nothing_else() -> None:
    """A controller that reads or writes one more kind fails here until the role has it."""
    rules = OBJECTS["ClusterRole", NAME]["rules"]
    named = {
        resource_of(kind): set(names)
        for kind, names in (
            (ConfigMap, (CONFIG_NAME, "pod-enhanced-validator-config")),
            (MutatingWebhookConfiguration, (MUTATING_NAME,)),
            (ValidatingWebhookConfiguration, (VALIDATING_NAME,)),
        )
    }

    assert rights_of(rules) == needed()
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                names = set(rule.get("resourceNames", ()))
                assert names == named.get((group, resource), set())


def test_one_lease_one_secret_and_one_config_map_can_be_changed() -> None:
    """The role grants no other object of the namespace."""
    role = OBJECTS["Role", NAME]
    named = [rule for rule in role["rules"] if "resourceNames" in rule]

    assert role["metadata"]["namespace"] == NAMESPACE
    assert rights_of(named) == {
        ("coordination.k8s.io", "leases"): {"get", "patch", "update", "watch"},
        ("", Secret.PLURAL): {"get", "update"},
        ("", ConfigMap.PLURAL): {"get", "patch"},
    }
    assert [rule["resourceNames"] for rule in named] == [[MANAGER_LEASE], [SECRET], [QUOTA_RECORD]]
    unnamed = [rule for rule in role["rules"] if "resourceNames" not in rule]
    assert all(rule["verbs"] == ["create"] for rule in unnamed)


def test_every_argument_is_a_flag_of_the_command() -> None:
    """With the value that the chart means by it."""
    parameters, defaults = parsed(container()["args"]), parsed(["manager"])
    values = VALUES["manager"]

    assert {name: value for name, value in parameters.items() if value != defaults[name]} == {
        "verbosity": values["log"]["level"],
        "metrics_addr": "0",
        "secure_port": values["metrics"]["port"],
        "shutdown_delay_duration": "5s",
    }
    assert parameters["leader_election_namespace"] == NAMESPACE
    assert parameters["config_namespace"] == NAMESPACE
    assert parameters["logging_format"] is LogFormat(values["log"]["format"])
    ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
    assert ports == {
        "webhook": parameters["webhook_port"],
        "metrics": parameters["secure_port"],
        "health": int(parameters["health_probe_addr"].removeprefix(":")),
    }


def test_probes_ask_the_health_port() -> None:
    """Readiness requires serving webhooks, liveness only an answer."""
    probes = {name: each["httpGet"] for name, each in container().items() if "Probe" in name}

    assert {name: each["path"] for name, each in probes.items()} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    assert {each["port"] for each in probes.values()} == {"health"}


def test_pods_pass_the_restricted_pod_security_standard() -> None:
    """No root, no capabilities, no writing at all."""
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"volumes", "hostNetwork", "hostPID"} & set(pod())


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
def test_the_hooks_are_those_of_the_code(kind: str) -> None:
    """A hook that is added fails here until the chart has it."""
    configuration = OBJECTS[
        f"{kind}WebhookConfiguration", f"koordinator-{kind.lower()}-webhook-configuration"
    ]
    hooks = [
        hook
        for hook in all_hooks(HookOptions(gates=frozenset(ManagerFeature)))
        if (hook.mutate is not None) is (kind == "Mutating")
    ]
    values = VALUES["webhookConfiguration"]
    wanted = {
        entry.name: {
            "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun" if entry.name in CHARGING else "None",
            "failurePolicy": values["failurePolicy"][hook.policy],
            "timeoutSeconds": values["timeoutSeconds"],
            "namespaceSelector": {
                "matchExpressions": [{"key": "control-plane", "operator": "DoesNotExist"}]
            },
            **({"objectSelector": {"matchLabels": dict([entry.label])}} if entry.label else {}),
            "rules": [
                {
                    "apiGroups": [hook.group],
                    "apiVersions": [hook.version],
                    "resources": [*hook.resources],
                    "operations": list(entry.operations),
                }
            ],
            "clientConfig": {
                "service": {
                    "name": SERVICE,
                    "namespace": NAMESPACE,
                    "path": hook.path,
                    "port": 443,
                }
            },
        }
        for hook in hooks
        for entry in hook.entries
    }
    listed = json.loads(configuration["metadata"]["annotations"]["template"])
    for each in listed:
        conditions = each.pop("matchConditions", ())
        assert bool(conditions) is ("elasticquota" in each["name"])
        for condition in conditions:
            result = re.findall(r"'(quota\.scheduling[^']*)'", condition["expression"])
            assert set(result) == REPORTED

    assert {each.pop("name"): each for each in listed} == wanted
    assert "webhooks" not in configuration
    assert ("Service", SERVICE) in OBJECTS
    policies = {hook.policy for hook in all_hooks(HookOptions(gates=DEFAULT_GATES))}
    assert set(values["failurePolicy"]) == policies


def test_the_configuration_is_valid_and_switches_colocation_on() -> None:
    """The manager's own webhook admits the ConfigMap."""
    installed = OBJECTS["ConfigMap", CONFIG_NAME]
    config = ConfigMap(
        metadata=ObjectMeta(name=CONFIG_NAME, namespace=NAMESPACE), data=installed["data"]
    )
    decoded, problems = read_config(config)

    check_config(config, None, ())
    assert not problems
    assert decoded.colocation is not None
    assert colocation_strategy(decoded.colocation, ObjectMeta()).enable
    assert installed["metadata"]["labels"]["koordinator.sh/configmap-type"] == CONFIG_NAME


def test_the_schema_knows_every_value() -> None:
    """A misspelt value is refused by Helm."""
    properties = json.loads((CHART / "values.schema.json").read_text("utf-8"))["properties"]

    original = {"image", "resyncPeriod"}  # without effect
    for part in ("manager", "webhookConfiguration"):
        assert set(VALUES[part]) == set(properties[part]["properties"]) - original
    policies = properties["webhookConfiguration"]["properties"]["failurePolicy"]["properties"]
    assert set(VALUES["webhookConfiguration"]["failurePolicy"]) == set(policies)
