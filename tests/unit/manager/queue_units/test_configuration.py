"""Files of koord-queue's two Deployments: what they switch on, and what is refused."""

import re
from pathlib import Path

import pytest
from tests.unit.manager.queue_units.worlds import START_S, World, job, queue, quota
from typer.testing import CliRunner

from koordinator.cli.main import app
from koordinator.foundation.errors import InputError
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.manager.queue_units.configuration import (
    DEFAULT_PLUGINS,
    JobTimes,
    QueueConfiguration,
    read_queue_configuration,
)

#: The ConfigMap of the original's chart, with its default values.
CHART = """
apiVersion: scheduling.k8s.io/v1
kind: KoordQueueConfiguration
pluginConfigs: {}
plugins:
- name: Priority
- name: ElasticQuotaV2
"""


def read(*texts: str) -> QueueConfiguration:
    known = QueueConfiguration()
    for text in texts:
        known = read_queue_configuration(known, yaml_document(text, "f"), "f")
    return known


def test_file_of_the_chart_states_the_defaults() -> None:
    """The kind before 1.8 and a file without plugins have the same defaults."""
    assert read(CHART).plugins == DEFAULT_PLUGINS
    assert read(CHART.replace("Koord", "Kube")).plugins == DEFAULT_PLUGINS
    assert read("{apiVersion: scheduling.k8s.io/v1, kind: KoordQueueConfiguration}").plugins == (
        DEFAULT_PLUGINS
    )


def test_arguments_of_extensions_say_how_long_their_jobs_are_waited_for() -> None:
    """Arguments of extensions are in a separate file; 0 means the default."""
    result = read(CHART, "{tfjob: {runningTimeout: 1m, backoffTimeout: 30s}, job: {}}")

    assert result.times["tfjob"] == JobTimes(60.0, 30.0)
    assert read("job: {runningTimeout: 0s}").times == {"job": JobTimes()}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "f: must be a KoordQueueConfiguration, or arguments of job extensions, got []"),
        ("kind: KoordQueueConfiguration", "f: apiVersion: is required"),
        (
            "{apiVersion: v1, kind: KoordQueueConfiguration}",
            "f: apiVersion: must be scheduling.k8s.io/v1, got 'v1'",
        ),
        (
            CHART + "- name: Prioritty",
            "f: plugins[2].name: must be one of Priority, ElasticQuotaV2, ",
        ),
        (CHART.replace("- name: ElasticQuotaV2", ""), "f: plugins: must be exactly one of"),
        (
            CHART.replace("{}", "{ElasticQuotaV2: {rate: 2}}"),
            "f: pluginConfigs.ElasticQuotaV2.rate: unknown field",
        ),
        ("tfjobs: {}", 'f: tfjobs: unknown field; did you mean "tfjob"?'),
        ("job: {runningTimeout: -1s}", "f: job.runningTimeout: must be at least 0s, got '-1s'"),
        ("job: {waits: 1s}", "f: job.waits: unknown field"),
    ],
)
def test_invalid_settings_are_named(text: str, problem: str) -> None:
    """With file, path, and what is accepted."""
    with pytest.raises(InputError, match=f"^{re.escape(problem)}"):
        read(text)


def test_kinds_of_jobs_are_waited_for_as_their_arguments_say() -> None:
    """Arguments of a kind override the queue, and their backoff is constant."""
    times = {"job": JobTimes(running_s=5.0, backoff_s=40.0)}
    world = World(
        quota(cpu=1),
        job("slow"),
        configuration=QueueConfiguration(times=times),
    )
    world.settle(pods_run=False)
    world.pass_time(6, pods_run=False)
    assert world.phases() == {"slow": "TimeoutBackoff"}
    world.pass_time(38, pods_run=False)
    assert world.phases() == {"slow": "TimeoutBackoff"}
    world.pass_time(3)
    assert world.phases() == {"slow": "Running"}
    assert world.clock.now_s() < START_S + 60


def test_a_queue_has_its_own_times() -> None:
    """The annotation queue-args has them; invalid values in it are ignored."""
    world = World(
        quota(cpu=1),
        queue(wait_for_pods_running="true", queue_args='{podInitialBackoffSeconds: "30"}'),
        job("slow"),
        pods_ready_s=5.0,
        longest_backoff_s=100.0,
    )
    world.settle(pods_run=False)
    world.pass_time(6, pods_run=False)
    world.pass_time(28, pods_run=False)
    assert world.phases() == {"slow": "TimeoutBackoff"}
    world.pass_time(3)
    assert world.phases() == {"slow": "Running"}


def test_annotations_of_1_8_and_of_before_count_alike() -> None:
    """``koord-queue/`` and ``kube-queue/``."""
    newer = queue()
    newer["metadata"]["annotations"] = {"koord-queue/max-depth": "1"}
    world = World(quota(cpu=1), newer, job("large", 9, priority=3), job("small", 1))
    world.settle()

    assert not world.running()


def test_flag_sets_the_default_preemptibility_of_units() -> None:
    """A unit's own label overrides the flag; only ``true`` allows preemption."""
    for default, victim in ((True, {"a"}), (False, set[str]())):
        world = World(
            quota(cpu=1),
            queue(enable_queueunit_preemption="true"),
            job("a"),
            default_preemptible=default,
        )
        world.settle()
        world.add(job("b", priority=5))
        world.settle()
        assert world.running() == ({"b"} if victim else {"a"})


def test_all_jobs_may_count_also_those_that_don_t_come_suspended() -> None:
    """Unsuspended jobs run in any case; suspended ones wait for their quota."""
    world = World(quota(cpu=1), job("runs", suspend=False), manages_all=True)
    world.settle()
    world.add(job("waits"))
    world.settle()

    assert world.phases() == {"runs": "Running", "waits": "Enqueued"}


def test_flag_of_the_original_sets_the_file(tmp_path: Path) -> None:
    """``--config`` without ``--once``, ``--queue-config`` in any case."""
    file = tmp_path / "plugin.yaml"
    file.write_text(CHART.replace("Priority", "First"))
    for arguments in (
        ["--config", str(file), "--kubeconfig=/none"],
        ["--once", "-f", str(file), f"--queue-config={file}"],
    ):
        with pytest.raises(InputError, match=r"plugins\[0\].name: must be .*, got 'First'"):
            CliRunner().invoke(app, ["manager", *arguments], catch_exceptions=False)
