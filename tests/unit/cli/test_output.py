"""Output for people: names whole, reasons wrapped, sentences instead of empty tables."""

import contextlib
import io
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from koordinator.api.kubescheduler import ElasticQuotaArgs
from koordinator.cli.main import app
from koordinator.cli.output import print_outcomes, print_with_reasons
from koordinator.cli.quota import as_table
from koordinator.domain.quota import QuotaRules
from koordinator.domain.quota.figures import counted_quotas

POD = "machine-learning/pretraining-of-a-model-master-with-a-long-name-7d8f9c6b5d-x2x4z"
NODE = "ip-10-23-45-67.eu-central-1.compute.internal"
WHY = " ".join(["0/5000 nodes are available: 5000 Insufficient cpu."] * 4)


def printed(rows: list[tuple[str, str, str]], width: int) -> str:
    printer = Console(file=io.StringIO(), width=width, highlight=False)
    print_with_reasons(printer, ("POD", "NODE", "WHY"), rows, "there are none")
    assert isinstance(printer.file, io.StringIO)
    return printer.file.getvalue()


@pytest.mark.parametrize("width", [20, 80, 200])
def test_names_are_neither_broken_nor_cut(width: int) -> None:
    """Names stay whole in a narrow terminal, since users search for them and copy them."""
    text = printed([(POD, "-", WHY), ("default/[a]", NODE, "")], width)

    for name in (POD, NODE, "default/[a]"):
        assert name in text
    assert " ".join(WHY.split()) in " ".join(text.split())


def test_reasons_are_beside_short_names_and_wrap() -> None:
    """Eighty columns are enough for a table then."""
    lines = printed([("default/web", "-", WHY)], 80).splitlines()

    assert re.fullmatch(r" POD +NODE +WHY *", lines[0])
    assert len(lines) > 2
    assert max(map(len, lines)) <= 80


CELLS = st.text(st.characters(codec="latin-1"), max_size=40) | st.sampled_from([POD, WHY, ""])


@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=4))
@example(rows=[(POD, "-", WHY[:100])])
@example(rows=[("a" * 90, "b" * 80, "short")])
def test_a_file_gets_what_rich_lays_out(rows: list[tuple[str, str, str]]) -> None:
    """Lines that need no layout are written without loading it."""
    expected = Console(file=io.StringIO(), width=200, highlight=False)
    print_with_reasons(expected, ("POD", "NODE", "WHY"), rows, "there are none")
    expected.print("the summary")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        print_outcomes(("POD", "NODE", "WHY"), rows, "there are none", "the summary")

    assert isinstance(expected.file, io.StringIO)
    assert shown.getvalue() == expected.file.getvalue()


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (["schedule"], "there are no pending pods\n0 placed, 0 unschedulable, 0 evicted\n"),
        (["gang", "list"], "there are no gangs\n"),
        (["explain", "pod"], "no pod waits\n"),
    ],
)
def test_an_empty_result_prints_a_sentence(command: list[str], output: str) -> None:
    """A bare header would look like a mistake."""
    node = "{apiVersion: v1, kind: Node, metadata: {name: n}}"
    done = CliRunner().invoke(app, [*command, "-f", "-"], input=node)

    assert done.stdout == output


def test_quotas_fit_into_eighty_columns_and_know_no_limit() -> None:
    """Koordinator's own quotas have 1844674407370955161 of everything."""
    args = ElasticQuotaArgs()
    trees, _ = counted_quotas([], QuotaRules.of(args))
    printer = Console(file=io.StringIO(), width=80, highlight=False)
    printer.print(as_table(trees, args, with_bars=False))
    assert isinstance(printer.file, io.StringIO)
    text = printer.file.getvalue()

    assert "unlimited" in text
    assert "memory" in text
    assert "18446744" not in text
    assert "…" not in text
