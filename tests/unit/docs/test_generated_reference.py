"""Reference pages that are generated from declarations: complete, and whole as Markdown."""

import importlib
import pkgutil
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pytest
from docs.generate.__main__ import pages, write_pages
from docs.generate.dated import SINCE, deprecation
from docs.generate.declarations import PACKAGE
from docs.generate.metrics import declared_metrics
from docs.generate.structs import struct_fields
from docs.generate.users import FIELDS, IN_MEMORY, users_of
from msgspec import Struct, field

from koordinator import api
from koordinator.api import labels
from koordinator.api.annotations import devices, numa, pod_qos, reservation
from koordinator.api.annotations.numa import NumaTopologyPolicy
from koordinator.api.crd import CustomResource
from koordinator.api.kubescheduler.gates import OF_KOORDINATOR
from koordinator.api.node_slo import ResourceThresholdStrategy
from koordinator.api.registry import KINDS
from koordinator.cli.commands import COMMANDS
from koordinator.cli.koordlet.flags import MODE
from koordinator.cli.main import TRACEBACK
from koordinator.descheduler.profile import DESCHEDULER_PLUGINS
from koordinator.domain.devices.vendor import Vendor
from koordinator.foundation.clock import Duration
from koordinator.manager.admission.hooks import HookOptions, all_hooks
from koordinator.scheduler.profile import builtin_plugins

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
#: Series that every process has in Prometheus.
_OF_RUNTIMES = frozenset({"process_cpu_seconds_total", "process_resident_memory_bytes"})


@pytest.fixture(scope="module")
def reference() -> Mapping[str, str]:
    """Every generated page by path."""
    return pages()


def test_every_row_of_a_table_has_the_cells_of_its_head(reference: Mapping[str, str]) -> None:
    """A stray bar in a default or a help text would shift the columns."""
    for path, text in reference.items():
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            cells = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            assert len(cells) == 1, f"{path}: {block[:200]}"


def test_every_row_has_a_meaning(reference: Mapping[str, str]) -> None:
    """A field, key, metric or gate without an explanation is of no use in a reference."""
    unexplained = [
        f"{path}: {row}"
        for path, text in reference.items()
        for head, *rows in (
            block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
        )
        for row in rows[1:]
        if "meaning" in _cells(head) and not _cells(row)[_cells(head).index("meaning")]
    ]
    assert not unexplained


def test_a_meaning_is_more_than_a_kind_of_object(reference: Mapping[str, str]) -> None:
    """The meaning of a key describes its value, such as "order of eviction", not "of pods"."""
    for name in ("labels.md", "annotations.md"):
        keys = reference[name].partition("\n## ")[0]
        for row in map(_cells, re.findall(r"^\| `.*", keys, re.MULTILINE)):
            assert not re.fullmatch(r"o[fn] [\w ]+|\W*|an? \w+|former key.*", row[2]) or row[-1], (
                row
            )


def test_every_variable_that_the_source_reads_is_on_its_page(reference: Mapping[str, str]) -> None:
    """Variables without a flag are documented as well."""
    read = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r'environ(?:\.get\(|\[)"(\w+)"', path.read_text("utf-8"))
    }

    assert {"KUBECONFIG", "NO_PROXY"} <= read
    for name in (*read, MODE, TRACEBACK, "HTTPS_PROXY"):
        assert f"`{name}`" in reference["environment-variables.md"], name


def test_every_declaration_is_on_its_page(reference: Mapping[str, str]) -> None:
    """Kinds, plugins, gates and commands come from the lists that the programs use."""
    for kind in KINDS:
        if issubclass(kind, CustomResource):
            assert kind.API_VERSION in reference[f"resources/{kind.KIND.lower()}.md"]
    for spec in builtin_plugins():
        assert f"\n## {spec.name}\n" in reference["scheduler-plugins.md"]
    for plugin in DESCHEDULER_PLUGINS:
        assert f"\n## {plugin.name}\n" in reference["descheduler-plugins.md"]
    for gate in OF_KOORDINATOR:
        assert f"`{gate}`" in reference["feature-gates.md"]
    assert {f"commands/{name}.md" for name in COMMANDS} <= reference.keys()
    assert f"`{labels.POD_QOS_CLASS}`" in reference["labels.md"]
    assert f"`{pod_qos.CPU_BURST.key}`" in reference["annotations.md"]
    assert f"`{devices.HUAWEI_PREDICATE_TIME}`" in reference["annotations.md"]


def test_every_flag_of_a_command_is_on_its_page(reference: Mapping[str, str]) -> None:
    """Flags of subcommands, too; hidden ones are left out."""
    for name, source in COMMANDS.items():
        command = source.load()
        for each in (command, *getattr(command, "commands", {}).values()):
            for parameter in each.params:
                if parameter.param_type_name == "option" and not parameter.hidden:
                    assert parameter.opts[0] in reference[f"commands/{name}.md"], name


def test_every_name_has_its_release_recorded(reference: Mapping[str, str]) -> None:
    """``make since`` records new names; with ``UPSTREAM`` also names of Koordinator."""
    assert reference
    assert not SINCE.missing(), "run make since"
    assert not SINCE.unused(), "run make since"


def test_every_deprecated_name_has_a_replacement_in_the_reference(
    reference: Mapping[str, str],
) -> None:
    """Comments that do not have the form of a deprecation would be shown as a meaning."""
    whole = "\n".join(reference.values())
    replaced = {}
    for head, *rows in (
        block.splitlines()
        for text in reference.values()
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    ):
        names = _cells(head)
        for row in map(_cells, rows[1:]):
            if "meaning" in names:
                assert "deprecated" not in row[names.index("meaning")].lower(), row
            if "deprecated by" in names and row[-1]:
                replaced[row[0]] = row[-1]
    for name, replacement in replaced.items():
        assert f"| {replacement} |" in whole, f"{name}: {replacement}"
    assert replaced["`scheduling.koordinator.sh/scheduling-hint`"] == (
        "`internal.scheduling.koordinator.sh/scheduling-hint`"
    )
    assert replaced["`kubernetes.io/gpu-core`"] == "`koordinator.sh/gpu-core`"
    assert replaced["`kubescheduler.config.k8s.io/v1beta2`"] == "`kubescheduler.config.k8s.io/v1`"
    assert replaced["`evictLocalStoragePods`"] == "`podProtections`"


def test_a_deprecation_names_the_replacement_first() -> None:
    """Other comments are meanings."""
    assert deprecation("deprecated: use x.y; old form") == ("old form", "x.y")
    assert deprecation("Deprecated: use x; old.") == ("old.", "x")
    assert deprecation("use x; old") == ("use x; old", "")


class Inner(Struct, rename="camel", kw_only=True):
    """Struct within the struct of the test."""

    max_count: int = 3  # of pods


class Outer(Struct, rename="camel", kw_only=True):
    """Struct with a field of each sort."""

    name: str
    #: until the next run
    wait_for: Duration = Duration(minutes=5)
    inner_parts: tuple[Inner, ...] = ()
    by_node: dict[str, Inner] = field(default_factory=dict)
    note: str | None = None


def test_struct_is_shown_by_path_type_default_and_comment() -> None:
    """Lists add ``[]`` to a path, maps the word ``<key>``."""
    rows = [(each.path, each.type, each.default) for each in struct_fields(Outer)]

    assert rows == [
        ("name", "string", None),
        ("waitFor", "duration", "5m0s"),
        ("innerParts", "list of object", "[]"),
        ("innerParts[].maxCount", "integer", "3"),
        ("byNode", "map of object", "{}"),
        ("byNode.<key>.maxCount", "integer", "3"),
        ("note", "string", "unset"),
    ]


def test_bounds_are_beside_the_type() -> None:
    """Bounds of 32 bits, which every integer has, are left out."""
    rows = {each.path: each for each in struct_fields(ResourceThresholdStrategy)}

    suppress = rows["cpuSuppressThresholdPercent"]
    assert (suppress.type, suppress.accepted) == ("integer", "0 to 100")
    assert rows["cpuSuppressPolicy"].accepted == "`cpuset` or `cfsQuota`"
    assert rows["evictEnabledPriorityThreshold"].accepted == ""
    assert "must be more than `cpuEvictLowerPercent`" in rows["cpuEvictThresholdPercent"].text


def test_defaults_are_those_in_effect(reference: Mapping[str, str]) -> None:
    """An unset field of a NodeSLO has the value that the node agent uses."""
    in_effect = ResourceThresholdStrategy(cpu_suppress_threshold_percent=12)
    rows = {each.path: each for each in struct_fields(ResourceThresholdStrategy, in_effect)}

    assert rows["cpuSuppressThresholdPercent"].default == "12"
    assert rows["cpuEvictThresholdPercent"].default == "unset"
    path = "`spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent`"
    assert f"{path} | integer, 0 to 100 | `65` |" in reference["resources/nodeslo.md"]


def test_default_of_a_field_within_a_struct_is_that_of_the_struct(
    reference: Mapping[str, str],
) -> None:
    """NodeResourcesFit scores by LeastAllocated unless it is configured."""
    pages = reference["scheduler-plugins.md"]
    fit = pages.split("\n## NodeResourcesFit\n")[1].split("\n## ")[0]

    (row,) = (line for line in fit.splitlines() if line.startswith("| `scoringStrategy.type` "))
    assert _cells(row)[2] == "`LeastAllocated`"
    assert "`[{name: cpu, weight: 1}, {name: memory, weight: 1}]`" in fit
    assert "Extension points: `filter`, `placementScore`, `preScore`, `score`." in fit


def test_readers_and_writers_of_a_key_are_components() -> None:
    """A use in a shared module counts for the components that import what contains it."""
    own = users_of(labels.__name__, "EVICTION_ENABLED")
    shared = users_of(labels.__name__, "POD_QOS_CLASS")

    assert (own.readers, own.writers) == ({"koordlet"}, set())
    assert shared.readers == {"koord-descheduler", "koord-manager", "koord-scheduler", "koordlet"}
    assert shared.writers == {"koord-manager"}


def test_what_vendors_of_devices_have_written_counts_for_the_scheduler() -> None:
    """Only the scheduler adapts allocations to device plugins; others read vendors' amounts."""
    for name in ("CAMBRICON_PROFILE", "HUAWEI_NPU_CORE", "METAX_ALLOCATED", "HAMI_LOCK"):
        users = users_of(devices.__name__, name)
        assert users.writers == {"koord-scheduler"}, name
        assert users.readers <= {"koord-manager"}, name  # takes them off new pods
    for field_name in FIELDS:
        assert hasattr(Vendor, field_name)


def test_keys_that_a_table_lists_are_written_where_a_map_is_made_of_it() -> None:
    """The manager copies the labels of a Device to the node; the agent writes partitions."""
    assert users_of(labels.__name__, "GPU_MODEL").writers == {"koord-manager", "koordlet"}
    assert users_of(devices.__name__, "GPU_PARTITIONS").writers == {"koordlet"}
    assert users_of(labels.__name__, "QUOTA_ALLOW_FORCE_UPDATE").writers == set()


def test_an_object_that_stays_in_memory_is_not_written() -> None:
    """The scheduler decodes a topology from an object of its own; koordlet writes it."""
    assert users_of(numa.__name__, "CPU_TOPOLOGY").writers == {"koordlet"}
    assert users_of(labels.__name__, "LIGHTWEIGHT_MIN_AVAILABLE").writers == set()
    assert users_of(reservation.__name__, "AFFINITY").writers == set()
    for definition in IN_MEMORY:
        module, name = definition.rsplit(".", 1)
        assert hasattr(importlib.import_module(f"koordinator.{module}"), name)


def test_waivers_of_linters_are_no_meaning(reference: Mapping[str, str]) -> None:
    """A comment may have both, and a field with a waiver alone has no meaning."""
    assert not any("noqa" in text or "type: ignore" in text for text in reference.values())


def test_every_webhook_has_its_gate_and_failure_policy(reference: Mapping[str, str]) -> None:
    """With the defaults of the manager and of the chart."""
    rows = {row[0]: row for row in map(_cells, reference["webhooks.md"].splitlines()) if row}

    for hook in all_hooks(HookOptions(gates=frozenset())):
        assert rows[f"`{hook.path}`"]
    binding = rows["`/validate-pod-binding`"]
    assert binding[1:3] == ["validating", "`pods/binding`"]
    assert binding[-2:] == ["`BindingAdmissionWebhook` (off)", "`bindings` (Ignore)"]


def test_rights_of_each_component_are_listed(reference: Mapping[str, str]) -> None:
    """As the manifests without Helm have them."""
    agent = reference["rights.md"].split("\n## ClusterRole koordlet\n")[1].split("\n## ")[0]

    assert "`nodemetrics`, `nodeslos` | get, list, watch |" in agent
    assert "`secrets`" not in agent


def test_a_meaning_lists_the_values_of_an_enumeration(reference: Mapping[str, str]) -> None:
    """A reader of the page does not know the names of classes."""
    (row,) = (
        line for line in reference["labels.md"].splitlines() if "numa-topology-policy" in line
    )
    assert all(f"`{policy}`" in row for policy in NumaTopologyPolicy if policy)
    whole = "\n".join(reference.values())
    for module in pkgutil.walk_packages(api.__path__, f"{api.__name__}."):
        for name, each in vars(importlib.import_module(module.name)).items():
            if isinstance(each, type) and issubclass(each, StrEnum):
                assert not re.search(rf"\ban? {name}\b", whole), name


def test_readers_and_writers_of_a_kind_are_those_with_the_right(
    reference: Mapping[str, str],
) -> None:
    """koord-manager writes what the agent is to measure, the agent what it has measured."""
    page = reference["resources/nodemetric.md"]

    assert "\n| written by | koord-manager |\n| status written by | koordlet |\n" in page
    assert "\n| read by | no component, with the " in reference["resources/queue.md"]


def test_objects_in_lists_and_maps_of_an_annotation_have_their_fields(
    reference: Mapping[str, str],
) -> None:
    """As those that an annotation holds alone."""
    whole = reference["annotations.md"]
    hints = whole.split("\n### `scheduling.koordinator.sh/device-allocate-hint`\n")[1]

    assert "| `allocateStrategy` | string |" in hints.split("\n### ")[0]


def test_metrics_of_the_originals_are_declared_with_type_labels_and_help() -> None:
    """Names are constants in the source, so that reading it finds them."""
    by_name = {metric.name: metric for metric in declared_metrics()}

    evicted = by_name["descheduler_pods_evicted_total"]
    assert (evicted.type, evicted.component) == ("counter", "koord-descheduler")
    assert evicted.labels == ("result", "strategy", "namespace", "node")
    assert all(metric.help for metric in by_name.values())
    quota = by_name["scheduler_elastic_quota_spec"]
    assert quota.labels == ("name", "resource", "tree", "is_parent", "parent", "field")
    usage = by_name["vGPU_device_memory_usage_in_bytes"]
    assert deprecation(usage.help)[0] == "GPU memory used by a container in bytes."


def test_every_series_of_alerts_and_dashboards_is_on_the_page_of_metrics(
    reference: Mapping[str, str],
) -> None:
    """Under the name by which Prometheus has it."""
    queries = (ROOT / "deploy/alerts.yaml").read_text("utf-8")
    queries += (ROOT / "dashboards/koordinator.json").read_text("utf-8")
    selected = set(re.findall(r"([a-z]+_[a-z_]+)\s*\{", queries)) - _OF_RUNTIMES

    listed = set(re.findall(r"^\| `(\w+)`", reference["metrics.md"], re.MULTILINE))
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in selected} <= listed
    assert "koordlet_nri_connected" in listed


def test_pages_are_written_the_same_each_time(tmp_path: Path, reference: Mapping[str, str]) -> None:
    """Files of an earlier run that are not pages any more are removed."""
    (tmp_path / "old.md").write_text("old")
    with pytest.raises(FileExistsError):  # another folder, such as docs
        write_pages(tmp_path)
    (tmp_path / "labels.md").touch()
    write_pages(tmp_path)

    written = {
        path.relative_to(tmp_path).as_posix(): path.read_text("utf-8")
        for path in tmp_path.rglob("*.md")
    }
    assert written == reference


def test_every_link_to_a_generated_page_names_one(reference: Mapping[str, str]) -> None:
    """The pages are not committed, so that ``tests/pages_check.py`` can't look for them."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if "generated" not in page.parts:
            for name in re.findall(r"reference/generated/([\w/.-]+\.md)", page.read_text("utf-8")):
                assert name in reference, f"{page}: {name}"


def test_every_page_of_the_documentation_is_in_a_table_of_contents() -> None:
    """Sphinx fails on a page that no table of contents names; this test needs no Sphinx."""
    docs = ROOT / "docs"
    named = "\n".join(path.read_text("utf-8") for path in docs.rglob("index.md"))
    for page in sorted((docs / "how-to").glob("*.md")):
        assert page.stem == "index" or f"\n{page.stem}\n" in named, page


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
