"""Users may give files, folders and streams, in YAML and JSON."""

import io
import json
from pathlib import Path

import pytest

from koordinator.api.codec import to_manifest
from koordinator.api.meta import KubeObject
from koordinator.foundation.errors import InputError
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.simulator.manifests.reader import read_manifests


def node(name: str) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


def read(text: str) -> list[KubeObject]:
    return read_manifests(["-"], io.BytesIO(text.encode()))


def names(objects: list[KubeObject]) -> list[str]:
    return [obj.metadata.name for obj in objects]


def test_files_folders_and_standard_input_are_read_in_order(tmp_path: Path) -> None:
    """Folders are read at any depth, in the order of names, and only manifests in them."""
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "one.json").write_text(node("one"))
    (tmp_path / "folder" / "b.yaml").write_text(node("b"))
    (tmp_path / "folder" / "a.yml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n")
    (tmp_path / "folder" / "deep" / "c.json").write_text(node("c"))
    (tmp_path / "folder" / "notes.txt").write_text("not a manifest")

    objects = read_manifests(
        [str(tmp_path / "one.json"), str(tmp_path / "folder"), "-"],
        io.BytesIO(node("last").encode()),
    )

    assert names(objects) == ["one", "a", "b", "c", "last"]


@pytest.mark.parametrize(
    "text",
    [
        f'{{"apiVersion":"v1","kind":"List","items":[{node("a")},{node("b")}]}}',
        '{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}',
        f"kind: List\nitems:\n- {node('a')}\n- {node('b')}\n",
        "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n",
        f"---\n{node('a')}\n---\n# nothing\n---\n{node('b')}\n",
        f"{node('a')}\n{node('b')}\n",  # as jq -c prints them
        f'{{"kind":"List","items":[{node("a")}]}}\n\n{json.dumps(json.loads(node("b")), indent=2)}',
    ],
)
def test_lists_and_streams_are_flattened(text: str) -> None:
    """Items of a typed list need no kind of their own; empty documents are skipped."""
    assert names(read(text)) == ["a", "b"]


def test_lists_in_lists_are_flattened() -> None:
    """As kubectl does; the items of a typed list take its kind."""
    meta = [{"metadata": {"name": name}, "status": {}} for name in "abcd"]
    one = {"apiVersion": "v1", "kind": "Node"}
    typed = {"apiVersion": "v1", "kind": "NodeList", "items": [meta[1]]}
    inner = {"apiVersion": "v1", "kind": "List", "items": [{**one, **meta[0]}, typed]}
    empty = {"apiVersion": "v1", "kind": "List", "items": None}
    tree = {"apiVersion": "v1", "kind": "List", "items": [inner, empty, {**one, **meta[2]}]}

    assert names(read(json.dumps(tree))) == ["a", "b", "c"]
    assert names(read(f"# YAML\n{json.dumps(tree)}")) == ["a", "b", "c"]
    wrong = {"kind": "List", "apiVersion": "v1", "items": [{**empty, "items": {"a": 1}}]}
    with pytest.raises(InputError, match=r"items\[0\]: items: must be a list, got an object"):
        read(json.dumps(wrong))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])
@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_files_may_have_a_byte_order_mark(tmp_path: Path, name: str, encoding: str) -> None:
    """Editors and shells of Windows write it."""
    file = tmp_path / name
    file.write_bytes('{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}'.encode(encoding))

    assert names(read_manifests([str(file)])) == ["a"]


def test_notes_of_a_chart_are_named(tmp_path: Path) -> None:
    """The notes of a chart are recognized even if their text is valid YAML."""
    file = tmp_path / "NOTES.txt"
    file.write_text("1. Get the URL by running these commands:\n  kubectl get pods\n", "utf-8")

    with pytest.raises(InputError, match="NOTES of a Helm chart"):
        read_manifests([str(file)])


def test_json_files_may_hold_several_objects_as_well(tmp_path: Path) -> None:
    """A mistake in one of them is placed; a truncated one is not read at all."""
    file = tmp_path / "two.json"
    file.write_text(node("a") + node("b"))
    assert names(read_manifests([str(file)])) == ["a", "b"]
    file.write_text(node("a") + node("b")[:-9])
    with pytest.raises(InputError, match=r"two\.json: not a JSON manifest"):
        read_manifests([str(file)])
    file.write_text(node("a") + '{"kind": "Node", "kind": "Node"}')
    with pytest.raises(
        InputError, match=r"two\.json: document 2: kind: key must be given only once"
    ):
        read_manifests([str(file)])
    file.write_text(node("a") + node("B"))
    with pytest.raises(InputError, match=r"two\.json: document 2: Node B: metadata\.name"):
        read_manifests([str(file)])


def test_objects_come_with_their_defaults() -> None:
    """The objects equal those that the API server would store."""
    (pod,) = read("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}")

    assert pod.key == "default/a"
    assert to_manifest(pod)["status"] == {"phase": "Pending"}


def test_yaml_scalars_are_read_as_kubernetes_reads_them() -> None:
    """No dates and no base 60; yes is true; keys are text; exponents are numbers."""
    (obj,) = read(
        "apiVersion: v1\nkind: Node\n"
        "metadata: {name: a, annotations: {8: '1', time: 12:30:45, day: 2024-01-31}}\n"
        "spec: {unschedulable: yes}\n"
        "status: {capacity: {cpu: 1e3, memory: 0x10}}\n"
    )

    manifest = to_manifest(obj)
    assert manifest["metadata"]["annotations"] == {
        "8": "1",
        "time": "12:30:45",
        "day": "2024-01-31",
    }
    assert manifest["spec"] == {"unschedulable": True}
    assert manifest["status"]["capacity"] == {"cpu": "1000.0", "memory": "16"}


def test_an_object_may_be_there_twice_if_it_is_the_same(tmp_path: Path) -> None:
    """Charts and folders overlap; of two that differ both places are named."""
    first, second = tmp_path / "first.json", tmp_path / "second.yaml"
    first.write_text(f'{{"kind":"List","items":[{node("a")},{node("b")}]}}')
    second.write_text(f"---\n{node('c')}\n---\n{node('b')}\n")
    assert names(read_manifests([str(first), str(second)])) == ["a", "b", "c"]

    second.write_text(f"---\n{node('c')}\n---\n{node('b')[:-1]}, spec: {{unschedulable: true}}}}\n")
    with pytest.raises(InputError) as refused:
        read_manifests([str(first), str(second)])

    assert str(refused.value) == (
        f"{second}: document 2: Node b: differs from the object of that name in {first}: "
        "items[1]; each object must be given once"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "standard input: not valid YAML"),
        ("a: &a [*a]", "standard input: not usable YAML"),
        (
            "- 1",
            "standard input: document 1: must be an object with apiVersion and kind, got a list",
        ),
        (
            "kind: List\nitems: [1]",
            "standard input: document 1: items[0]: must be an object with apiVersion and kind",
        ),
        (
            "kind: List\nitems: [null]",
            (
                "standard input: document 1: items[0]: must be an object with apiVersion and kind, "
                "got null"
            ),
        ),
        ('{"a"', "standard input: not valid YAML"),
        ('{"kind":"List","items":[{}]}', "standard input: items[0]: object: apiVersion and"),
        (
            (
                f"{node('a')}\n---\napiVersion: v1\nkind: Node\n"
                "metadata: {name: b, labels: {x: 1}}"
            ),
            "standard input: document 2: Node b: metadata.labels.x: must be a string, got 1",
        ),
        (
            '{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"A"}}]}',
            "standard input: items[0]: Node A: metadata.name: must be",
        ),
    ],
)
def test_a_mistake_is_placed(text: str, message: str) -> None:
    """File, document or item, object and field."""
    with pytest.raises(InputError) as refused:
        read(text)

    assert str(refused.value).startswith(message)


def test_a_missing_file_and_an_empty_folder_are_mistakes(tmp_path: Path) -> None:
    """Silence would look like success."""
    with pytest.raises(InputError, match="No such file"):
        read_manifests([str(tmp_path / "no.yaml")], io.BytesIO())
    with pytest.raises(InputError, match="has no manifests"):
        read_manifests([str(tmp_path)], io.BytesIO())


def test_what_has_a_generate_name_only_gets_a_name() -> None:
    """As ``kubectl create`` would; each another one, and the same in every run."""
    job = """
apiVersion: batch/v1
kind: Job
metadata: {generateName: migrate-}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c}]}}}
"""

    first, second = names(read(f"{job}---{job}")), names(read(f"{job}---{job}"))

    assert first == second
    assert len(set(first)) == 4  # two jobs and a pod of each
    assert all(name.startswith("migrate-") for name in first)


@pytest.mark.parametrize("text", ["a:\n\tb: 1\n", "kind: Pod\nmetadata:\n\tname: a\n"])
def test_messages_name_no_objects_of_python(text: str) -> None:
    """A tab is named, and errors of the library give the line only."""
    with pytest.raises(InputError, match="must be indented with spaces, got a tab in line") as tab:
        yaml_document(text, "x.yaml")
    with pytest.raises(InputError, match="undefined alias in line 1") as alias:
        yaml_document("a: *b", "x.yaml")
    assert "string>" not in f"{tab.value}{alias.value}"
