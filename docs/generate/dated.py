"""Tables whose rows have the release that introduced a name, and what replaces a deprecated one."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from docs.generate.markdown import code, table
from docs.since.table import SinceTable, read_names

SINCE: Final = SinceTable(read_names())
#: Text of pages with such tables.
ABOUT_SINCE: Final = (
    "*Since* is the first release of Koordinator, Kubernetes or the descheduler that has the name; "
    "*Koordinator main* has no release yet. A version without a project, or *unreleased*, is "
    "of this project, for names of its own and of other projects."
)
_DEPRECATION: Final = re.compile(r"[Dd]eprecated: use (\S+); (.+)")


class Row(NamedTuple):
    """A row: the name by which the release is recorded, and the cells."""

    name: str
    cells: Sequence[str]
    replacement: str = ""  # what replaces a deprecated name


def dated_table(scope: str, head: Sequence[str], rows: Iterable[Row]) -> str:
    """Return a table with the columns "since" and, where a row has one, "deprecated by"."""
    listed = list(rows)
    has_deprecated = any(row.replacement for row in listed)
    return table(
        (*head, "since", *(("deprecated by",) if has_deprecated else ())),
        (
            (
                *row.cells,
                SINCE.release(scope, row.name),
                *((code(row.replacement),) if has_deprecated else ()),
            )
            for row in listed
        ),
    )


def deprecation(comment: str) -> tuple[str, str]:
    """Return the meaning and the replacement that the comment of a declaration gives.

    The comment of a deprecated name starts with "deprecated: use NAME; ". Any other comment has no
    replacement.
    """
    found = _DEPRECATION.fullmatch(comment)
    return (found[2], found[1]) if found is not None else (comment, "")
