"""Pages on programs and webhooks: their code runs, and prints what they show."""

import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from tests.markdown import code_blocks
from tests.unit.cluster.kubernetes.scripted_server import ScriptedServer, reply
from tests.unit.docs.console import ROOT, assert_shows, blocks
from tests.unit.manager.admission.requests import lookup, pod, request
from typer.testing import CliRunner

from koordinator.api.crd import CustomResource
from koordinator.api.registry import KINDS
from koordinator.cli.main import app
from koordinator.foundation.errors import InvalidError
from koordinator.manager.admission.hooks import AdmissionHook
from koordinator.manager.admission.lookup import Denial

PROGRAMS, WEBHOOKS = (
    (ROOT / f"docs/how-to/{name}.md").read_text("utf-8")
    for name in ("use-from-programs", "extend-the-webhooks")
)
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "%s"}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
users: [{name: test, user: {}}]
"""
METRICS = {
    "kind": "NodeMetricList",
    "apiVersion": "slo.koordinator.sh/v1alpha1",
    "metadata": {"resourceVersion": "1"},
    "items": [
        {"metadata": {"name": "n1"}, "status": {"updateTime": "2026-01-01T00:00:00Z"}},
        {"metadata": {"name": "n2"}},
    ],
}


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go where the examples are."""
    monkeypatch.chdir(ROOT)


def code(page: str) -> list[str]:
    return code_blocks(page, "python")


def test_types_function_and_memory_cluster_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """The page shows the printed patch, and its function works without an API server."""
    types, functions, _, memory, _ = code(PROGRAMS)
    (shown,) = code_blocks(PROGRAMS, "text")
    names: dict[str, Any] = {}
    exec(types, names)  # noqa: S102 -- our own page
    assert capsys.readouterr().out == shown
    exec(functions + memory, names)  # noqa: S102

    assert capsys.readouterr().out == "16\n"


def test_client_of_the_page_reads_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the file of KUBECONFIG; the node that has not reported is printed."""
    _, functions, client, _, _ = code(PROGRAMS)
    with ScriptedServer() as server:
        server.on("GET /apis/slo.koordinator.sh/v1alpha1/nodemetrics", reply(METRICS))
        file = tmp_path / "kubeconfig"
        file.write_text(KUBECONFIG % server.url)
        monkeypatch.setenv("KUBECONFIG", str(file))
        exec(functions + client, {})  # noqa: S102 -- our own page

    assert capsys.readouterr().out == "['n2']\n"


@pytest.mark.slow
def test_script_of_the_page_schedules_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Three pods of the shop, each on a node."""
    exec(code(PROGRAMS)[4], {})  # noqa: S102 -- our own page

    assert len(re.findall(r"^default/shop-\S+ n\d$", capsys.readouterr().out, re.MULTILINE)) == 3


def test_groups_versions_and_plurals_of_the_page_are_those_of_the_kinds() -> None:
    """A client finds each kind by them."""
    rows = re.findall(r"^\| (\w+) \| `([\w.]+/\w+)` \| `(\w+)` \|$", PROGRAMS, re.MULTILINE)
    known = {
        (kind.KIND, kind.API_VERSION, kind.PLURAL)
        for kind in KINDS
        if issubclass(kind, CustomResource)
    }

    assert len(rows) == 8
    assert set(rows) <= known


@pytest.mark.slow
def test_profile_of_the_page_changes_the_pod() -> None:
    """As the page shows."""
    (block,) = blocks("how-to/extend-the-webhooks.md")
    manifests = (ROOT / "examples/profile.yaml").read_text("utf-8")

    assert_shows(block, "extend-the-webhooks")
    assert code_blocks(WEBHOOKS, "yaml")[0] in manifests


@pytest.mark.slow
def test_pod_without_a_required_label_is_rejected() -> None:
    """With the message of the page, while the gate is on."""
    (command,) = re.findall(r"`koord (manager --once --feature[^`]*)`", WEBHOOKS)
    (shown,) = code_blocks(WEBHOOKS, "text")
    rules = code_blocks(WEBHOOKS, "yaml")[1]
    done = CliRunner().invoke(app, command.split())

    assert rules in (ROOT / "examples/required-labels.yaml").read_text("utf-8")
    assert isinstance(done.exception, InvalidError)
    assert f"error: {done.exception}\n" == shown


def test_webhook_of_the_page_labels_a_pod_by_its_author() -> None:
    """Once: a pod that has the label stays as it is, as does that of an author without quota."""
    names: dict[str, Any] = {}
    exec(code(WEBHOOKS)[0], names)  # noqa: S102 -- our own page

    def response(labels: dict[str, str], *groups: str) -> dict[str, Any]:
        admission = {
            "uid": "1",
            "object": {"metadata": {"labels": labels}},
            "userInfo": {"groups": list(groups)},
        }
        answered: dict[str, Any] = names["answer"]({"request": admission})["response"]
        return answered

    changed = response({"app": "a"}, "system:authenticated", "quota:research")
    (operation,) = json.loads(b64decode(changed["patch"]))
    assert operation["value"] == {"app": "a", names["QUOTA"]: "research"}
    assert response(operation["value"], "quota:research") == {"uid": "1", "allowed": True}
    assert "patch" not in response({}, "system:authenticated")
    assert isinstance(names["app"], Starlette)


def test_hook_of_the_page_rejects_batch_pods_of_namespaces_without_owner() -> None:
    """Other pods, and namespaces with an owner, pass."""
    names: dict[str, Any] = {}
    exec(code(WEBHOOKS)[1], names)  # noqa: S102 -- our own page
    hook = names["HOOK"]
    owned = {"example.com/owner": "team"}
    bare, labelled = (
        lookup({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", **more}})
        for more in ({}, {"labels": owned})
    )
    batch = request(pod(labels={"koordinator.sh/qosClass": "BE"}))

    assert isinstance(hook, AdmissionHook)
    assert hook.validate is not None
    with pytest.raises(Denial, match=r"namespace default: label example\.com/owner is required"):
        hook.validate(batch, bare)
    hook.validate(batch, labelled)
    hook.validate(request(pod()), bare)
