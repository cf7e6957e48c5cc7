"""Pods of one owner share the spec that was read for the first: equal to reading each alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation.errors import InputError
from koordinator.simulator.manifests import known_fields
from koordinator.simulator.manifests.input_objects import InputObjects
from koordinator.simulator.manifests.reader import read_input_objects

CONTAINER = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}
SPECS: list[Any] = [
    {"containers": [CONTAINER]},
    {"containers": [CONTAINER], "schedulerName": "koord-scheduler", "priority": 5},
    {"containers": [CONTAINER], "nodeName": "n1"},
    {"containers": [CONTAINER], "tolerations": [{"operator": "Exists"}]},
    {"containers": [CONTAINER], "nodeSelecter": {"a": "b"}},  # no such field
    {"containers": [CONTAINER], "hostNetwork": None},
    {"containers": []},  # a mistake
    None,
]
SOUND = st.fixed_dictionaries(
    {"name": st.sampled_from([f"p{number}" for number in range(20)])},
    optional={
        "namespace": st.sampled_from(["batch", None]),
        "labels": st.sampled_from([{"app": "x"}, None]),
        "uid": st.just("1"),
    },
)
DOUBTFUL = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "c", "d", "not a name", ""])},
    optional={
        "namespace": st.sampled_from(["default", "batch", "", None]),
        "generateName": st.just("job-"),
        "labels": st.sampled_from([{"app": "x"}, {"app": "x y"}, {"app": 1}, None]),
        "annotations": st.just({"a/b": "c"}),
        "lables": st.just({}),
        "creationTimestamp": st.sampled_from(["2026-01-01T00:00:00Z", "yesterday"]),
    },
)
STATUS = st.sampled_from(
    [None, {}, {"phase": "Running"}, {"phase": "Gone"}, {"phase": ""}, {"fase": "Running"}]
)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a pod as JSON; many are of the same spec, a few have mistakes."""
    if draw(st.integers(0, 9)):
        pod: dict[str, Any] = {"metadata": draw(SOUND), "spec": draw(st.sampled_from(SPECS[:4]))}
        return {"apiVersion": "v1", "kind": "Pod"} | pod
    pod = {"metadata": draw(DOUBTFUL), "spec": draw(st.sampled_from(SPECS))}
    if draw(st.booleans()):
        pod["status"] = draw(STATUS)
    if draw(st.integers(0, 5)) == 0:
        pod["more"] = 1
    return {"apiVersion": "v1", "kind": "Pod"} | pod


def read(folder: Path, items: list[dict[str, Any]], *, strict: bool) -> InputObjects | str:
    """Return what a list of objects contains, or the message of its first mistake."""
    path = folder / "list.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    try:
        return read_input_objects([str(path)], strict=strict)
    except InputError as error:
        return str(error)


@given(items=st.lists(pods(), max_size=8), strict=st.booleans())
def test_pods_with_shared_specs_are_those_read_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, items: list[dict[str, Any]], strict: bool
) -> None:
    """Objects, unknown fields and the first mistake are the same."""
    folder = tmp_path_factory.mktemp("pods")

    shared = read(folder, items, strict=strict)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_fields.SharedSpecs, "pod", lambda *_: None)
        alone = read(folder, items, strict=strict)

    assert shared == alone


def test_pods_of_one_owner_share_one_spec(tmp_path: Path) -> None:
    """Metadata and status may differ; an equal spec in another text is not shared."""
    items = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "labels": {"number": str(number)}},
            "spec": SPECS[number % 2],
            "status": {"phase": "Pending", "message": f"the {number}th"},
        }
        for number in range(6)
    ]

    given_objects = read(tmp_path, items, strict=True)

    assert isinstance(given_objects, InputObjects)
    specs: list[Any] = [obj.spec for obj in given_objects.objects]  # type: ignore[attr-defined]
    assert len({id(spec) for spec in specs}) == len(SPECS[:2])
    assert all(spec is specs[number % 2] for number, spec in enumerate(specs))


def test_known_specs_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that all differ do not fill the memory with their texts."""
    monkeypatch.setattr(known_fields, "MOST_SPECS", 2)
    specs = known_fields.SharedSpecs()
    for number in range(5):
        spec = {"containers": [CONTAINER], "priority": number}
        text = json.dumps({"metadata": {"name": "a"}, "spec": spec}).encode()
        parts = specs.parts_of(text, "v1", "Pod")
        path = tmp_path / "pod.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod"} | json.loads(text)))
        (pod,) = read_input_objects([str(path)]).objects
        assert parts is not None
        assert specs.pod(parts) is None
        specs.learn(parts, pod)  # type: ignore[arg-type] # a pod
        assert specs.pod(parts) == pod

    spec = {"containers": [CONTAINER], "priority": 0}
    text = json.dumps({"metadata": {"name": "a"}, "spec": spec}).encode()
    first = specs.parts_of(text, "v1", "Pod")
    assert first is not None
    assert specs.pod(first) is None
