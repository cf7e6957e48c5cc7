"""Every annotation and label that the source names, with texts that mean something elsewhere.

All commands that read manifests get through, and a pod beside them gets its node.
"""

import json
from pathlib import Path

import pytest
import yaml
from tests.hostile.programs import koord
from tests.hostile_texts import MEANT, TEXTS, keys

_KEYS = keys()
_LARGEST = 200_000  # characters in all annotations of an object
#: How many objects have a share of the keys; each has another text for each of its keys.
_SHARES = 12


def _hostile(number: int) -> list[dict[str, object]]:
    """Return a pod that waits, one that runs and a node, each with a share of the keys."""
    texts = [*MEANT, *(text for text in TEXTS if len(text) < _LARGEST // len(_KEYS))]
    made: list[dict[str, object]] = []
    for index, kind in enumerate(("Pod", "Pod", "Node")):
        chosen = _KEYS[(number + index) % _SHARES :: _SHARES]
        annotations = {
            key: texts[(number + place) % len(texts)] for place, key in enumerate(chosen)
        }
        labels = {key: text for key, text in annotations.items() if _is_label(text)}
        meta: dict[str, object] = {
            "name": f"evil-{number}-{index}",
            "annotations": annotations,
            "labels": labels,
        }
        container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
        spec = {"schedulerName": "koord-scheduler", "containers": [container]}
        if kind == "Pod":
            meta["namespace"] = "tenant"
            on = {"nodeName": "n1"} if index else {}
            made.append(
                {"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": {**spec, **on}}
            )
        else:
            status = {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}}
            made.append({"apiVersion": "v1", "kind": kind, "metadata": meta, "status": status})
    return made


def _is_label(text: str) -> bool:
    return len(text) < 64 and (not text or text.isalnum())


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write all of them to one file, with a node and a pod of another user."""
    node = {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}}
    good = {"schedulerName": "koord-scheduler", "containers": [{"name": "c"}]}
    objects = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": node},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "good"}, "spec": good},
        *(each for number in range(_SHARES) for each in _hostile(number)),
    ]
    path = tmp_path_factory.mktemp("keys") / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return path


def test_a_pod_beside_all_keys_gets_a_node(manifests: Path) -> None:
    """Errors are reported for the invalid pods only."""
    done = koord("schedule", "-f", manifests, "-o", "json")

    done.check(codes=(0,))
    assert "default/good" in {it["pod"] for it in json.loads(done.output)["placements"]}


@pytest.mark.parametrize("command", [("explain", "pods"), ("quota", "tree"), ("gang", "list")])
def test_questions_beside_all_keys_are_answered(manifests: Path, command: tuple[str, ...]) -> None:
    """With an answer."""
    koord(*command, "-f", manifests).check(codes=(0,))
