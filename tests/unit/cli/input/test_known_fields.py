"""Misspelt fields and kinds of manifests are reported or rejected; right ones are accepted."""

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from koordinator.api.registry import KINDS
from koordinator.cli.main import app
from koordinator.foundation.errors import InputError
from koordinator.simulator.manifests.input_objects import InputObjects
from koordinator.simulator.manifests.known_fields import unknown_fields
from koordinator.simulator.manifests.reader import read_input_objects

ROOT = Path(__file__).parents[4]
CONTAINER = {"name": "c", "image": "i"}


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [CONTAINER]} | spec,
    }


def read(*manifests: Any, strict: bool = False) -> InputObjects:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    return read_input_objects(["-"], io.BytesIO(text.encode()), strict=strict)


@pytest.mark.parametrize(
    ("manifest", "path", "hint"),
    [
        (
            pod(containers=[CONTAINER, {"name": "d", "resorces": {}}]),
            "spec.containers[1].resorces",
            '; did you mean "resources"?',
        ),
        (pod(nodeselector={}), "spec.nodeselector", '; did you mean "nodeSelector"?'),
        (pod(zzz=1), "spec.zzz", ""),
        (pod() | {"sepc": {}}, "sepc", '; did you mean "spec"?'),
        (
            pod() | {"metadata": {"name": "p", "anotations": {}}},
            "metadata.anotations",
            '; did you mean "annotations"?',
        ),
        (
            {
                "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": "g"},
                "spec": {"minmember": 2},
            },
            "spec.minmember",
            '; did you mean "minMember"?',
        ),
        (
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Reservation",
                "metadata": {"name": "r"},
                "spec": {
                    "owners": [{"object": {"name": "p"}}],
                    "template": {"spec": {"containers": [CONTAINER], "tolerationz": []}},
                },
            },
            "spec.template.spec.tolerationz",
            '; did you mean "tolerations"?',
        ),
    ],
)
def test_a_misspelt_field_is_reported_and_rejected_in_strict_mode(
    manifest: dict[str, Any], path: str, hint: str
) -> None:
    """The path leads there; what was meant is guessed."""
    (notice,) = read(manifest).notices()
    assert f": {path}: unknown field{hint}" in notice

    with pytest.raises(InputError) as refused:
        read(manifest, strict=True)
    assert f": {path}: unknown field{hint}" in str(refused.value)


def test_the_same_mistake_in_many_objects_is_reported_once() -> None:
    """With how often it is there."""
    many = [pod(resorces={}) | {"metadata": {"name": f"p{number}"}} for number in range(50)]

    (notice,) = read(*many).notices()

    assert notice.endswith("; so in 50 places")


def test_unknown_fields_of_yaml_are_those_of_json() -> None:
    """YAML and JSON get the same notices."""
    text = yaml.safe_dump(pod(tolerations=None, resorces={}))

    (notice,) = read_input_objects(["-"], io.BytesIO(text.encode())).notices()

    assert "Pod default/p: spec.resorces: unknown field" in notice


def test_what_a_cluster_gives_out_is_right() -> None:
    """Fields that our types do not read, and nulls, are not reported."""
    given = pod(
        dnsPolicy="ClusterFirst",
        enableServiceLinks=True,
        securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        tolerations=None,
        volumes=[{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        containers=[
            CONTAINER | {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}
        ],
    )
    given["metadata"] |= {
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:anything": {}}}}],
        "selfLink": "/api/v1/p",
    }

    assert read(given, strict=True).notices() == []


@pytest.mark.parametrize("path", ["deploy", "examples", "charts/koordinator/crds"])
def test_the_manifests_of_this_project_are_right(path: str) -> None:
    """Every field of every document."""
    for file in sorted((ROOT / path).glob("*.yaml")):
        for document in yaml.load_all(file.read_bytes(), yaml.CSafeLoader):
            if document and "kind" in document:
                result = unknown_fields(document, document["apiVersion"], document["kind"])
                assert not result, file


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.KIND)
def test_types_have_only_fields_of_kubernetes(kind: Any) -> None:
    """Every written object can be read back strictly; reviews are only sent."""
    fields = {field.encode_name for field in msgspec.structs.fields(kind)}
    manifest = {"apiVersion": kind.API_VERSION, "kind": kind.KIND} | dict.fromkeys(fields)

    assert unknown_fields(manifest, kind.API_VERSION, kind.KIND) == []


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_unknown_fields_are_searched_in_any_shape(tree: Any) -> None:
    """Of what has the wrong type only the decoder speaks; both ways see the same."""
    manifest = pod(containers=tree, volumes=tree)

    from_tree = unknown_fields(manifest, "v1", "Pod")

    assert unknown_fields(msgspec.json.encode(manifest), "v1", "Pod") == from_tree


def test_kinds_that_do_not_matter_are_counted_in_one_line_each() -> None:
    """Kubernetes' own and custom ones; only their fields are checked."""
    given = read(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "b"}},
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "a"}},
        {"apiVersion": "monitoring.example/v1", "kind": "Rule", "metadata": {"name": "a"}},
        {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot"},
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": {"name": "a"}},
        {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"},
    )

    assert given.objects == []
    assert given.notices() == [
        (
            "left out, because no scheduling depends on them: 1 Ingress (networking.k8s.io/v1), "
            "2 ServiceAccount (v1)"
        ),
        (
            "left out, because their kinds are not known: 1 AppProject (argoproj.io/v1alpha1), "
            "1 PodGroup (scheduling.x-k8s.io/v1alpha1), 1 Rule (monitoring.example/v1), "
            "1 VolumeSnapshot (snapshot.storage.k8s.io/v1)"
        ),
    ]


def test_kinds_used_at_admission_are_not_reported_as_unused() -> None:
    """Overhead, default requests and quotas of a namespace are an API server's to apply."""
    given = read(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "a"}},
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "gvisor"},
            "handler": "runsc",
            "overhead": {"podFixed": {"cpu": "1"}},
        },
    )

    assert given.notices() == [
        "left out, because no scheduling depends on them: 1 ServiceAccount (v1)",
        (
            "left out: 1 LimitRange (v1), 1 RuntimeClass (node.k8s.io/v1): an API server may "
            "change or refuse new pods by them; here pods count as they are written"
        ),
    ]


@pytest.mark.parametrize(
    ("api_version", "kind", "problem"),
    [
        ("apps/v1", "Deploymnet", 'unknown kind Deploymnet of apps/v1; did you mean "Deployment"?'),
        ("v1", "Foo", "unknown kind Foo of v1"),
        ("scheduling.sigs.k8s.io/v1alpha1", "PodGruop", '; did you mean "PodGroup"?'),
        ("extensions/v1beta1", "Deployment", "must be apps/v1 for kind Deployment"),
        ("policy/v1beta1", "PodDisruptionBudget", "must be policy/v1"),
    ],
)
def test_a_misspelt_kind_is_no_kind_that_does_not_matter(
    api_version: str, kind: str, problem: str
) -> None:
    """A misspelt kind is an error, and so is a version that no longer exists."""
    with pytest.raises(InputError) as refused:
        read({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}})

    assert problem in str(refused.value)


def test_strict_is_a_flag() -> None:
    """Exit code 2, as for any wrong input."""
    text = json.dumps(pod(resorces={}))
    done = CliRunner().invoke(app, ["schedule", "-f", "-"], input=text)
    refused = CliRunner().invoke(app, ["schedule", "-f", "-", "--strict"], input=text)

    assert done.exit_code == 0
    assert 'did you mean "resources"?' in done.stderr
    assert isinstance(refused.exception, InputError)


def test_a_missing_priority_class_is_reported_and_not_fatal() -> None:
    """Koordinator's own is taken as installed; any other counts as none."""
    manifests = [
        pod(priorityClassName=name) | {"metadata": {"name": name}}
        for name in ("koord-prod", "mine", "system-node-critical")
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})

    done = CliRunner().invoke(app, ["scheduler", "--once", "-f", "-"], input=text)

    assert done.exit_code == 0
    assert "no PriorityClass 'koord-prod', which 1 pod (default/koord-prod) names: taken as" in (
        done.stderr
    )
    assert "'mine', which 1 pod (default/mine) names: counted with priority 0" in done.stderr
    assert "system-node-critical" not in done.stderr


@pytest.mark.parametrize("command", [["schedule"], ["explain", "pods"], ["simulate"]])
def test_a_missing_runtime_class_is_reported_with_a_remedy(
    command: list[str], tmp_path: Path
) -> None:
    """Once for each class; a class of the manifests, and a pod of a cluster, need no notice."""
    pods = [
        pod(runtimeClassName=name) | {"metadata": {"name": f"p-{name}", **meta}}
        for name, meta in (("kata", {}), ("gvisor", {}), ("runc", {"uid": "stored"}))
    ]
    known = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "gvisor"},
        "handler": "gvisor",
    }
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [known, *pods]}))

    flag = "-w" if command == ["simulate"] else "-f"
    done = CliRunner().invoke(app, [*command, flag, str(path)])

    text = " ".join(done.stderr.split())
    assert text.count("there is no RuntimeClass") == 1
    assert "there is no RuntimeClass 'kata', which 1 pod (default/p-kata) names" in text
    assert "Add the RuntimeClass, or remove runtimeClassName" in text
