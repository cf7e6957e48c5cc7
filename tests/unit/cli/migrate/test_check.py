"""``koord migrate check``: findings about objects, configurations and command lines."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.migrate.invocation import check, check_trees, run

from koordinator.api.schema import all_crds
from koordinator.cli.migrate.documents import Document
from koordinator.cli.migrate.objects import check_object
from koordinator.foundation.errors import InputError

NAMESPACE = "koordinator-system"


def manifest(version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    meta = {"name": name} | fields.pop("metadata", {})
    return {"apiVersion": version, "kind": kind, "metadata": meta, **fields}


def config_map(name: str, data: dict[str, str]) -> dict[str, Any]:
    return manifest("v1", "ConfigMap", name, metadata={"namespace": NAMESPACE}, data=data)


def reservation(name: str, **spec: Any) -> dict[str, Any]:
    owners = [{"labelSelector": {"matchLabels": {"app": "a"}}}]
    containers: list[Any] = []
    template = {"spec": {"containers": containers}}
    fields = {"template": template, "owners": owners, "ttl": "1h"} | spec
    return manifest("scheduling.koordinator.sh/v1alpha1", "Reservation", name, spec=fields)


def workload(kind: str, name: str, *words: str) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "command": [f"/{name}"], "args": list(words)}
    template = {"spec": {"containers": [container]}}
    return manifest("apps/v1", kind, name, spec={"template": template})


def test_custom_resources_that_work_are_counted(tmp_path: Path) -> None:
    """Equal findings are one, with the first object and the number of objects."""
    report = check_trees(tmp_path, reservation("a"), reservation("b"))

    assert report.status == 0
    assert report.summary["same"] == 1
    (finding,) = report.findings
    assert (finding["kind"], finding["object"], finding["count"]) == ("Reservation", "a", 2)


def test_invalid_custom_resource_needs_an_action(tmp_path: Path) -> None:
    """With the field and the problem."""
    report = check_trees(tmp_path, reservation("a", ttl="soon"))

    assert report.status == 1
    assert report.of("spec.ttl")["status"] == "action"


def test_unknown_field_of_a_custom_resource_differs(tmp_path: Path) -> None:
    """The API server would remove it with the CRD of this chart."""
    report = check_trees(tmp_path, reservation("a", colour="red"))

    assert report.status == 0
    assert report.of("spec.colour")["status"] == "differs"


def test_unknown_field_of_a_pod_template_is_kept_by_the_api_server(tmp_path: Path) -> None:
    """The CRD keeps every field of the template, so that nothing is lost."""
    template = {"namespace": "default", "spec": {"containers": []}}
    report = check_trees(tmp_path, reservation("a", template=template))

    finding = report.of("spec.template.namespace")
    assert (finding["status"], finding["message"]) == ("ignored", "no component reads this field")


def test_field_of_an_annotation_that_is_wrong_is_named(tmp_path: Path) -> None:
    """With its path in the JSON of the annotation, and once."""
    key = "node.koordinator.sh/pod-cpu-allocs"
    texts = {key: '[{"namespace": "d", "name": "n", "managedByKubelet": "true"}]'}
    node = manifest("v1", "Node", "n", metadata={"annotations": texts})
    report = check_trees(tmp_path, node)

    finding = report.of(f"metadata.annotations[{key}][0].managedByKubelet")
    assert (finding["status"], finding["message"]) == (
        "action",
        'must be true or false, got "true"',
    )
    quota = manifest(
        *("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", "q"),
        metadata={"annotations": {"quota.scheduling.koordinator.sh/runtime": {"cpu": 4}}},
    )
    assert check_trees(tmp_path, quota).summary["action"] == 1


def test_field_of_an_annotation_in_another_case_needs_an_action(tmp_path: Path) -> None:
    """The original's decoder takes it, and here it has no effect."""
    key = "scheduling.koordinator.sh/resource-spec"
    texts = {key: '{"preferredCPUBindPolicy": "FullPCPUs", "PreferredCpuExclusivePolicy": "None"}'}
    pod = manifest("v1", "Pod", "p", metadata={"annotations": texts}, spec={"containers": []})
    finding = check_trees(tmp_path, pod).of(f"metadata.annotations[{key}]")

    assert finding["status"] == "action"
    assert finding["message"].endswith("because of their case: PreferredCpuExclusivePolicy")


#: Manifests of the kinds that are compared field by field.
COMPARED = (
    workload("Deployment", "koord-scheduler", "--v=4"),
    manifest("v1", "Pod", "p", spec={"containers": [{"name": "a", "command": ["koordlet"]}]}),
    manifest(
        *("v1", "Node", "n"),
        metadata={
            "labels": {"koordinator.sh/x": "y"},
            "annotations": {"koordinator.sh/x": "y", "node.koordinator.sh/reservation": "{}"},
        },
        status={"allocatable": {"kubernetes.io/batch-cpu": "1"}},
    ),
    manifest(
        *("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "w"),
        webhooks=[
            {"name": "a.koordinator.sh", "clientConfig": {"service": {"path": "/mutate-pod"}}}
        ],
    ),
    manifest("scheduling.k8s.io/v1", "PriorityClass", "koord-prod", value=1),
    config_map("slo-controller-config", {"colocation-config": "{}"}),
    config_map("koord-scheduler-config", {"koord-scheduler-config": "kind: X"}),
    config_map("gpu-shared-resource-templates", {"data.yaml": "{}"}),
    reservation("r"),
    {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
     "metadata": {"name": "podmigrationjobs.scheduling.koordinator.sh"},
     "spec": {"group": "scheduling.koordinator.sh", "scope": "Cluster", "versions": [
         {"name": "v1alpha1", "storage": True, "schema": {"openAPIV3Schema": {
             "type": "object", "properties": {"spec": {"items": {"properties": {}}}}}}}]}},
)  # fmt: skip
MALFORMED: tuple[Any, ...] = ("text", 7, True, None, [], ["x"], [[3]], {}, {"a": "b"}, 1.5)


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a tree with each of its keys."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(pairs):
        yield tree, key
        if isinstance(value, dict | list):
            yield from places(value)


@pytest.mark.parametrize("tree", COMPARED, ids=lambda tree: tree["metadata"]["name"])
def test_malformed_manifests_end_no_check(tree: dict[str, Any]) -> None:
    """Examples of documentation and manifests that are half edited get findings, not a failure."""
    changed = json.loads(json.dumps(tree))
    for container, key in places(changed):
        before = container[key]
        for value in MALFORMED:
            container[key] = value
            for finding in check_object(Document("file", changed)):
                assert finding.source == "file"
        container[key] = before


def test_manifest_that_the_api_server_rejects_needs_an_action(tmp_path: Path) -> None:
    """The finding has the path and the type that is wrong there."""
    deployment = workload("Deployment", "koord-scheduler")
    deployment["spec"]["template"]["spec"] = "..."
    finding = check_trees(tmp_path, deployment).of("spec.template.spec")

    assert finding["status"] == "action"
    assert finding["message"] == 'must be an object, got "..."'


def test_labels_and_annotations_of_pods_are_checked(tmp_path: Path) -> None:
    """Known ones carry over, unknown ones are ignored, malformed ones need an action."""
    annotations = {
        "scheduling.koordinator.sh/device-allocated": '{"gpu": [{"minor": 0}]}',
        "scheduling.koordinator.sh/resource-spec": "{",
        "example.com/other": "{",
    }
    labels = {"koordinator.sh/qosClass": "BE", "scheduling.koordinator.sh/no-such-label": "1"}
    pod = manifest("v1", "Pod", "p", metadata={"labels": labels, "annotations": annotations})
    report = check_trees(tmp_path, pod)

    of = {each["field"].partition("[")[2][:-1]: each["status"] for each in report.findings}
    assert of == {
        "koordinator.sh/qosClass": "same",
        "scheduling.koordinator.sh/no-such-label": "ignored",
        "scheduling.koordinator.sh/device-allocated": "same",
        "scheduling.koordinator.sh/resource-spec": "action",
    }


def test_batch_and_device_resources_of_nodes_carry_over(tmp_path: Path) -> None:
    """The names are the same."""
    amounts = {"cpu": "4", "kubernetes.io/batch-cpu": "2000", "koordinator.sh/gpu-core": "100"}
    report = check_trees(tmp_path, manifest("v1", "Node", "n", status={"allocatable": amounts}))

    assert report.of("status.allocatable[kubernetes.io/batch-cpu]")["status"] == "same"
    assert report.of("status.allocatable[koordinator.sh/gpu-core]")["status"] == "same"
    assert report.summary["same"] == 2


def test_own_crds_carry_over(tmp_path: Path) -> None:
    """Every CRD of this chart is covered by itself."""
    report = check_trees(tmp_path, *all_crds())

    assert {each["status"] for each in report.findings} == {"converted"}


def test_crd_with_a_field_that_would_be_lost_differs(tmp_path: Path) -> None:
    """Fields are compared at any depth; the scope and the stored version must agree."""
    crd = next(each for each in all_crds() if each["spec"]["names"]["kind"] == "PodMigrationJob")
    text = json.dumps(crd)
    changed = json.loads(text)
    properties = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"]["properties"]["podRef"]["properties"]["flavour"] = {"type": "string"}
    changed["spec"]["scope"] = "Namespaced"
    report = check_trees(tmp_path, changed)

    assert report.of("spec.podRef.flavour")["status"] == "differs"
    assert report.of("spec.scope")["status"] == "action"


def test_only_the_metadata_of_the_object_itself_is_not_compared(tmp_path: Path) -> None:
    """The API server has that of every object; a field of this name below it may be lost."""
    crd = next(each for each in all_crds() if each["spec"]["names"]["kind"] == "PodMigrationJob")
    changed = json.loads(json.dumps(crd))
    properties = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    inner = {"metadata": {"type": "object", "properties": {"flavour": {"type": "string"}}}}
    properties["metadata"] = inner["metadata"]
    properties["spec"]["properties"] |= inner
    report = check_trees(tmp_path, changed)

    assert report.of("spec.metadata")["status"] == "differs"
    assert "metadata.flavour" not in {each["field"] for each in report.findings}


def test_crd_whose_schema_is_no_mapping_is_checked_as_far_as_it_can_be(tmp_path: Path) -> None:
    """A broken manifest ends no report."""
    crd = next(each for each in all_crds() if each["spec"]["names"]["kind"] == "PodMigrationJob")
    changed = json.loads(json.dumps(crd))
    properties = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"], properties["flavour"] = 3, {"type": "string"}
    report = check_trees(tmp_path, changed)

    assert report.of("flavour")["status"] == "differs"


@pytest.mark.parametrize(
    ("line", "field", "status"),
    [
        ("/koord-scheduler --v=4", "--v", "same"),
        ("koord-scheduler --port=10251", "--port", "same"),
        ("koord-scheduler --authentication-skip-lookup=true", "--authentication-skip-lookup",
         "ignored"),
        ("koord-scheduler --no-such-flag", "--no-such-flag", "action"),
        ("koord-scheduler --port=high", "--port", "action"),
        ("koord-scheduler --feature-gates=NoSuchGate=true", "--feature-gates", "action"),
        ("koord-manager --feature-gates=MultiQuotaTree=true", "--feature-gates", "same"),
        ("koord-manager --feature-gates=", "--feature-gates", "same"),
        ("koord-manager --enable-leader-election", "--enable-leader-election", "same"),
        ("koord-manager --metrics-addr :8080", "--metrics-addr", "differs"),
        ("koord-manager --leaderElection=true", "--leaderElection", "converted"),
        ("koordlet -addr=:9316", "--addr", "differs"),
        ("koordlet -tsdb-path /x -cgroup-root-dir=/host-cgroup/", "--tsdb-path", "ignored"),
        ("koord-descheduler --config=/c", "--config", "same"),
    ],
)  # fmt: skip
def test_flags_are_judged(line: str, field: str, status: str) -> None:
    """By the flags that the command has, ignores or renames, and their values."""
    report = check("--command", line)

    assert report.of(field)["status"] == status
    assert report.status == (status == "action")


def test_containers_of_workloads_are_checked(tmp_path: Path) -> None:
    """Flags and image of the original's programs; other containers are not looked at."""
    agent = workload("DaemonSet", "koordlet", "-addr=:9316", "--logtostderr=true")
    report = check_trees(tmp_path, agent, workload("Deployment", "nginx", "--no-such-flag"))

    assert report.status == 0
    assert report.of("containers[main].--logtostderr")["status"] == "ignored"
    assert report.of("containers[main].image")["status"] == "differs"
    assert {each["object"] for each in report.findings} == {"koordlet"}


def test_pods_of_a_workload_repeat_none_of_its_findings(tmp_path: Path) -> None:
    """A cluster has both; a pod without an owner is checked itself."""
    spec = {"containers": [{"name": "c", "image": "x", "command": ["koordlet", "-addr=:9316"]}]}
    owned = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d"}]}
    alone = manifest("v1", "Pod", "p", spec=spec)
    of_daemon_set = manifest("v1", "Pod", "q", metadata=owned, spec=spec)

    assert check_trees(tmp_path, alone).summary["differs"] == 2
    assert check_trees(tmp_path, of_daemon_set).summary["differs"] == 0


def test_scheduler_configuration_of_a_former_version_is_converted(tmp_path: Path) -> None:
    """In a file or in a ConfigMap, where the field begins with the key."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta2",
        "kind": "KubeSchedulerConfiguration",
        "parallelism": 8,
    }
    report = check_trees(tmp_path, configuration)
    text = yaml.safe_dump(configuration)
    inside = check_trees(tmp_path, config_map("koord-scheduler-config", {"file": text}))

    assert (report.status, inside.status) == (0, 0)
    assert report.of("apiVersion")["status"] == "converted"
    assert report.of("parallelism")["status"] == "ignored"
    assert inside.of("data[file].apiVersion")["object"] == f"{NAMESPACE}/koord-scheduler-config"


@pytest.mark.parametrize(
    ("configuration", "field"),
    [
        ({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
          "profiles": [{"plugins": {"filter": {"enabled": [{"name": "NoSuchPlugin"}]}}}]},
         "profiles[0].plugins.filter.enabled[0].name"),
        ({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
          "profiles": [{"pluginConfig": [{"name": "DeviceShare", "args": {"allocators": "x"}}]}]},
         "profiles[0].pluginConfig[0].args.allocators"),
        ({"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration", "dryRuns": 1},
         "dryRuns"),
    ],
)  # fmt: skip
def test_invalid_configuration_needs_an_action(
    tmp_path: Path, configuration: Any, field: str
) -> None:
    """With the path of the field that the component would reject."""
    report = check_trees(tmp_path, configuration)

    assert report.status == 1
    assert report.of(field)["status"] == "action"


def test_sections_of_slo_controller_config_are_checked(tmp_path: Path) -> None:
    """Section by section: valid, invalid, with an unknown field, unknown."""
    data = {
        "colocation-config": '{"enable": true}',
        "resource-threshold-config": '{"clusterStrategy": {"cpuSuppressThresholdPercent": 200}}',
        "cpu-burst-config": '{"clusterStrategy": {"policyOfNobody": 1}}',
        "no-such-config": "{}",
    }
    report = check_trees(tmp_path, config_map("slo-controller-config", data))

    assert {key: report.of(f"data[{key}]")["status"] for key in data} == {
        "colocation-config": "same",
        "resource-threshold-config": "action",
        "cpu-burst-config": "ignored",
        "no-such-config": "ignored",
    }


def test_case_of_field_names_in_slo_controller_config_does_not_matter(tmp_path: Path) -> None:
    """Go's decoder ignores it, and an example of the original's documentation depends on that."""
    data = {
        "resource-threshold-config": '{"clusterStrategy": {"CPUEvictTimeWindowSeconds": 60}}',
        "cpu-burst-config": '{"clusterstrategy": {"policyOfNobody": 1}}',
    }
    report = check_trees(tmp_path, config_map("slo-controller-config", data))

    assert report.of("data[resource-threshold-config]")["status"] == "same"
    message = report.of("data[cpu-burst-config]")["message"]
    assert message == "fields without effect: clusterStrategy.policyOfNobody"


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("system-config", '{"clusterStrategy": ', "not valid JSON: input data was truncated"),
        ("colocation-config", '{"enable": 3}', "enable: must be true or false or null, got 3"),
        (
            "resource-threshold-config",
            '{"clusterStrategy": {"cpuSuppressThresholdPercent": 200}}',
            (
                "ResourceThresholdCfg.ClusterStrategy.CPUSuppressThresholdPercent: "
                "CPUSuppressThresholdPercent must be 100 or less"
            ),
        ),
    ],
)
def test_message_about_a_section_is_its_cause(
    tmp_path: Path, key: str, text: str, message: str
) -> None:
    """Events of the manager and answers of the webhook keep the form of the original's."""
    report = check_trees(tmp_path, config_map("slo-controller-config", {key: text}))

    assert report.of(f"data[{key}]")["message"] == message


def test_webhooks_and_priority_classes_are_checked(tmp_path: Path) -> None:
    """Paths that the manager serves, and values of the protocol."""
    webhooks = [
        {"name": f"{name}.koordinator.sh", "clientConfig": {"service": {"path": path}}}
        for name, path in (("mpod-create", "/mutate-pod"), ("mother", "/mutate-other"))
    ]
    version = "admissionregistration.k8s.io/v1"
    report = check_trees(
        tmp_path,
        manifest(version, "MutatingWebhookConfiguration", "koordinator", webhooks=webhooks),
        manifest("scheduling.k8s.io/v1", "PriorityClass", "koord-prod", value=9000),
        manifest("scheduling.k8s.io/v1", "PriorityClass", "koord-mid", value=1),
    )

    assert report.of("webhooks[mpod-create.koordinator.sh]")["status"] == "same"
    assert report.of("webhooks[mother.koordinator.sh]")["status"] == "action"
    assert report.of("value")["object"] == "koord-mid"


def test_lists_are_checked_item_by_item(tmp_path: Path) -> None:
    """As ``kubectl get -o yaml`` prints them; items of a typed list have its kind."""
    listed = {"apiVersion": "v1", "kind": "List", "items": [reservation("a")]}
    bare = reservation("b")
    del bare["apiVersion"], bare["kind"]
    version = "scheduling.koordinator.sh/v1alpha1"
    typed = {"apiVersion": version, "kind": "ReservationList", "items": [bare]}

    assert check_trees(tmp_path, listed, typed).findings[0]["count"] == 2


def test_list_without_items_does_not_work_unchanged(tmp_path: Path) -> None:
    """The table reports that nothing was found, which may be the wrong cluster or namespace."""
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": []}))

    assert "nothing of Koordinator was found" in run("check", "-f", str(file)).stdout


def test_table_has_notable_findings_and_a_summary(tmp_path: Path) -> None:
    """``--all`` adds what works unchanged."""
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump_all([reservation("good"), reservation("odd", colour="red")]))
    short = run("check", "-f", str(file)).stdout
    long = run("check", "-f", str(file), "--all").stdout

    assert "0 action, 1 differs, 0 ignored, 0 converted, 1 same" in short
    assert "Reservation odd" in short
    assert "Reservation good" not in short
    assert "Reservation good" in long


@pytest.mark.parametrize(
    "text", ["[1]", "just text", "a: 1", "{", "", "null\n", "USER-SUPPLIED VALUES:\nnull\n"]
)
def test_input_that_is_nothing_of_the_original_is_rejected(tmp_path: Path, text: str) -> None:
    """The error is one of the input: exit status 2."""
    file = tmp_path / "a.yaml"
    file.write_text(text)
    result = run("check", "-f", str(file))

    assert isinstance(result.exception, InputError)
    assert str(file) in str(result.exception)


def test_command_line_of_another_program_is_rejected() -> None:
    """The message lists the programs."""
    result = run("check", "--command", "kubectl get")

    assert isinstance(result.exception, InputError)
    assert "koord-scheduler" in str(result.exception)
