"""Long lists of objects in YAML, as ``kubectl get -o yaml`` writes them, read a part at a time.

The nodes of a whole document take fifty times the memory of its text.  So the text is cut where an
item of ``items`` begins; a part that is not what it seems to be is never used: then the document is
read as a whole, which also finds what is wrong with it, and where.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from koordinator.foundation.errors import InputError
from koordinator.foundation.yaml_documents import yaml_document, yaml_documents

LEAST_BYTES: Final = 1 << 20  # below this a document is read as a whole
PART_BYTES: Final = 1 << 18

_SEPARATOR: Final = re.compile(rb"^(?:---|\.\.\.)(?=[ \t\r\n]|$)", re.MULTILINE)
_ITEMS: Final = re.compile(rb"^items:[ \t]*\r?\n(?=( *)-[ \r\n])", re.MULTILINE)
_DOCUMENT: Final = re.compile(rb"^---(?=[ \t\r\n]|$)", re.MULTILINE)
#: Directives, which belong to the next document, and explicit ends of documents.
_UNUSUAL: Final = re.compile(rb"^(?:%|\.\.\.(?=[ \t\r\n]|$))", re.MULTILINE)
_BEGIN: Final = re.compile(rb"\s*---[ \t]*\r?\n")


@dataclass(frozen=True, slots=True)
class YamlList:
    """Everything of a list but its items, and the text of these."""

    header: dict[str, Any]
    _text: bytes
    _starts: tuple[int, ...]  # of the items, and where the last one ends
    _begin: int = 0  # bytes before it in the file
    _lines_before: int = 0

    def items(self, source: str, on_position: Callable[[int], None]) -> Iterator[Any]:
        """Yield the items; ``on_position`` is called with the bytes that have been read.

        Raises InputError with ``source``, line and field path, also later.
        """
        count, begin, last = 0, 0, len(self._starts) - 1
        while begin < last:
            end = begin + 1
            while end < last and self._starts[end] - self._starts[begin] < PART_BYTES:
                end += 1
            part = self._read(begin, end)
            if part is None:
                whole = yaml_document(b"\n" * self._lines_before + self._text, source)
                yield from whole["items"][count:]
                return
            yield from part
            count += len(part)
            on_position(self._begin + self._starts[end])
            begin = end

    def _read(self, begin: int, end: int) -> list[Any] | None:
        """Return the items of a part; None if it has others, or can't be read alone."""
        try:
            items = yaml_document(self._text[self._starts[begin] : self._starts[end]], "")
        except InputError:
            return None
        return items if isinstance(items, list) and len(items) == end - begin else None


def long_yaml_list(text: bytes, least_bytes: int = LEAST_BYTES) -> YamlList | None:
    """Return the list that a long text is, to be read in parts; None if it is something else."""
    first = _BEGIN.match(text)
    if len(text) < least_bytes or _SEPARATOR.search(text, first.end() if first else 0):
        return None
    start = _ITEMS.search(text)
    if start is None or _ITEMS.search(text, start.end()):
        return None
    indent = len(start.group(1))
    after = re.compile(rb"^[^\s#-]" if indent == 0 else rb"^[^\s#]", re.MULTILINE)
    end = after.search(text, start.end())
    stop = end.start() if end else len(text)
    item = re.compile(rb"^ {%d}-(?=[ \r\n])" % indent, re.MULTILINE)
    starts = [match.start() for match in item.finditer(text, start.end(), stop)]
    try:
        header = yaml_document(text[: start.start()] + text[stop:], "")
    except InputError:
        return None
    if not isinstance(header, dict) or "items" in header:
        return None
    return YamlList(header, text, (*starts, stop))


def documents_and_lists(
    text: bytes,
    source: str,
    is_list: Callable[[dict[str, Any]], bool],
    on_position: Callable[[int], None],
    least_bytes: int = LEAST_BYTES,
) -> Iterator[tuple[int, Any]]:
    """Yield number (from 1) and content of each document: a ``YamlList`` of long lists, or a tree.

    ``is_list`` returns whether a document, given without its items, is a list of objects.
    ``on_position`` is called with the bytes that have been read, document by document.
    Raises InputError with ``source``, line and field path, also later.
    """
    number, rest = 0, 0  # ``rest``: where the documents begin that are read one after the other

    def read(end: int) -> Iterator[tuple[int, Any]]:
        nonlocal number
        lines = text.count(b"\n", 0, rest)
        part = text if end - rest == len(text) else b"\n" * lines + text[rest:end]
        start = rest - lines
        for document in yaml_documents(part, source, lambda at: on_position(start + at)):
            number += 1
            yield number, document

    for begin, end in _long_documents(text, least_bytes):
        items = long_yaml_list(text[begin:end], least_bytes)
        if items is None or not is_list(items.header):
            continue
        if text[rest:begin].strip():
            yield from read(begin)
        number += 1
        yield number, replace(items, _begin=begin, _lines_before=text.count(b"\n", 0, begin))
        rest = end
    if rest == 0 or text[rest:].strip():
        yield from read(len(text))


def _long_documents(text: bytes, least_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each document that is long enough to be read in parts."""
    if len(text) < least_bytes or _UNUSUAL.search(text):
        return
    begin = 0
    for separator in _DOCUMENT.finditer(text):
        if separator.start() - begin >= least_bytes:
            yield begin, separator.start()
        begin = separator.start()
    if len(text) - begin >= least_bytes:
        yield begin, len(text)
