"""The configuration file that the scheduler is installed with."""

from pathlib import PurePosixPath

from tests.unit.deploy.installed import (
    NAMESPACE,
    VALUES,
    scheduler_configuration,
    scheduler_container,
    scheduler_pod,
)
from tests.unit.scheduler.test_gang_topology import gather, topology
from tests.unit.scheduler.test_gangs import group, members, placed
from tests.worlds import embedded, node

from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.scheduler.profile import build_profiles
from koordinator.scheduler.snapshot import ResourceAxis

#: What the configuration of the original's chart switches on.
PLUGINS_OF_THE_ORIGINAL = {
    "SchedulingHint",
    "Coscheduling",
    "Reservation",
    "NodeNUMAResource",
    "DeviceShare",
    "ElasticQuota",
    "LoadAwareScheduling",
}


def decoded() -> KubeSchedulerConfiguration:
    """Return the installed file as the scheduler reads it."""
    return decode_configuration(scheduler_configuration(), "koord-scheduler-config")


def test_the_file_is_accepted() -> None:
    """The file is decoded strictly, and its plugins can be built."""
    built = build_profiles(decoded(), ResourceAxis())

    assert [profile.scheduler_name for profile in built.profiles] == ["koord-scheduler"]


def test_every_plugin_of_the_original_that_works_is_on() -> None:
    """A plugin that gets its effect fails here until the chart enables it."""
    (profile,) = decoded().profiles
    assert profile.plugins is not None
    points = ("preFilter", "filter", "postFilter", "score", "reserve", "permit", "preBind")
    enabled = {
        plugin.name for point in points for plugin in profile.plugins.at(point).enabled
    } & PLUGINS_OF_THE_ORIGINAL

    assert enabled == PLUGINS_OF_THE_ORIGINAL


def test_jobs_are_gathered_as_soon_as_the_network_is_described() -> None:
    """Nothing has to be switched on: the chart brings the CRD of the network."""
    hosts = [node(f"h{i}", 2, labels={"hall": "p0", "rack": f"r{i % 2}"}) for i in range(4)]
    gang = members("g", 4, 1, schedulerName="koord-scheduler")
    one = embedded(
        topology(), *hosts, group("g", 4, **gather(must="RackLayer")), *gang, config=decoded()
    )
    one.scheduler.step()

    racks = {int(name.removeprefix("h")) % 2 for name in placed(one).values()}
    assert (len(placed(one)), len(racks)) == (4, 1)


def test_the_replicas_elect_one_of_them() -> None:
    """The lease has the original's name: in one namespace the two never schedule together."""
    election = decoded().leader_election

    assert election.leader_elect
    assert election.resource_name == "koord-scheduler"
    assert election.resource_namespace == NAMESPACE


def test_file_equals_the_values_of_the_chart() -> None:
    """The plain manifests were rendered from the values of today."""
    installed = scheduler_configuration()

    assert {name: installed[name] for name in VALUES["scheduler"]["config"]} == VALUES["scheduler"][
        "config"
    ]
    assert set(installed) == {
        *VALUES["scheduler"]["config"],
        "apiVersion",
        "kind",
        "leaderElection",
    }


def test_the_file_is_mounted_where_the_command_looks_for_it() -> None:
    """``--config`` is the mount's path and the item's."""
    (named,) = (arg for arg in scheduler_container()["args"] if arg.startswith("--config="))
    (volume,) = (each for each in scheduler_pod()["volumes"] if "configMap" in each)
    (mount,) = (
        each for each in scheduler_container()["volumeMounts"] if each["name"] == volume["name"]
    )
    (item,) = volume["configMap"]["items"]

    assert PurePosixPath(named.removeprefix("--config=")) == (
        PurePosixPath(mount["mountPath"]) / item["path"]
    )
    assert (volume["configMap"]["name"], item["key"]) == (
        "koord-scheduler-config",
        "koord-scheduler-config",
    )
