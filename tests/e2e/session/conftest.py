"""A cluster with ``koord scheduler``, used through kubectl."""

from collections.abc import Iterator

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.kubelet import FakeKubelet
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.session.user import User

CONFIGURATION = {
    "leaderElection": {"leaderElect": False},
    "profiles": [
        {"schedulerName": "default-scheduler"},
        {"schedulerName": "batch"},
        {
            "schedulerName": "gangs",
            "plugins": {
                point: {"enabled": [{"name": "Coscheduling"}]} for point in ("preEnqueue", "permit")
            },
            "pluginConfig": [{"name": "Coscheduling", "args": {"awareNetworkTopology": True}}],
        },
        {
            "schedulerName": "quotas",
            "plugins": {
                "preEnqueue": {"enabled": [{"name": "Coscheduling"}]},
                "preFilter": {"enabled": [{"name": "ElasticQuota"}]},
                "postFilter": {"enabled": [{"name": "ElasticQuota"}]},
                "permit": {"enabled": [{"name": "Coscheduling"}]},
            },
            "pluginConfig": [
                {
                    "name": "ElasticQuota",
                    "args": {
                        "monitorAllQuotas": True,
                        "delayEvictTime": "2s",
                        "quotaGroupNamespace": "default",
                    },
                }
            ],
        },
        {
            "schedulerName": "jobs",
            "plugins": {
                "preEnqueue": {"enabled": [{"name": "Coscheduling"}]},
                "permit": {"enabled": [{"name": "Coscheduling"}]},
                "postFilter": {
                    "disabled": [{"name": "*"}],
                    "enabled": [{"name": "Coscheduling"}],
                },
            },
            "pluginConfig": [{"name": "Coscheduling", "args": {"enablePreemption": True}}],
        },
        {
            "schedulerName": "reserving",
            "plugins": {
                "postFilter": {"enabled": [{"name": "Reservation"}]},
                "score": {"enabled": [{"name": "Reservation", "weight": 5000}]},
                **{
                    point: {"enabled": [{"name": "Reservation"}]}
                    for point in ("preFilter", "filter", "reserve")
                },
            },
            "pluginConfig": [
                {"name": "Reservation", "args": {"gcDurationSeconds": 1, "gcIntervalSeconds": 1}}
            ],
        },
    ],
}


@pytest.fixture(scope="module")
def scheduler(controlplane: ControlPlane) -> Iterator[SchedulerProcess]:
    """Run one scheduler while all tests of a module come and go."""
    with SchedulerProcess(controlplane, CONFIGURATION) as running:
        yield running


@pytest.fixture
def user(
    controlplane: ControlPlane,
    scheduler: SchedulerProcess,
    kubelet: FakeKubelet,
    namespace: str,
) -> User:
    """Work in a namespace of one's own, in a cluster that has no nodes yet."""
    assert scheduler.is_running, scheduler.last_words()
    del kubelet
    return User(controlplane, namespace)
