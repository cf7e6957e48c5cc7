"""``koord doctor cluster``: each check finds its problem, and names the remedy."""

import datetime as dt
import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.doctor import healthy_cluster as healthy
from tests.unit.cluster.kubernetes.scripted_server import ScriptedServer, fail, reply
from tests.unit.deploy.installed import NAMESPACE
from typer.testing import CliRunner

from koordinator.api.schema import all_crds
from koordinator.cli.main import app
from koordinator.foundation.errors import InputError
from koordinator.process.serving_secret import self_signed

FORBIDDEN = fail(403, "Forbidden", "may not")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        healthy.script(running)
        yield running


@pytest.fixture
def doctor(server: ScriptedServer, tmp_path: Path) -> Callable[..., tuple[int, Any]]:
    """Run the command with more flags; return its exit code and its JSON.

    Hundreds of rights take half a second, so that most tests review one component's.
    """
    file = healthy.kubeconfig(tmp_path / "config", server.url)

    def run(*flags: str, as_component: str = "koordlet") -> tuple[int, Any]:
        arguments = ["doctor", "cluster", "--kubeconfig", file, "-o", "json", *flags]
        arguments += ["--as-component", as_component] if as_component else []
        done = CliRunner().invoke(app, arguments)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, json.loads(done.stdout)

    return run


def problems(report: Any) -> list[tuple[str, str, str]]:
    """Return check, object and problem of each finding."""
    return [(it["check"], it["about"], it["problem"]) for it in report["findings"]]


def test_healthy_installation_has_no_finding(doctor: Callable[..., tuple[int, Any]]) -> None:
    """Every check has run, and the exit code is 0."""
    code, report = doctor(as_component="")

    assert (code, report["healthy"], report["findings"]) == (0, True, [])
    assert [each["name"] for each in report["checks"]] == [
        "components",
        "custom resources",
        "rights",
        "webhooks",
        "leases",
        "node metrics",
        "feature gates",
    ]


def test_checks_send_no_request_that_changes_the_cluster(
    server: ScriptedServer, doctor: Callable[..., tuple[int, Any]]
) -> None:
    """Only reviews are created, and one ElasticQuota by a dry run."""
    doctor(as_component="")

    writes = {str(it): it.query for it in server.received if it.verb != "GET"}
    assert writes.keys() == {healthy.REVIEWS, healthy.DRY_RUN}
    assert writes[healthy.DRY_RUN]["dryRun"] == "All"


def test_denied_rights_are_listed_by_account_and_resource(
    server: ScriptedServer, doctor: Callable[..., tuple[int, Any]]
) -> None:
    """Each right is a review of its own, so a missing verb is named."""
    server.on(healthy.REVIEWS, healthy.allow(("delete", "pods"), ("patch", "pods")))
    code, report = doctor(as_component="")

    assert code == 1
    assert problems(report) == [
        ("rights", f"serviceaccounts/{name}", f"{name} may not delete, patch pods")
        for name in ("koord-descheduler", "koord-scheduler")
    ]
    assert "helm upgrade" in report["findings"][0]["remedy"]


def test_own_rights_need_no_right_to_review_others(
    server: ScriptedServer, doctor: Callable[..., tuple[int, Any]]
) -> None:
    """With --as-component the reviews are about the user of the kubeconfig."""
    server.on(healthy.REVIEWS, FORBIDDEN)
    server.on(healthy.OWN_REVIEWS, healthy.allow(("create", "pods/binding")))
    code, report = doctor(as_component="koord-scheduler")

    assert code == 1
    assert problems(report) == [
        (
            "rights",
            "serviceaccounts/koord-scheduler",
            "this user, as koord-scheduler, may not create pods --subresource=binding",
        )
    ]


def without(name: str) -> Any:
    return [each for each in all_crds() if each["metadata"]["name"] != name]


def changed(name: str, change: Callable[[Any], None]) -> Any:
    crds = deepcopy(all_crds())
    change(next(each for each in crds if each["metadata"]["name"] == name))
    return crds


def drop_update_time(crd: Any) -> None:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["properties"]["updateTime"]


def rename_version(crd: Any) -> None:
    crd["spec"]["versions"][0]["name"] = "v1beta1"


def refuse_names(crd: Any) -> None:
    refused = {"type": "NamesAccepted", "status": "False", "message": "conflict"}
    crd["status"] = {"conditions": [refused]}


METRICS_CRD = "nodemetrics.slo.koordinator.sh"


@pytest.mark.parametrize(
    ("crds", "problem"),
    [
        (without(METRICS_CRD), "is not installed"),
        (
            changed(METRICS_CRD, drop_update_time),
            "v1alpha1 lacks fields, which the API server drops: status.updateTime",
        ),
        (changed(METRICS_CRD, rename_version), "does not serve version v1alpha1"),
        (changed(METRICS_CRD, refuse_names), "is not established: conflict"),
    ],
)
def test_definition_that_differs_is_found(
    server: ScriptedServer, doctor: Callable[..., tuple[int, Any]], crds: Any, problem: str
) -> None:
    """An old definition is worse than none: the API server drops fields in silence."""
    server.on(healthy.CRDS, reply({"metadata": {}, "items": crds}))
    code, report = doctor()

    assert (code, problems(report)) == (1, [("custom resources", METRICS_CRD, problem)])


def test_missing_definition_has_the_command_that_installs_it(
    server: ScriptedServer, doctor: Callable[..., tuple[int, Any]]
) -> None:
    """Users without the right to read definitions see it, since discovery is public."""
    server.on(healthy.CRDS, FORBIDDEN)
    server.on("GET /apis/slo.koordinator.sh/v1alpha1", reply({"resources": [{"name": "nodeslos"}]}))
    code, report = doctor()

    assert code == 1
    (finding,) = report["findings"]
    assert finding["about"] == "nodemetrics.slo.koordinator.sh/v1alpha1"
    assert finding["remedy"] == "koord crds | kubectl apply --server-side -f -"


def expired() -> bytes:
    made = self_signed(("a",), healthy.now_s() - 9e6, dt.timedelta(days=1))
    return made.certificate


@pytest.mark.parametrize(
    ("bundle", "problem"),
    [
        (b"", "clientConfig.caBundle is empty"),
        (b"text", "is no list of PEM certificates"),
        (expired(), "expired at"),
        (self_signed(("a",), healthy.now_s()).certificate, "does not trust the certificate in"),
    ],
)
def test_webhook_that_the_api_server_cannot_trust_is_found(
    server: ScriptedServer,
    doctor: Callable[..., tuple[int, Any]],
    bundle: bytes,
    problem: str,
) -> None:
    """The certificates of caBundle are compared with the one that koord-manager serves."""
    server.on(healthy.MUTATING_ONE, reply(healthy.webhook_configuration("Mutating", bundle)))
    code, report = doctor()

    assert code == 1
    assert any(problem in text for _, _, text in problems(report)), report["findings"]
    assert {check for check, _, _ in problems(report)} == {"webhooks"}


def test_webhook_that_does_not_answer_is_found_by_a_dry_run(
    server: ScriptedServer, doctor: Callable[..., tuple[int, Any]]
) -> None:
    """The API server reports the failed call; the certificates may be fine."""
    text = 'failed calling webhook "melasticquota.koordinator.sh": connection refused'
    server.on(healthy.DRY_RUN, fail(500, "InternalError", text))
    code, report = doctor()

    assert code == 1
    (finding,) = report["findings"]
    assert text in finding["problem"]
    assert "endpointslices" in finding["remedy"]


@pytest.mark.parametrize(
    ("lease", "problem"),
    [
        (healthy.lease("koord-scheduler", 600), "has not renewed its lease"),
        (healthy.lease("koord-scheduler", 5, holder=""), "it has no leader"),
        (None, "does not exist"),
    ],
)
def test_lease_without_an_active_leader_is_found(
    server: ScriptedServer, doctor: Callable[..., tuple[int, Any]], lease: Any, problem: str
) -> None:
    """Expired, released, or never created."""
    answer = fail(404, "NotFound") if lease is None else reply(lease)
    server.on(f"{healthy.LEASES}/koord-scheduler", answer)
    code, report = doctor()

    assert code == 1
    ((check, _, text),) = problems(report)
    assert check == "leases"
    assert problem in text


def test_nodes_without_fresh_metrics_are_counted(
    server: ScriptedServer, doctor: Callable[..., tuple[int, Any]]
) -> None:
    """Missing and stale ones have different remedies."""
    nodes = [{"metadata": {"name": name}} for name in ("n1", "n2", "n3")]
    metrics = [healthy.metric("n1", 30), healthy.metric("n2", 1000)]
    server.on(healthy.NODES, reply({"metadata": {}, "items": nodes}))
    server.on(healthy.METRICS, reply({"metadata": {}, "items": metrics}))
    code, report = doctor()

    assert code == 1
    assert [(about, text[:24]) for _, about, text in problems(report)] == [
        ("n3", "1 node has no NodeMetric"),
        ("n2", "1 node has not reported "),
    ]


def scheduler_with(gates: str) -> Any:
    result = deepcopy(healthy.workload("Deployment", "koord-scheduler", readyReplicas=2))
    (container,) = result["spec"]["template"]["spec"]["containers"]
    container["args"].append(f"--feature-gates={gates}")
    return result


@pytest.mark.parametrize(
    ("gates", "code", "problem"),
    [
        ("GenericWorkload=true", 1, "is on, but the API server serves no podgroups"),
        ("Nonsense=true", 1, "unrecognized feature gate: Nonsense"),
        ("SyncBarrier=true", 0, "has no effect"),
    ],
)
def test_gate_that_cannot_work_is_found(
    server: ScriptedServer,
    doctor: Callable[..., tuple[int, Any]],
    gates: str,
    code: int,
    problem: str,
) -> None:
    """A gate without effect is only a note."""
    server.on(f"{healthy.APPS}/deployments/koord-scheduler", reply(scheduler_with(gates)))
    for version in ("v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"):
        server.on(f"GET /apis/scheduling.k8s.io/{version}", fail(404, "NotFound"))
    exit_code, report = doctor()

    assert exit_code == code
    assert any(problem in text for _, _, text in problems(report)), report["findings"]


@pytest.mark.parametrize(
    "line",
    [
        ["-feature-gates=AuditEvents=true,Nonsense=true"],
        ["--feature-gates", "Nonsense=true", "--v=4"],
        ["--feature-gates=AuditEvents=true", "--feature-gates=Nonsense=true"],
    ],
)
@pytest.mark.parametrize("place", ["command", "args"])
def test_gates_are_read_in_every_form_of_the_flag(
    server: ScriptedServer, doctor: Callable[..., tuple[int, Any]], place: str, line: list[str]
) -> None:
    """The original's manifests have ``-feature-gates=``; a repeated flag adds its gates."""
    ready = {"desiredNumberScheduled": 2, "numberReady": 2}
    agent = deepcopy(healthy.workload("DaemonSet", "koordlet", **ready))
    agent["spec"]["template"]["spec"]["containers"] = [{"name": "koordlet", place: line}]
    server.on(f"{healthy.APPS}/daemonsets/koordlet", reply(agent))
    code, report = doctor()

    assert code == 1
    assert [check for check, _, text in problems(report) if "Nonsense" in text] == ["feature gates"]


def test_missing_replicas_and_old_releases_are_found(
    server: ScriptedServer, doctor: Callable[..., tuple[int, Any]]
) -> None:
    """The check of components reports the two problems."""
    server.on("GET /version", reply({"gitVersion": "v1.20.1"}))
    few = healthy.workload("Deployment", "koord-manager", readyReplicas=1)
    server.on(f"{healthy.APPS}/deployments/koord-manager", reply(few))
    code, report = doctor()

    assert code == 1
    assert [text for _, _, text in problems(report)] == [
        "Kubernetes 1.20 is not supported",
        "1 of 2 pods are ready",
    ]


def test_empty_namespace_is_a_problem_of_its_own(
    doctor: Callable[..., tuple[int, Any]],
) -> None:
    """Checks of components that are not installed are skipped."""
    code, report = doctor("--namespace", "elsewhere")

    assert code == 1
    assert problems(report) == [("components", "namespaces/elsewhere", "no component is installed")]


def test_forbidden_check_is_a_finding(
    server: ScriptedServer, doctor: Callable[..., tuple[int, Any]]
) -> None:
    """A check that could not run does not count as healthy."""
    server.on(healthy.REVIEWS, FORBIDDEN)
    code, report = doctor(as_component="")

    assert code == 1
    (finding,) = report["findings"]
    assert "cannot be checked" in finding["problem"]
    assert "cluster administrator" in finding["remedy"]


def test_unknown_component_is_wrong_input(server: ScriptedServer, tmp_path: Path) -> None:
    """The message lists the components."""
    file = healthy.kubeconfig(tmp_path / "config", server.url)
    flags = ["doctor", "cluster", "--kubeconfig", file, "--as-component", "koord-nothing"]
    done = CliRunner().invoke(app, flags)

    assert isinstance(done.exception, InputError)
    assert "must be one of koord-scheduler" in str(done.exception)


def test_table_shows_each_check_and_its_remedies(server: ScriptedServer, tmp_path: Path) -> None:
    """For people: a line per check, two per finding, and the number of problems."""
    server.on(f"{healthy.LEASES}/koord-scheduler", fail(404, "NotFound"))
    file = healthy.kubeconfig(tmp_path / "config", server.url)
    done = CliRunner().invoke(app, ["doctor", "cluster", "--kubeconfig", file])

    lines = done.stdout.splitlines()
    assert done.exit_code == 1
    assert lines[0].startswith("ok       components        koord-descheduler, koord-manager,")
    assert (
        "         problem: leases/koord-scheduler: does not exist: no replica has ever led" in lines
    )
    assert f"           remedy: kubectl -n {NAMESPACE} logs deployment/koord-scheduler" in lines
    assert lines[-1] == "cluster: 1 problem found"
