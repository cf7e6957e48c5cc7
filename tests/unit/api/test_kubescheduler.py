"""The configuration file: accepted forms, their meaning, and messages about the rest."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.api import kubescheduler
from koordinator.api.kubescheduler import (
    API_VERSION,
    KubeSchedulerConfiguration,
    decode_args,
    decode_configuration,
)
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError

SHARED = Path(os.environ.get("KOORD_SHARED", Path(__file__).parents[4] / "shared"))
HEADER = {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration"}


def configuration(**fields: Any) -> KubeSchedulerConfiguration:
    return decode_configuration(HEADER | fields, "koord.yaml")


@pytest.mark.parametrize("name", ["koord.yaml", "stock.yaml"])
def test_real_configurations_are_accepted_unchanged(name: str) -> None:
    """Files that run the Go schedulers run this one, with the arguments of every plugin."""
    path = SHARED / "parity" / name
    if not path.exists():
        pytest.skip(f"{path} is not here: set KOORD_SHARED")

    decoded = decode_configuration(yaml.load(path.read_text(), yaml.CSafeLoader), name)

    for config in decoded.profiles[0].plugin_config:
        args_type = getattr(kubescheduler, f"{config.name}Args")
        assert isinstance(decode_args(args_type, config.args, "args", name), args_type)


def test_defaults_of_the_configuration() -> None:
    """An empty file means the defaults of kube-scheduler."""
    decoded = configuration()

    assert decoded == KubeSchedulerConfiguration()
    assert [profile.scheduler_name for profile in decoded.profiles] == ["default-scheduler"]
    assert decoded.parallelism == 16
    assert decoded.leader_election.leader_elect
    assert decoded.leader_election.lease_duration == Duration(seconds=15)
    assert decoded.leader_election.renew_deadline == Duration(seconds=10)
    assert decoded.leader_election.retry_period == Duration(seconds=2)
    assert decoded.leader_election.resource_name == "kube-scheduler"
    assert (decoded.client_connection.qps, decoded.client_connection.burst) == (-1.0, 100)
    assert (decoded.pod_initial_backoff_seconds, decoded.pod_max_backoff_seconds) == (1, 10)


def test_zero_means_the_default_where_go_does_not_distinguish_it_from_unset() -> None:
    """Durations, texts, qps and burst: 0 and "" are the same as no field."""
    decoded = configuration(
        leaderElection={"leaseDuration": "0s", "resourceLock": ""},
        clientConnection={"qps": 0, "burst": 0, "contentType": ""},
    )

    assert decoded == KubeSchedulerConfiguration()


def test_null_means_that_the_field_is_absent() -> None:
    """As in every Kubernetes file, at any depth."""
    assert configuration(profiles=None, parallelism=None) == KubeSchedulerConfiguration()


def test_plugins_profiles_and_extenders_are_decoded() -> None:
    """Every part of the file arrives in its typed form."""
    decoded = configuration(
        percentageOfNodesToScore=30,
        profiles=[
            {
                "schedulerName": "a",
                "percentageOfNodesToScore": 0,
                "plugins": {
                    "multiPoint": {"disabled": [{"name": "*"}]},
                    "score": {"enabled": [{"name": "NodeAffinity", "weight": 7}]},
                },
                "pluginConfig": [{"name": "NodePorts", "args": {"any": ["thing"]}}],
            },
            {"schedulerName": "b"},
        ],
        extenders=[
            {
                "urlPrefix": "https://10.0.0.1",
                "prioritizeVerb": "p",
                "weight": 2,
                "enableHTTPS": True,
                "httpTimeout": "5s",
                "tlsConfig": {"caData": "aGVsbG8="},
                "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}],
            }
        ],
    )

    first, second = decoded.profiles
    assert first.percentage_of_nodes_to_score == 0
    assert second.percentage_of_nodes_to_score is None
    assert first.plugins is not None
    assert first.plugins.at("multiPoint").disabled[0].name == "*"
    assert first.plugins.at("score").enabled[0].weight == 7
    assert first.plugin_config[0].args == {"any": ["thing"]}
    extender = decoded.extenders[0]
    assert extender.enable_https
    assert extender.http_timeout == Duration(seconds=5)
    assert extender.tls_config is not None
    assert extender.tls_config.ca_data == b"hello"


@pytest.mark.parametrize(
    ("fields", "path", "problem"),
    [
        ({"parallelism": 0}, "parallelism", "at least 1"),
        ({"parallelism": "16"}, "parallelism", 'must be an integer of at least 1, got "16"'),
        ({"parallelism": True}, "parallelism", "got true"),
        ({"parallelism": 1.5}, "parallelism", "got 1.5"),
        ({"Parallelism": 1}, "Parallelism", 'did you mean "parallelism"?'),
        ({"percentageOfNodesToScore": 101}, "percentageOfNodesToScore", "0..100"),
        ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds", "at least 1"),
        ({"podInitialBackoffSeconds": 11}, "podMaxBackoffSeconds", "podInitialBackoffSeconds (11)"),
        ({"enableProfiling": "yes"}, "enableProfiling", "true or false"),
        ({"healthzBindAddress": ":10251"}, "healthzBindAddress", "unknown field"),
        ({"profiles": {}}, "profiles", "a list"),
        ({"profiles": [3]}, "profiles[0]", "an object"),
        ({"profiles": [{1: 2}]}, "profiles[0]", "an object whose keys are strings"),
        ({"clientConnection": {"qps": "5"}}, "clientConnection.qps", "a number"),
        ({"clientConnection": {"burst": -1}}, "clientConnection.burst", "at least 0"),
        ({"clientConnection": {"kubeconfig": 1}}, "clientConnection.kubeconfig", "a string"),
        ({"leaderElection": {"leaseDuration": 15}}, "leaderElection.leaseDuration", "15"),
        ({"leaderElection": {"leaseDuration": "10s"}}, "leaderElection.leaseDuration", "(10s)"),
        ({"leaderElection": {"retryPeriod": "9s"}}, "leaderElection.renewDeadline", "1.2 x"),
        ({"leaderElection": {"retryPeriod": "-1s"}}, "leaderElection.retryPeriod", "more than 0s"),
        (
            {"leaderElection": {"resourceLock": "endpoints"}},
            "leaderElection.resourceLock",
            "leases",
        ),
        ({"profiles": [{}, {}]}, "profiles[0].schedulerName", "required"),
        (
            {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
            "profiles[1].schedulerName",
            "unique among the profiles",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "X"}, {"name": "X"}]}]},
            "profiles[0].pluginConfig[1].name",
            "unique",
        ),
        ({"profiles": [{"pluginConfig": [{}]}]}, "profiles[0].pluginConfig[0].name", "required"),
        (
            {"profiles": [{"plugins": {"filters": {}}}]},
            "profiles[0].plugins.filters",
            'did you mean "filter"?',
        ),
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"name": "X", "weight": -1}]}}}]},
            "profiles[0].plugins.score.enabled[0].weight",
            "at least 0",
        ),
        ({"extenders": [{"prioritizeVerb": "p"}]}, "extenders[0].weight", "at least 1"),
        (
            {"extenders": [{"bindVerb": "b"}, {}, {"bindVerb": "b"}]},
            "extenders[2].bindVerb",
            "extenders[0] binds already",
        ),
        (
            {"extenders": [{"managedResources": [{"name": "cpu"}]}]},
            "extenders[0].managedResources[0].name",
            "extended resource",
        ),
        (
            {"extenders": [{"managedResources": [{"name": "a.b/c"}, {"name": "a.b/c"}]}]},
            "extenders[0].managedResources[1].name",
            "unique among all extenders",
        ),
        (
            {"extenders": [{"tlsConfig": {"caData": "no base64!"}}]},
            "extenders[0].tlsConfig.caData",
            "base64",
        ),
    ],
)
def test_a_wrong_configuration_is_refused_where_it_is_wrong(
    fields: dict[str, Any], path: str, problem: str
) -> None:
    """The message names the file, the field, what was found and what is accepted."""
    with pytest.raises(InputError) as caught:
        configuration(**fields)

    assert (caught.value.source, caught.value.path) == ("koord.yaml", path)
    assert problem in caught.value.problem


def test_leader_election_that_is_off_is_not_checked() -> None:
    """As in kube-scheduler: the durations of an election that never happens don't matter."""
    election = {"leaderElect": False, "leaseDuration": "1s", "resourceLock": "endpoints"}

    assert not configuration(leaderElection=election).leader_election.leader_elect


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
def test_old_versions_are_refused_with_the_accepted_one(version: str) -> None:
    """Koordinator's charts have never contained them."""
    result = f"kubescheduler.config.k8s.io/{version}"
    with pytest.raises(InputError, match=f'apiVersion: must be {API_VERSION}, got "{result}"'):
        decode_configuration(HEADER | {"apiVersion": result}, "koord.yaml")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "koord.yaml: must be an object, got null"),
        ([], "koord.yaml: must be an object, got []"),
        ({}, f"koord.yaml: apiVersion: is required and must be {API_VERSION}"),
        (
            {"apiVersion": API_VERSION, "kind": "Pod"},
            'koord.yaml: kind: must be KubeSchedulerConfiguration, got "Pod"',
        ),
    ],
)
def test_other_files_are_refused(data: object, message: str) -> None:
    """A file must say that it is a configuration of the scheduler."""
    with pytest.raises(InputError) as caught:
        decode_configuration(data, "koord.yaml")

    assert str(caught.value) == message
