"""Command ``koord quota tree``: usage and limits of quotas, and loans between them."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import field
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from koordinator.api.annotations.quota import QueuePolicy
from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.api.kubescheduler import (
    ElasticQuotaArgs,
    KubeSchedulerConfiguration,
    decode_args,
)
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import (
    KUBECONFIG_CONTEXT,
    READ_CLUSTER,
    ManifestFiles,
    Print,
    SchedulerGates,
)
from koordinator.cli.help_pages import HelpGroup
from koordinator.cli.input.configuration import (
    CONFIGURATION_HELP,
    NAMED_CONFIGURATION,
    read_configuration,
)
from koordinator.cli.input.live import LiveObjects, read_gates, read_objects
from koordinator.cli.input.scope import ScopeFlags
from koordinator.cli.output import Output, console, print_data, warn
from koordinator.domain.amounts import Amounts
from koordinator.domain.quota import (
    Loan,
    QuotaFigures,
    QuotaRules,
    QuotaTree,
    QuotaTrees,
    figures_of,
    loans,
)
from koordinator.domain.quota.figures import (
    children_of,
    counted_quotas,
    loan_amount,
    quantities,
    queue_policy,
    quotas_as_data,
)
from koordinator.foundation.lazy_dataclass import dataclass

KINDS: tuple[type[KubeObject], ...] = (Node, ElasticQuota, Pod)
BAR = 24  # characters
_PLUGIN = "ElasticQuota"
_MANY = 1000  # a limit of so many times the capacity is shown as unlimited
_NO_LIMIT = 1 << 60  # the values that Koordinator uses for no limit are larger
UNLIMITED = "unlimited"
_PARTIAL = (
    "this user may not list all {0}: the figures count only readable objects, such as those of "
    "namespace {1}"
)
_WIDTH_OF_BARS = 120  # columns of a terminal with space for bars

app = typer.Typer(cls=HelpGroup, help="Show elastic quotas.", no_args_is_help=True)


@app.callback()
def quotas() -> None:
    """Show elastic quotas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFlags:
    """Objects to read, quotas to show, and output."""

    files: ManifestFiles = None
    config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"{CONFIGURATION_HELP} It sets the arguments of ElasticQuota.",
        ),
    ] = ""
    kubeconfig: Annotated[str, typer.Option(help=READ_CLUSTER)] = ""
    context: Annotated[str, typer.Option(help=KUBECONFIG_CONTEXT)] = ""
    feature_gates: SchedulerGates = ""
    scope: ScopeFlags = field(default_factory=ScopeFlags)
    output: Print = Output.TABLE

    def read(self) -> LiveObjects:
        """Return the objects of manifests and cluster.  Raises InputError if neither is given."""
        return read_objects(self.files, self.kubeconfig, self.context, self.scope, KINDS)


@app.command()
@with_flags
def tree(flags: QuotaFlags) -> None:
    """Show usage and limits of quotas, from manifests or a cluster.

    With -n or -l, the quotas of the namespace and of the selected pods are shown, each with its
    ancestors. The figures always count all pods.
    """
    live = flags.read()
    if live.unreadable:
        names = ", ".join(kind.PLURAL for kind in live.unreadable)
        warn(_PARTIAL.format(names, live.namespace))
    gates = read_gates(flags.feature_gates)
    args = args_of(read_configuration(flags.config))
    trees, warnings = counted_quotas(live.objects, QuotaRules.of(args, gates))
    for warning in warnings:
        warn(warning)
    shown = _selected(trees, live.objects, flags.scope) if flags.scope.is_narrow else None
    if flags.output is Output.TABLE:
        printer = console()
        printer.print(as_table(trees, args, shown, with_bars=printer.width >= _WIDTH_OF_BARS))
    else:
        print_data(quotas_as_data(trees, args, shown), flags.output)


def _selected(trees: QuotaTrees, objects: Sequence[KubeObject], scope: ScopeFlags) -> set[str]:
    """Return the names of the quotas that the flags select, and of their ancestors."""
    names = {trees.quota_of(key) for key in scope.keys(objects)}
    if not scope.selector:
        names |= {
            obj.metadata.name
            for obj in objects
            if isinstance(obj, ElasticQuota) and obj.metadata.namespace == scope.namespace
        }
    return {
        above
        for name in names
        if name is not None and name in trees
        for above in trees.tree_of(name).path(name)
    }


def args_of(configuration: KubeSchedulerConfiguration) -> ElasticQuotaArgs:
    """Return the arguments of the first profile that sets some for quotas, or the defaults."""
    given = (
        dict(config.args)
        for profile in configuration.profiles
        for config in profile.plugin_config
        if config.name == _PLUGIN
    )
    return decode_args(ElasticQuotaArgs, next(given, {}), f"{_PLUGIN}.args", "")


# -- as a table ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    level: int
    figures: QuotaFigures
    loans: tuple[Loan, ...]
    waiting: str  # pods, and how


def as_table(
    trees: QuotaTrees,
    args: ElasticQuotaArgs,
    shown: Container[str] | None = None,
    *,
    with_bars: bool = True,
) -> Table:
    """Return a row per resource of each shown quota, or of every quota, below its parent."""
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
        quota_tree = trees.tree(tree_id)
        rows = [
            row
            for row in _rows(quota_tree, ROOT_QUOTA, 0, args)
            if shown is None or row.name in shown
        ]
        if tree_id and (rows or shown is None):
            table.add_row(Text(f"tree {tree_id}", style="bold"))
        total = quota_tree.runtime(ROOT_QUOTA)
        for row in rows:
            _add_rows(table, row, total, with_bars=with_bars)
    return table


def _rows(quotas: QuotaTree, parent: str, level: int, args: ElasticQuotaArgs) -> Iterator[_Row]:
    lent = loans(quotas, parent)
    for name in children_of(quotas, parent):
        own = tuple(loan for loan in lent if loan.borrower == name)
        node, policy = quotas.node(name), queue_policy(quotas, name, args)
        waiting = f"{len(node.pods) - len(node.assigned)}"
        if policy != QueuePolicy.NONE:
            waiting += f" {policy}"
        yield _Row(name, level, figures_of(quotas, name), own, waiting)
        yield from _rows(quotas, name, level + 1, args)


def _add_rows(table: Table, row: _Row, total: Amounts, *, with_bars: bool) -> None:
    figures, title, waiting = row.figures, "  " * row.level + row.name, row.waiting
    for resource in sorted(figures.max):
        borrowed = ", ".join(
            f"{loan_amount(loan)} {f'from {loan.lender}' if loan.lender else 'unassigned'}"
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
    """Return an amount as text; a limit far above the capacity is shown as unlimited."""
    amount = amounts.get(resource, 0)
    if _is_unlimited(amount, total.get(resource, 0)):
        return UNLIMITED
    return quantities({resource: amount})[resource]


def _is_unlimited(amount: int, total: int) -> bool:
    return amount >= _NO_LIMIT or amount > _MANY * max(total, 1 << 40)


def bar(figures: QuotaFigures, resource: str, total: int) -> Text:
    """Return a bar of used, runtime and maximum, scaled to the maximum or the capacity."""
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
