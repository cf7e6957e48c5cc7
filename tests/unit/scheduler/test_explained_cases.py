"""Pods that had no remedy or a bad one: what is told, and what happens if somebody follows it.

A case of ``tests/golden/explain/cases`` is a document on what is to be told, then manifests.  Each
remedy that is said to be enough names what a reader of it would do ``then``: ``patch`` an object,
``delete``, ``create``, or ``copy`` one under another name.
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
from koordinator.cli.input.manifests import read_manifests
from koordinator.scheduler.explain import Explanation
from koordinator.simulator import Embedded
from koordinator.simulator.explanations import explain_pods

CASES = sorted((ROOT / "tests/golden/explain/cases").glob("*.yaml"))
NOW_S = 1_767_268_800.0
NEW_NAME = "kubernetes.io/hostname"  # label of a node that a copy has in its own way


@pytest.fixture(scope="module")
def installed() -> KubeSchedulerConfiguration:
    """Return the configuration that the chart installs, for pods that name no scheduler."""
    found = scheduler_configuration()
    del found["leaderElection"]
    found["profiles"][0]["schedulerName"] = "default-scheduler"
    return decode_configuration(found, "installed")


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> tuple[JsonObject, list[JsonObject]]:
    """Return what is to be told, and the manifests."""
    told, *manifests = yaml.safe_load_all(request.param.read_text("utf-8"))
    return told, manifests


def test_what_is_told_and_what_comes_of_it(
    case: tuple[JsonObject, list[JsonObject]],
    installed: KubeSchedulerConfiguration,
    tmp_path: Path,
) -> None:
    """Causes and remedies are as written down; each that is enough lets the pod start."""
    told, manifests = case
    found = explained(manifests, told["about"], installed, tmp_path)

    assert [(c.sentence, c.detail) for c in found.causes if c.decisive] == [
        (one["cause"], one.get("detail", "")) for one in told["causes"]
    ]
    assert [one.text for one in found.remedies] == [one["text"] for one in told["remedies"]]
    for remedy, written in zip(found.remedies, told["remedies"], strict=True):
        assert remedy.sufficient == ("then" in written), remedy
        if remedy.sufficient:
            world = objects(list(followed(manifests, written["then"])), tmp_path)
            assert starts(world, told["about"], installed), remedy.text


def test_there_are_twenty_cases_at_least() -> None:
    """None is lost."""
    assert len(CASES) >= 20


def explained(
    manifests: Sequence[JsonObject], name: str, config: KubeSchedulerConfiguration, path: Path
) -> Explanation:
    world = objects(manifests, path)
    assert not starts(world, name, config)
    (found,) = explain_pods(world, [name], config, now_s=NOW_S)
    return found


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
    """Yield the manifests as somebody leaves them who has done all that."""
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
