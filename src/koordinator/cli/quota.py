"""``koord quota tree``: what quotas use and may use, and who borrows from whom."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from koordinator.api.annotations.quota import QueuePolicy
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.kubescheduler import (
    ElasticQuotaArgs,
    FeatureGates,
    KubeSchedulerConfiguration,
    decode_args,
)
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cli.configuration import (
    NAMED_CONFIGURATION,
    WHAT_NAMES_MEAN,
    read_configuration,
)
from koordinator.cli.flags import Files, GatesOfScheduler, Print
from koordinator.cli.live import with_cluster
from koordinator.cli.manifests import read_manifests
from koordinator.cli.output import Output, console, print_data, warn
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.quota import (
    Loan,
    QuotaFigures,
    QuotaRules,
    QuotaTopology,
    QuotaTree,
    QuotaTrees,
    figures_of,
    loans,
    quota_pod,
    warning_about,
)
from koordinator.domain.quota.amounts import Amounts, add, amounts_of, to_quantities
from koordinator.domain.transforms import as_offered, as_scheduled
from koordinator.foundation.errors import InputError

KINDS: tuple[type[KubeObject], ...] = (Node, ElasticQuota, Pod)
BAR = 24  # characters
_PLUGIN = "ElasticQuota"
_MANY = 1000  # times what there is: such a limit is none
_NO_LIMIT = 1 << 60  # and what Koordinator takes for no limit is more than this
UNLIMITED = "unlimited"
_WIDTH_OF_BARS = 120  # columns of a terminal that has room for them
_OVER = ("Succeeded", "Failed")

app = typer.Typer(help="Elastic quotas.", no_args_is_help=True)


@app.callback()
def quotas() -> None:
    """Elastic quotas."""


@app.command()
def tree(
    *,
    files: Files = None,
    config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"{WHAT_NAMES_MEAN} For the arguments of ElasticQuota.",
        ),
    ] = "",
    kubeconfig: Annotated[str, typer.Option(help="Take what exists from this cluster.")] = "",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    feature_gates: GatesOfScheduler = "",
    output: Print = Output.TABLE,
) -> None:
    """Show what quotas use and may use now, from manifests or from a cluster."""
    objects: Sequence[KubeObject] = read_manifests(files, sys.stdin.buffer) if files else []
    if kubeconfig or context:
        objects = with_cluster(objects, kubeconfig, context, KINDS)
    elif not files:
        raise InputError("required, but missing; accepted is -f or --kubeconfig", source="-f")
    gates = FeatureGates.parse(feature_gates)
    args = args_of(read_configuration(config))
    trees, warnings = counted(objects, QuotaRules.of(args, gates))
    for warning in warnings:
        warn(warning)
    if output is Output.TABLE:
        printer = console()
        printer.print(as_table(trees, args, with_bars=printer.width >= _WIDTH_OF_BARS))
    else:
        print_data(as_data(trees, args), output)


def args_of(configuration: KubeSchedulerConfiguration) -> ElasticQuotaArgs:
    """Return the arguments of the first profile that has some for quotas, or the defaults."""
    given = (
        dict(config.args)
        for profile in configuration.profiles
        for config in profile.plugin_config
        if config.name == _PLUGIN
    )
    return decode_args(ElasticQuotaArgs, next(given, {}), f"{_PLUGIN}.args", "")


def counted(objects: Iterable[KubeObject], rules: QuotaRules) -> tuple[QuotaTrees, list[str]]:
    """Return the quotas with what pods use of them, and what is wrong with some."""
    trees, total, warnings = QuotaTrees(rules), dict[str, int](), list[str]()
    topology = QuotaTopology()
    for obj in objects:
        if isinstance(obj, Node):
            add(total, amounts_of(as_offered(obj).node.status.allocatable))
        elif isinstance(obj, ElasticQuota):
            topology.put(obj)
            try:
                trees.put(obj)
            except InputError as error:
                warnings.append(str(error))
        elif isinstance(obj, Pod) and obj.status.phase not in _OVER:
            pod = as_scheduled(obj)
            requests = pod_requests(pod.spec, overhead=rules.counts_overhead)
            trees.put_pod(quota_pod(pod, requests))
            if pod.spec.node_name:
                trees.assign(pod.key)
    trees.set_total(total)
    quotas = (topology.get(name) for name in trees.names)
    warnings += [text for quota in quotas if quota and (text := warning_about(quota, topology))]
    return trees, warnings


# -- as data ---------------------------------------------------------------------------------


def as_data(trees: QuotaTrees, args: ElasticQuotaArgs) -> dict[str, Any]:
    """Return all trees in the shape that is a contract: see the README."""
    return {
        "trees": [
            {
                "id": tree_id,
                "total": _quantities(found.runtime(ROOT_QUOTA)),
                "quotas": _children(found, ROOT_QUOTA, args),
            }
            for tree_id in sorted(trees.tree_ids)
            for found in [trees.tree(tree_id)]
        ]
    }


def _children(found: QuotaTree, parent: str, args: ElasticQuotaArgs) -> list[dict[str, Any]]:
    lent = loans(found, parent)
    return [_quota(found, name, lent, args) for name in _names(found, parent)]


def _quota(
    found: QuotaTree, name: str, lent: Sequence[Loan], args: ElasticQuotaArgs
) -> dict[str, Any]:
    figures, node = figures_of(found, name), found.node(name)
    return {
        "name": name,
        "min": _quantities(figures.min),
        "max": _quantities(figures.max),
        "runtime": _quantities(figures.runtime),
        "used": _quantities(figures.used),
        "request": _quantities(figures.request),
        "borrows": [
            {"from": loan.lender, "resource": loan.resource, "amount": _quantity(loan)}
            for loan in lent
            if loan.borrower == name
        ],
        "waitingPods": len(node.pods) - len(node.assigned),
        "queuePolicy": _policy(found, name, args),
        "children": _children(found, name, args),
    }


def _policy(found: QuotaTree, name: str, args: ElasticQuotaArgs) -> str:
    """Return how jobs of a quota wait for each other; of built-in quotas the default is none."""
    spec = found.node(name).spec
    if spec is None or (name in (SYSTEM_QUOTA, DEFAULT_QUOTA) and spec.queue.policy is None):
        return QueuePolicy.NONE
    return spec.queue.policy or args.default_queue_policy


def _names(found: QuotaTree, parent: str) -> list[str]:
    """Return the children in order of names; beside the tree of the root come the unshared."""
    names = [name for name in sorted(found.node(parent).children) if name in found]
    if parent == ROOT_QUOTA:
        unshared = (n for n in found.names if found.node(n).parent is found.node(ROOT_QUOTA))
        names += sorted(set(unshared) - set(names))
    return names


def _quantities(amounts: Amounts) -> dict[str, str]:
    return {name: quantity.canonical() for name, quantity in to_quantities(amounts).items()}


def _quantity(loan: Loan) -> str:
    return _quantities({loan.resource: loan.amount})[loan.resource]


# -- as a table ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    level: int
    figures: QuotaFigures
    loans: tuple[Loan, ...]
    waiting: str  # pods, and how


def as_table(trees: QuotaTrees, args: ElasticQuotaArgs, *, with_bars: bool = True) -> Table:
    """Return a row for every resource of every quota, children below their parents."""
    table = Table(box=None, header_style="bold")
    table.add_column("QUOTA", overflow="fold")
    table.add_column("RESOURCE", overflow="fold")
    if with_bars:
        table.add_column("█ USED ▒ RUNTIME · MAX", no_wrap=True)
    for title in ("USED", "RUNTIME", "MIN", "MAX", "REQUEST"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("BORROWS", overflow="fold")
    table.add_column("PODS WAITING" if with_bars else "WAIT", overflow="fold")
    for tree_id in sorted(trees.tree_ids):
        found = trees.tree(tree_id)
        if tree_id:
            table.add_row(Text(f"tree {tree_id}", style="bold"))
        total = found.runtime(ROOT_QUOTA)
        for row in _rows(found, ROOT_QUOTA, 0, args):
            _add_rows(table, row, total, with_bars=with_bars)
    return table


def _rows(found: QuotaTree, parent: str, level: int, args: ElasticQuotaArgs) -> Iterator[_Row]:
    lent = loans(found, parent)
    for name in _names(found, parent):
        own = tuple(loan for loan in lent if loan.borrower == name)
        node, policy = found.node(name), _policy(found, name, args)
        waiting = f"{len(node.pods) - len(node.assigned)}"
        if policy != QueuePolicy.NONE:
            waiting += f" {policy}"
        yield _Row(name, level, figures_of(found, name), own, waiting)
        yield from _rows(found, name, level + 1, args)


def _add_rows(table: Table, row: _Row, total: Amounts, *, with_bars: bool) -> None:
    figures, title, waiting = row.figures, "  " * row.level + row.name, row.waiting
    for resource in sorted(figures.max):
        borrowed = ", ".join(
            f"{_quantity(loan)} {f'from {loan.lender}' if loan.lender else 'that nobody has'}"
            for loan in row.loans
            if loan.resource == resource
        )
        shown = (figures.used, figures.runtime, figures.min, figures.max, figures.request)
        table.add_row(
            Text(title),
            Text(resource),
            *([bar(figures, resource, total.get(resource, 0))] if with_bars else []),
            *(_shown(amounts, resource, total) for amounts in shown),
            Text(borrowed),
            Text(waiting),
        )
        title = waiting = ""


def _shown(amounts: Amounts, resource: str, total: Amounts) -> str:
    """Return an amount for people; a limit far above all that there is is none."""
    amount = amounts.get(resource, 0)
    if _is_unlimited(amount, total.get(resource, 0)):
        return UNLIMITED
    return _quantities({resource: amount})[resource]


def _is_unlimited(amount: int, total: int) -> bool:
    return amount >= _NO_LIMIT or amount > _MANY * max(total, 1 << 40)


def bar(figures: QuotaFigures, resource: str, total: int) -> Text:
    """Return used, runtime and maximum, on a scale up to the maximum or all that there is."""
    used, runtime = figures.used.get(resource, 0), figures.runtime.get(resource, 0)
    most = figures.max[resource]
    if _is_unlimited(most, total):
        runtime = most = 0
    scale = max(min(most, total) or total, used, 1)

    def width(amount: int) -> int:
        return -(-min(amount, scale) * BAR // scale)

    filled, allowed, whole = width(used), width(runtime), width(most)
    text = Text("█" * filled, style="red" if used > runtime else "green")
    text.append("▒" * max(allowed - filled, 0), style="cyan")
    text.append("·" * max(whole - max(allowed, filled), 0), style="dim")
    return text
