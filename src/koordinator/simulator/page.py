"""What a page of results shows: figures, charts, tables and marks, as data.

The page of the dashboard draws it: see ``koordinator.dashboard.offline``.
"""

import msgspec

from koordinator.simulator.device_bars import BarLanes
from koordinator.simulator.numerals import NumberUnit


class PageFigure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A number that people want to know first."""

    label: str
    value: str
    remark: str = ""


class PageSeries(msgspec.Struct, frozen=True, rename="camel"):
    """One curve; ``values`` has an entry per moment of its chart, None where nothing is known."""

    name: str
    values: tuple[float | None, ...]
    tone: int  # number of the colour


class PageChart(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Curves over ``at_s``, seconds since the beginning, ascending."""

    title: str
    note: str  # what is to be seen, in a sentence
    unit: NumberUnit
    at_s: tuple[float, ...]
    series: tuple[PageSeries, ...]
    is_stacked: bool = False
    is_small: bool = False


class PageChange(msgspec.Struct, frozen=True):
    """A cell of a table: a share, 0..1, before and after."""

    before: float
    after: float


class PageTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Rows as long as ``heads``; the first cell names the row where ``has_figures``."""

    label: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str | PageChange, ...], ...]
    foot: tuple[str, ...] = ()
    has_figures: bool = False  # all but the first column are numbers
    left_out: int = 0  # rows beyond those


class PageMark(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something that has happened, in seconds since the beginning."""

    at_s: float
    text: str
    is_failure: bool = False


class PageSection(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of the page under a heading."""

    title: str
    text: str = ""
    charts: tuple[PageChart, ...] = ()
    tables: tuple[PageTable, ...] = ()
    marks: tuple[PageMark, ...] = ()
    devices: BarLanes | None = None
    is_folded: bool = False  # of interest to few


class ResultPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All of it."""

    title: str
    facts: tuple[str, ...]
    figures: tuple[PageFigure, ...] = ()
    sections: tuple[PageSection, ...]
