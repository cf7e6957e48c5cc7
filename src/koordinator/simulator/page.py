"""Content of a result page: figures, charts, tables and marks.

The dashboard's page draws it: see ``koordinator.dashboard.offline``.
"""

import msgspec

from koordinator.simulator.device_bars import BarLanes
from koordinator.simulator.numerals import NumberUnit


class PageFigure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Key figure at the top of a page."""

    label: str
    value: str
    remark: str = ""


class PageSeries(msgspec.Struct, frozen=True, rename="camel"):
    """Curve; ``values`` has an entry for each time of its chart, None if unknown."""

    name: str
    values: tuple[float | None, ...]
    tone: int  # index of the colour


class PageChart(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Curves over ``at_s``, seconds since the start, ascending."""

    title: str
    note: str  # description of the curves
    unit: NumberUnit
    at_s: tuple[float, ...]
    series: tuple[PageSeries, ...]
    is_stacked: bool = False
    is_small: bool = False


class PageChange(msgspec.Struct, frozen=True):
    """Table cell with a share, 0..1, before and after."""

    before: float
    after: float


class PageTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Table; each row has as many cells as ``heads``, and its first names it if ``has_figures``."""

    label: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str | PageChange, ...], ...]
    foot: tuple[str, ...] = ()
    has_figures: bool = False  # all but the first column are numbers
    left_out: int = 0  # number of further rows


class PageMark(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Event, in seconds since the start."""

    at_s: float
    text: str
    is_failure: bool = False


class PageSection(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Section of a page with a heading."""

    title: str
    text: str = ""
    charts: tuple[PageChart, ...] = ()
    tables: tuple[PageTable, ...] = ()
    marks: tuple[PageMark, ...] = ()
    devices: BarLanes | None = None
    is_folded: bool = False


class ResultPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Page with the result of a run or plan."""

    title: str
    facts: tuple[str, ...]
    figures: tuple[PageFigure, ...] = ()
    sections: tuple[PageSection, ...]
