"""A simulation that is recorded: a replay with its configuration decides the same again."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.worlds import configuration

from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.domain.audit import AuditChoice, AuditOutcome
from koordinator.foundation.errors import InputError
from koordinator.scheduler.features.audit import Audit
from koordinator.simulator import Simulation, parse_workload
from koordinator.simulator.policies import BY_NAME, default_profile
from koordinator.simulator.recorder import opened_recording
from koordinator.simulator.recording import read_recording
from koordinator.simulator.replay import ReplayOutcomes, replay
from koordinator.simulator.results import SimulationResult

UNTIL_S = 1.5 * 3600  # of the runs
EXAMPLES = Path(__file__).parents[3] / "examples"
#: More than there is room for, of two priorities, on nodes of two zones that fail.
CROWDED = {
    "seed": 3,
    "nodePools": [{"name": "n", "count": 4, "cpu": 8, "memory": "32Gi", "zones": ["a", "b"]}],
    "podStreams": [
        {
            "name": "low",
            "arrival": {"poisson": {"perHour": 40}},
            "duration": {"exponential": {"mean": "40m"}},
            "template": {"cpu": 2, "spread": [{"topologyKey": "topology.kubernetes.io/zone"}]},
        },
        {
            "name": "high",
            "arrival": {"poisson": {"perHour": 6}},
            "duration": {"exponential": {"mean": "10m"}},
            "template": {"cpu": 6, "priority": 1000},
        },
    ],
    "failures": [{"pool": "n", "mtbf": "2h", "repair": {"constant": "10m"}}],
}
GPUS = yaml.load((EXAMPLES / "small-gpu-cluster.yaml").read_text(), yaml.CSafeLoader)
JOBS = yaml.load((EXAMPLES / "training-jobs.yaml").read_text(), yaml.CSafeLoader)
NETWORK = decode_configuration(
    yaml.load((EXAMPLES / "training-profile.yaml").read_text(), yaml.CSafeLoader),
    "training-profile.yaml",
)


def recorded(
    workload: Any,
    config: KubeSchedulerConfiguration | None = None,
    until_s: float = UNTIL_S,
    **given: Any,
) -> tuple[SimulationResult, list[bytes]]:
    """Return a run and the lines of its recording."""
    lines: list[bytes] = []
    simulation = Simulation(
        parse_workload(yaml.safe_dump(workload), "w"), config, until_s=until_s, **given
    )
    return simulation.run(record=lines.append), lines


def again(lines: list[bytes], config: KubeSchedulerConfiguration | None = None) -> ReplayOutcomes:
    """Replay with the configuration in the recording, or another one."""
    recording = read_recording(lines, "r")
    assert recording.header.configuration is not None
    return replay(recording, config or decode_configuration(recording.header.configuration, "r"))


RUNS: dict[str, tuple[Any, KubeSchedulerConfiguration | None]] = {
    "crowded": (CROWDED, None),
    "gpus": (GPUS, None),
    "jobs": (JOBS, NETWORK),
}


@cache
def run_and_replay(name: str) -> tuple[SimulationResult, ReplayOutcomes]:
    """Return a run and the replay of its recording; computed once for all tests."""
    run, lines = recorded(*RUNS[name])
    return run, again(lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_replay_decides_what_the_simulated_run_decided(name: str) -> None:
    """Every pod on its node, after its wait, evicted or not; and recording changes nothing."""
    workload, config = RUNS[name]
    run, replayed = run_and_replay(name)
    plain = Simulation(parse_workload(yaml.safe_dump(workload), "w"), config, until_s=UNTIL_S).run()

    assert run.placements == plain.placements
    assert {
        name: (pod_outcome.node, pod_outcome.waited_s)
        for name, pod_outcome in replayed.pod_outcomes.items()
    } == {
        it.pod: (it.node, None if it.bound_s is None else it.bound_s - it.submitted_s)
        for it in run.placements
    }
    assert replayed.comparison().differences == ()
    assert replayed.foreign == {}


def test_preemption_is_in_the_recording() -> None:
    """A victim is no finished pod: another configuration may keep it."""
    run, replayed = run_and_replay("crowded")
    comparison = replayed.comparison()

    evicted = sum("made room for" in event.text for event in run.report.events)
    assert comparison.before.evicted == comparison.after.evicted == evicted > 0


def test_a_pod_that_is_placed_later_in_a_replay_runs_as_long() -> None:
    """The pod ended by itself, without a deletion."""
    duration = {"constant": "10m"}
    workload = {
        "nodePools": [{"name": "n", "count": 2, "cpu": 4, "memory": "8Gi"}],
        "podStreams": [
            {
                "name": "a",
                "arrival": {"bursts": [{"count": 2}]},
                "duration": duration,
                "template": {"cpu": 3},
            },
            {
                "name": "z",
                "arrival": {"bursts": [{"count": 1, "at": "15m"}]},
                "duration": duration,
                "template": {"cpu": 4},
            },
        ],
    }
    _, lines = recorded(workload)
    only_one = configuration(
        plugins={"multiPoint": {"enabled": [{"name": "NodeAffinity"}]}},
        pluginConfig=[
            {
                "name": "NodeAffinity",
                "args": {
                    "addedAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchFields": [
                                        {
                                            "key": "metadata.name",
                                            "operator": "In",
                                            "values": ["n-0"],
                                        }
                                    ]
                                }
                            ]
                        }
                    }
                },
            }
        ],
    )

    pod_outcomes = again(lines, only_one).pod_outcomes

    assert {name: pod_outcome.waited_s for name, pod_outcome in pod_outcomes.items()} == {
        "default/a-0": 0.0,
        "default/a-1": 600.0,
        "default/z-0": 300.0,
    }


@pytest.mark.parametrize("config", [default_profile, *BY_NAME.values()])
def test_the_configuration_in_a_recording_is_that_of_the_run(config: Any) -> None:
    """Read back it is the same, with what was left to defaults."""
    _, lines = recorded(GPUS, config(), until_s=60.0)
    header = read_recording(lines, "r").header

    assert decode_configuration(header.configuration, "r") == config()
    assert header.started_s == 0.0


def test_an_audit_has_the_decisions_in_virtual_time() -> None:
    """Every pod that got a node, when it got it; what plugins took; as lines for who keeps them."""
    lines: list[bytes] = []
    audit = Audit(lines.append)
    run, _ = recorded(GPUS, audit=audit)

    bound = audit.entries(AuditChoice(outcomes=frozenset({AuditOutcome.BOUND})), 10_000)
    assert {(pod.pod, pod.node, entry.at_s) for entry in bound for pod in entry.pods} == {
        (it.pod, it.node, it.bound_s) for it in run.placements if it.node
    }
    summary = audit.summary(AuditChoice())
    assert "DeviceShare" in {it.plugin for it in summary.slowest}
    assert b"".join(lines).count(b"\n") == summary.entries


def test_another_file_is_no_recording(tmp_path: Path) -> None:
    """A manifest is refused; the error of the library is omitted."""
    file = tmp_path / "node.yaml"
    file.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n" * 9, "utf-8")

    problem = r"node\.yaml: must be a recording, packed by gzip$"
    with pytest.raises(InputError, match=problem), opened_recording(file):
        pass
