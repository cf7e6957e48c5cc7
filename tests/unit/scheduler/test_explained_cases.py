"""Explanations of pods, and the effect of following each remedy.

A case of ``tests/golden/explain/cases`` is a document with the expected explanation, then
manifests. Each remedy marked as sufficient names the steps of a user who follows it: ``patch`` an
object, ``delete``, ``create``, or ``copy`` one under another name.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.deploy.installed import ROOT, scheduler_configuration

from koordinator.api.codec import apply_merge_patch
from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.pod import Pod
from koordinator.scheduler.explanations import Explanation
from koordinator.simulator import Embedded
from koordinator.simulator.explanations import explain_pods
from koordinator.simulator.manifests.reader import read_manifests

CASES = sorted((ROOT / "tests/golden/explain/cases").glob("*.yaml"))
NOW_S = 1_767_268_800.0
NEW_NAME = "kubernetes.io/hostname"  # label of a node that a copy has in its own way


@pytest.fixture(scope="module")
def installed() -> KubeSchedulerConfiguration:
    """Return the configuration of the chart for pods without a scheduler name."""
    configuration = scheduler_configuration()
    del configuration["leaderElection"]
    configuration["profiles"][0]["schedulerName"] = "default-scheduler"
    return decode_configuration(configuration, "installed")


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> tuple[JsonObject, list[JsonObject]]:
    """Return the expected explanation and the manifests."""
    expected, *manifests = yaml.load_all(request.param.read_text("utf-8"), yaml.CSafeLoader)
    return expected, manifests


def test_explanation_and_effect_of_its_remedies(
    case: tuple[JsonObject, list[JsonObject]],
    installed: KubeSchedulerConfiguration,
    tmp_path: Path,
) -> None:
    """Causes and remedies equal the recorded ones; the pod starts after each sufficient remedy."""
    expected, manifests = case
    explanation = explained(manifests, expected["about"], installed, tmp_path)

    assert [(c.sentence, c.detail) for c in explanation.causes if c.decisive] == [
        (one["cause"], one.get("detail", "")) for one in expected["causes"]
    ]
    assert [one.text for one in explanation.remedies] == [
        one["text"] for one in expected["remedies"]
    ]
    for remedy, written in zip(explanation.remedies, expected["remedies"], strict=True):
        assert remedy.sufficient == ("then" in written), remedy
        if remedy.sufficient:
            world = objects(list(followed(manifests, written["then"])), tmp_path)
            assert starts(world, expected["about"], installed), remedy.text


def test_at_least_twenty_cases_are_recorded() -> None:
    """The folder of cases has not lost any."""
    assert len(CASES) >= 20


def explained(
    manifests: Sequence[JsonObject], name: str, config: KubeSchedulerConfiguration, path: Path
) -> Explanation:
    world = objects(manifests, path)
    assert not starts(world, name, config)
    (explanation,) = explain_pods(world, [name], config, now_s=NOW_S)
    return explanation


def objects(manifests: Sequence[JsonObject], path: Path) -> Sequence[KubeObject]:
    file = path / "world.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    return read_manifests([str(file)], None)


def starts(world: Sequence[KubeObject], name: str, config: KubeSchedulerConfiguration) -> bool:
    one = Embedded(config, now_s=NOW_S)
    one.load(world)
    one.run_to_fixed_point()
    namespace, _, pod = name.partition("/")
    return bool(one.cluster.get(Pod, pod, namespace).spec.node_name)


def followed(manifests: Sequence[JsonObject], then: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """Yield the manifests after all steps of a remedy."""
    by_name = {f"{one['kind']}/{one['metadata']['name']}": one for one in deepcopy(manifests)}
    for step in then:
        match step:
            case {"patch": name, "with": patch}:
                by_name[name] = apply_merge_patch(by_name[name], patch)
            case {"delete": name}:
                del by_name[name]
            case {"create": manifest}:
                by_name[f"{manifest['kind']}/{manifest['metadata']['name']}"] = manifest
            case {"copy": name, "as": other}:
                copied: Any = apply_merge_patch(deepcopy(by_name[name]), step.get("with", {}))
                copied["metadata"]["name"] = other
                if NEW_NAME in copied["metadata"].get("labels", {}):
                    copied["metadata"]["labels"][NEW_NAME] = other
                by_name[f"{copied['kind']}/{other}"] = copied
            case _:
                raise AssertionError(step)
    yield from by_name.values()
