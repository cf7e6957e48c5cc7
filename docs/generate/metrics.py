"""Page of metrics, from the declarations in the source, and from objects that export them."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from docs.generate.dated import ABOUT_SINCE, Row, dated_table, deprecation
from docs.generate.declarations import PACKAGE
from docs.generate.markdown import cell, code, page
from docs.generate.users import COMPONENTS
from prometheus_client import CollectorRegistry, Gauge

from koordinator.cli.component.election import LEADS
from koordinator.cli.manager.process import IS_LEADER
from koordinator.foundation.clock import VirtualClock
from koordinator.host.gpus import NoGpus
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.app.metrics_snapshot import FAMILIES
from koordinator.manager.metrics import ManagerMetrics
from koordinator.process.termination import FaultMetrics
from koordinator.scheduler.features.auditor.metrics import AuditorMetrics
from koordinator.vgpu_monitor.metrics import VgpuCollector
from koordinator.vgpu_monitor.monitor import VgpuSnapshot
from koordinator.yarn.app import YarnMetrics

_TYPES = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram", "Summary": "summary"}
_FAMILIES = {
    "CounterMetricFamily": "counter",
    "GaugeMetricFamily": "gauge",
    "HistogramMetricFamily": "histogram",
}
_INSTRUMENTS: Final = "koordinator.scheduler.loop.instruments"
_EVERY: Final = "every component"
#: Shared modules whose metrics only one component has.
_SHARED: Final[Mapping[str, str]] = {
    "cli/input/configuration.py": "koord-scheduler",
    "process/admission_reviews.py": "koord-manager",
}
_Exports = Callable[[CollectorRegistry], object]
#: Objects that export metrics with computed names.
_EXPORTS: Final[Sequence[tuple[str, _Exports]]] = (
    ("koord-scheduler", partial(FaultMetrics, "koord_scheduler")),
    ("koord-scheduler", lambda registry: AuditorMetrics(registry, ("priority",))),
    ("koord-manager", partial(FaultMetrics, "koord_manager")),
    ("koord-manager", ManagerMetrics),
    ("koord-manager", lambda registry: Gauge(IS_LEADER, LEADS, registry=registry)),
    ("koord-descheduler", partial(FaultMetrics, "koord_descheduler")),
    ("koordlet", partial(FaultMetrics, "koordlet")),
    ("koordlet", lambda registry: NodeGauges(registry, "", 0.0)),
    ("koord vgpu-monitor", partial(FaultMetrics, "koord_vgpu_monitor")),
    (
        "koord vgpu-monitor",
        lambda registry: registry.register(
            VgpuCollector("", VgpuSnapshot, NoGpus(), VirtualClock(0.0), with_old_names=True)
        ),
    ),
    ("koord-yarn-operator", partial(FaultMetrics, "koord_yarn_operator")),
    ("koord-yarn-operator", YarnMetrics),
    (
        "koord-yarn-operator",
        lambda registry: Gauge("koord_yarn_operator_is_leader", LEADS, registry=registry),
    ),
)


@dataclass(frozen=True, slots=True, order=True)
class Metric:
    """A metric as it is declared; ``labels`` is empty where the source computes them."""

    component: str
    name: str
    type: str
    labels: tuple[str, ...]
    help: str


def metrics() -> str:
    """Return the page of metrics by component."""
    by_component: dict[str, list[Metric]] = {}
    for metric in sorted(declared_metrics()):
        by_component.setdefault(metric.component, []).append(metric)
    parts = [
        f"## {component}\n\n"
        + dated_table(
            f"metric {component}", ("metric", "type", "labels", "meaning"), map(_row, found)
        )
        for component, found in by_component.items()
    ]
    return page(
        "Metrics",
        "Metrics of `/metrics` by component. A histogram has the series `…_bucket`, `…_sum` and "
        f"`…_count`. {ABOUT_SINCE}",
        *parts,
    )


def _row(metric: Metric) -> Row:
    meaning, replacement = deprecation(metric.help)
    labels = ", ".join(map(code, metric.labels))
    return Row(metric.name, (code(metric.name), metric.type, labels, cell(meaning)), replacement)


def declared_metrics() -> Iterator[Metric]:
    """Yield every metric once, under the name of its series."""
    exported = {(each.component, each.name): each for each in _exported()}
    yield from exported.values()
    for metric in set(_in_source()):
        if (metric.component, metric.name) not in exported:
            yield metric


def _exported() -> Iterator[Metric]:
    """Yield metrics whose names are computed, from the objects that export them."""
    for component, exports in _EXPORTS:
        registry = CollectorRegistry()
        exports(registry)
        for collector in vars(registry)["_collector_to_names"]:
            for family in collector.collect():
                declared = collector if hasattr(collector, "_labelnames") else family
                labels = getattr(declared, "_labelnames", ())
                name = _series(family.name, family.type)
                yield Metric(component, name, family.type, tuple(labels), family.documentation)
    for each in FAMILIES:
        labels = ("node", *each.labels)
        yield Metric("koordlet", f"koordlet_{each.name}", "gauge", labels, each.text)


def _in_source() -> Iterator[Metric]:
    """Yield every metric that is declared with a constant name."""
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text("utf-8")
        if "from prometheus_client" in source or _INSTRUMENTS in source:
            tree = ast.parse(source)
            constants, collections = _strings(tree), _collections(tree)
            prefix = "scheduler_" if f"from {_INSTRUMENTS} import" in source else ""
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    found = _metric(_component(path), node, constants, collections, prefix)
                    if found is not None:
                        yield found


def _component(path: Path) -> str:
    """Return the component whose metrics a file declares."""
    relative = path.relative_to(PACKAGE)
    package = relative.parts[relative.parts[0] == "cli"]
    return _SHARED.get(relative.as_posix()) or COMPONENTS.get(package, _EVERY)


def _series(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" and not name.endswith("_total") else name


def _metric(
    component: str,
    call: ast.Call,
    constants: dict[str, str],
    collections: Mapping[str, ast.expr],
    prefix: str,
) -> Metric | None:
    called = call.func.id if isinstance(call.func, ast.Name) else ""
    kind = _TYPES.get(called) or _FAMILIES.get(called)
    name, text, labels, *_ = [*call.args, None, None, None]
    if kind is None or name is None or text is None or not _text(name, constants):
        return None
    for keyword in call.keywords:
        if keyword.arg in ("labelnames", "labels"):
            labels = keyword.value
    label_names = tuple(filter(None, _texts(labels, constants, collections)))
    prefix = "" if called in _FAMILIES else prefix  # families have their whole names
    series = _series(prefix + _text(name, constants), kind)
    return Metric(component, series, kind, label_names, _text(text, constants))


def _strings(tree: ast.Module) -> dict[str, str]:
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and isinstance(node.value.value, str):
                found[target.id] = node.value.value
    return found


def _collections(tree: ast.Module) -> Mapping[str, ast.expr]:
    """Return the constants of a module that are collections."""
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.List)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _texts(
    node: ast.expr | None, constants: dict[str, str], collections: Mapping[str, ast.expr]
) -> Iterator[str]:
    """Yield the texts of a collection, or of a constant that holds one."""
    if isinstance(node, ast.Name):
        node = collections.get(node.id)
    if isinstance(node, ast.Tuple | ast.List):
        for each in node.elts:
            yield _text(each, constants)


def _text(node: ast.expr, constants: dict[str, str]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return constants.get(node.id, "")
    if isinstance(node, ast.JoinedStr):
        parts = []
        for each in node.values:
            inner = each.value if isinstance(each, ast.FormattedValue) else each
            parts.append(_text(inner, constants))
        return "".join(parts) if all(parts) else ""
    return ""
