"""Releases that introduced names: the recorded table, Go sources, and releases of upstream."""

from pathlib import Path

import pytest
from docs.since.golang import GoSources
from docs.since.repositories import Release
from docs.since.table import SinceTable, read_names, write_names
from docs.since.upstream import introduced

CONSTANTS = """package extension

const (
	Domain = "example.io/"
	// Quota is a label.
	LabelQuota = Domain + "quota" // behind it
	Unknown = other.Name + "x"
)
"""
TYPES = """package v1

import (
	"time"

	ext "example.io/project/apis/extension"
)

type FitArgs struct {
	metav1.TypeMeta `json:",inline"`

	Weight int64 `json:"weight,omitempty"`
	Parts []Part `json:"parts"`
	ByName map[string]*ext.Extra `json:"byName"`
	Wait time.Duration `json:"wait"`
	Hidden string `json:"-"`
}

type Part struct {
	Common `json:",inline"`
	Size int
}

type Common struct {
	Name string `json:"name"`
}
"""
EXTRA = """package extension

type Extra struct {
	Note string `json:"note"`
}
"""
METRICS = """package metrics

const Subsystem = "agent"

var Pods = metrics.NewCounterVec(&metrics.CounterOpts{
	Subsystem: Subsystem,
	Name:      "pods",
})

func flags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Interval, "interval", o.Interval, "help")
	fs.Var(newList(&o.Names), "names", "help")
	flag.Bool("dry-run", false, "help")
}
"""
OF_KUBERNETES = """package quota

import (
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
)

var Runtime = metrics.NewGauge(&metrics.GaugeOpts{
	Subsystem: schedulermetrics.SchedulerSubsystem,
	Name:      "quota_runtime",
})
"""
FILES = {
    "apis/extension/constants.go": CONSTANTS,
    "apis/extension/extra.go": EXTRA,
    "pkg/scheduler/apis/config/v1/types.go": TYPES,
    "pkg/agent/metrics.go": METRICS,
}


@pytest.fixture
def sources() -> GoSources:
    return GoSources(FILES)


def test_constants_are_put_together_from_their_parts(sources: GoSources) -> None:
    """A constant with an unknown part has no value."""
    assert sources.constants("apis") == {"example.io/", "example.io/quota"}
    assert sources.constants("pkg") == {"agent"}


def test_fields_have_the_paths_of_the_reference(sources: GoSources) -> None:
    """Of lists, maps, inlined structs and structs of other packages."""
    assert sources.fields("pkg/scheduler/apis/config/v1", "FitArgs") == {
        "weight": False,
        "parts": False,
        "parts[].name": False,
        "parts[].Size": False,
        "byName": False,
        "byName.<key>.note": False,
        "wait": True,
    }


def test_flags_and_metrics_are_found_where_they_are_declared(sources: GoSources) -> None:
    """A metric has the subsystem before its name."""
    assert sources.flags("pkg/agent") == {"interval", "names", "dry-run"}
    assert sources.flags("pkg/scheduler") == frozenset()
    assert "agent_pods" in sources.metrics()


def test_subsystem_of_another_module_is_not_searched_in_the_folder_of_that_name() -> None:
    """Koordinator has a package pkg/scheduler/metrics, as Kubernetes has."""
    sources = GoSources(
        {
            "pkg/scheduler/metrics/metrics.go": METRICS,
            "pkg/scheduler/quota/metrics.go": OF_KUBERNETES,
        }
    )

    assert "scheduler_quota_runtime" in sources.metrics()


def test_first_release_with_a_name_introduced_it() -> None:
    """The oldest release may have it from an earlier one, except a project's first."""
    older = {**FILES, "pkg/scheduler/apis/config/v1/types.go": TYPES.replace("Weight", "// ")}
    history = [
        Release("Koordinator", "0.1", lambda: older),
        Release("Koordinator", "1.0", lambda: FILES),
    ]
    scope = "scheduler args of Fit"

    assert introduced(history, scope, "weight") == "Koordinator 1.0"
    assert introduced(history, scope, "parts[].name") == "Koordinator 0.1"
    assert introduced(history, scope, "wait.seconds") == "Koordinator 0.1"
    assert introduced(history, scope, "kind") == "Koordinator 0.1"
    assert introduced(history, scope, "parts[].other") is None
    assert introduced(history, "label", "example.io/quota") == "Koordinator 0.1"
    assert introduced(history[1:], scope, "weight") == "Koordinator 1.0 or earlier"


def test_fields_of_a_custom_resource_come_from_its_schema() -> None:
    """Lists and maps as in the reference."""
    crd = """
spec:
  names: {kind: Device}
  versions:
    - schema:
        openAPIV3Schema:
          type: object
          properties:
            metadata: {type: object}
            spec:
              type: object
              properties:
                devices:
                  type: array
                  items: {type: object, properties: {minor: {type: integer}}}
                labels: {additionalProperties: {type: string}, type: object}
"""
    history = [Release("Koordinator", "0.1", lambda: {"config/crd/bases/x_devices.yaml": crd})]

    assert introduced(history, "kind", "Device") == "Koordinator 0.1"
    for path in ("metadata.name", "spec", "spec.devices[].minor", "spec.labels"):
        assert introduced(history, "resource Device", path) == "Koordinator 0.1"
    assert introduced(history, "resource Device", "spec.devices[].health") is None
    assert introduced(history, "resource Queue", "spec") is None


def test_recorded_names_are_read_as_they_were_written(tmp_path: Path) -> None:
    """In the order of releases, for small differences between versions of the file."""
    names = {
        ("label", "b"): "Koordinator 1.10",
        ("label", "a"): "Koordinator 1.9",
        ("kind", "Queue"): "0.1.0",
    }
    file = tmp_path / "names.json"
    write_names(names, file)

    assert read_names(file) == names
    text = file.read_text()
    assert text.index("1.9") < text.index("1.10")
    write_names(dict(reversed(names.items())), file)
    assert file.read_text() == text


def test_missing_and_unused_entries_of_the_table_are_reported() -> None:
    """A name that is not recorded is unreleased."""
    table = SinceTable({("label", "a"): "0.1.0", ("label", "b"): "0.1.0"})

    assert table.release("label", "a") == "0.1.0"
    assert table.release("label", "c") == "unreleased"
    assert (table.missing(), table.unused()) == ([("label", "c")], [("label", "b")])
