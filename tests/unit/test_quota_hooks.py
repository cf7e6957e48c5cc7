"""``docs/how-to/add-a-quota-hook.md`` is followed to the letter; hooks through the scheduler."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.markdown import code_blocks
from tests.unit.scheduler.plugins.test_elastic_quota import team
from tests.unit.scheduler.test_gangs import group, members, placed
from tests.unit.scheduler.test_job_queues import LABEL
from tests.worlds import START_S, node, pod

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.api.pod import Pod
from koordinator.domain.quota import HookFactory
from koordinator.foundation.errors import InputError
from koordinator.scheduler.plugins.elastic_quota import plugin_spec
from koordinator.scheduler.profile import build_profiles
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator import Embedded

HOW_TO = Path(__file__).parents[2] / "docs/how-to/add-a-quota-hook.md"
LIMIT, COUNT = "example.com/max-pods", "example.com/pods"


def block(language: str) -> str:
    """Return the code block of the page in one language."""
    (text,) = code_blocks(HOW_TO.read_text("utf-8"), language)
    return str(text)


def factory() -> HookFactory:
    module = type(sys)("max_pods")
    exec(block("python"), module.__dict__)  # noqa: S102 (our own page)
    make: HookFactory = module.__dict__["make"]
    return make


def world(*objects: Any, config: KubeSchedulerConfiguration | None = None) -> Embedded:
    if config is None:
        config = decode_configuration(yaml.load(block("yaml"), yaml.CSafeLoader), "page.yaml")
    plugin = plugin_spec({"max-pods": factory()})
    one = Embedded(config, now_s=START_S, out_of_tree=[plugin])
    one.load(objects)
    return one


def of(name: str, quota: str = "team") -> Pod:
    return pod(name, "100m", labels={LABEL: quota})


def limited(limit: int, **more: Any) -> ElasticQuota:
    return team("team", 8, annotations={LIMIT: str(limit)}, **more)


def test_the_hook_of_the_page_limits_pods() -> None:
    """The limit holds in a run of identical pods that are decided at once, too."""
    one = world(node("n"), limited(3), *(of(f"p{index}") for index in range(6)))

    one.run_to_fixed_point()

    assert len(placed(one)) == 3
    conditions = [
        c.message for p in one.cluster.list(Pod).items for c in p.status.conditions if c.message
    ]
    text = "CheckPod failed for hook plugin max-pods, err: 3 pods, of at most 3"
    assert any(text in message for message in conditions)


def test_deleted_pod_makes_room_for_the_next() -> None:
    """A changed quota makes room for it as well."""
    one = world(node("n"), limited(1), *(of(f"p{index}") for index in range(4)))
    one.run_to_fixed_point()
    (first,) = placed(one)
    one.cluster.delete(Pod, first, "default")
    one.run_to_fixed_point()
    assert len(placed(one)) == 1

    change = {"metadata": {"annotations": {LIMIT: "2"}}}
    one.cluster.patch(ElasticQuota, "team", "tenants", change)
    one.run_to_fixed_point()

    assert len(placed(one)) == 2
    one.state.validate()


def test_the_hook_writes_into_the_object() -> None:
    """Beside what the scheduler reports, and only when it has changed."""
    one = world(node("n"), limited(3), of("a"), of("b"))
    for _ in range(3):
        one.run_to_fixed_point()
        one.clock.advance_to(one.clock.now_s() + 2)
    stored = one.cluster.get(ElasticQuota, "team", "tenants")
    assert stored.metadata.annotations[COUNT] == "2"
    one.clock.advance_to(one.clock.now_s() + 2)
    one.run_to_fixed_point()

    again = one.cluster.get(ElasticQuota, "team", "tenants")
    assert again.metadata.resource_version == stored.metadata.resource_version


def test_pods_that_move_are_counted_where_they_are() -> None:
    """A quota that takes over a namespace takes its pods with it."""
    one = world(node("n"), *(pod(f"p{index}", "100m") for index in range(2)))
    one.run_to_fixed_point()

    taken = {"quota.scheduling.koordinator.sh/namespaces": '["default"]', LIMIT: "2"}
    one.load([team("team", 8, annotations=taken), pod("late", "100m")])
    one.run_to_fixed_point()

    assert set(placed(one)) == {"p0", "p1"}


def test_a_gang_needs_room_in_the_hook_for_all_members() -> None:
    """No member starts if the hook has room for some members only."""
    args = [{"key": "max-pods", "factoryKey": "max-pods", "factoryArgs": "9"}]
    config = _with_hooks(args)
    for limit, started in ((2, 0), (3, 3)):
        gang = members("g", 3, "100m", labels={LABEL: "team"})
        one = world(node("n"), limited(limit), group("g", 3), *gang, config=config)
        one.run_to_fixed_point()
        assert len(placed(one)) == started


def _with_hooks(hooks: list[dict[str, str]]) -> KubeSchedulerConfiguration:
    return decode_configuration(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [
                {
                    "schedulerName": "default-scheduler",
                    "plugins": {
                        "multiPoint": {"enabled": [{"name": "ElasticQuota"}]},
                        "preEnqueue": {"enabled": [{"name": "Coscheduling"}]},
                        "permit": {"enabled": [{"name": "Coscheduling"}]},
                    },
                    "pluginConfig": [{"name": "ElasticQuota", "args": {"hookPlugins": hooks}}],
                }
            ],
        },
        "test",
    )


def test_a_hook_that_is_not_installed_is_an_error() -> None:
    """A missing hook is never ignored."""
    config = _with_hooks([{"key": "k", "factoryKey": "nobody"}])

    with pytest.raises(InputError, match=r"hookPlugins\[0\].factoryKey: must be .*, got 'nobody'"):
        build_profiles(config, ClusterState().axis)
