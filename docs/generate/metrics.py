"""Page of metrics, from the declarations in the source of each component."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from docs.generate.declarations import PACKAGE
from docs.generate.markdown import cell, code, page, table

_TYPES = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram", "Summary": "summary"}
_FAMILIES = {
    "CounterMetricFamily": "counter",
    "GaugeMetricFamily": "gauge",
    "HistogramMetricFamily": "histogram",
}


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
    for metric in sorted(set(declared_metrics())):
        by_component.setdefault(metric.component, []).append(metric)
    parts = [
        f"## {component}\n\n"
        + table(
            ("metric", "type", "labels", "meaning"),
            [
                (code(each.name), each.type, ", ".join(map(code, each.labels)), cell(each.help))
                for each in found
            ],
        )
        for component, found in by_component.items()
    ]
    return page(
        "Metrics",
        "Metrics of `/metrics`, by the package that declares them. A counter's name ends in "
        "`_total` where it is shown.",
        *parts,
    )


def declared_metrics() -> Iterator[Metric]:
    """Yield every metric that is declared with a constant name."""
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text("utf-8")
        if "from prometheus_client" not in source:
            continue
        tree = ast.parse(source)
        constants = _strings(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                found = _metric(path.relative_to(PACKAGE).parts[0], node, constants)
                if found is not None:
                    yield found


def _metric(component: str, call: ast.Call, constants: dict[str, str]) -> Metric | None:
    called = call.func.id if isinstance(call.func, ast.Name) else ""
    kind = _TYPES.get(called) or _FAMILIES.get(called)
    name, text, labels, *_ = [*call.args, None, None, None]
    if kind is None or name is None or text is None or not _text(name, constants):
        return None
    for keyword in call.keywords:
        if keyword.arg in ("labelnames", "labels"):
            labels = keyword.value
    names: tuple[str, ...] = ()
    if isinstance(labels, ast.Tuple | ast.List):
        names = tuple(_text(each, constants) for each in labels.elts)
    label_names = tuple(filter(None, names))
    return Metric(component, _text(name, constants), kind, label_names, _text(text, constants))


def _strings(tree: ast.Module) -> dict[str, str]:
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and isinstance(node.value.value, str):
                found[target.id] = node.value.value
    return found


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
