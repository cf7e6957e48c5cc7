"""YAML as Kubernetes reads it, within bounds: text in, containers of JSON out.

YAML 1.1 but for dates and numbers to the base of 60, which stay text, and ``1e3``, which is a
number; keys are text.  A duplicate key is an error.  A short text can't become a large or deep
tree: the values of aliases are counted.

Long lists, as ``kubectl get -o yaml`` writes them, are read a part at a time: the nodes of a whole
document take fifty times the memory of its text.  The text is cut where an item of ``items``
begins.  If a part is not such an item, the document is read as a whole, which reports the error.

Source: sigs.k8s.io/yaml (how scalars of YAML become JSON).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import yaml

from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

LEAST_BYTES: Final = 1 << 20  # below this a document is read as a whole
PART_BYTES: Final = 1 << 18
_SEPARATOR: Final = re.compile(rb"^(?:---|\.\.\.)(?=[ \t\r\n]|$)", re.MULTILINE)
_ITEMS: Final = re.compile(rb"^items:[ \t]*\r?\n(?=( *)-[ \r\n])", re.MULTILINE)
_DOCUMENT: Final = re.compile(rb"^---(?=[ \t\r\n]|$)", re.MULTILINE)
#: Directives, which belong to the next document, and explicit ends of documents.
_UNUSUAL: Final = re.compile(rb"^(?:%|\.\.\.(?=[ \t\r\n]|$))", re.MULTILINE)
_BEGIN: Final = re.compile(rb"\s*---[ \t]*\r?\n")
DEEPEST = 100  # levels, as of JSON (api.nesting); Kubernetes' own schemas need half of it
MOST_NODES = 4_000_000  # of one document: 25,000 pods as the API server shows them, 2 GiB meanwhile
MOST_ALIASED = 100_000  # nodes of one document that come from aliases
LONGEST_NUMBER = 400  # characters; the largest double has 309 digits
_LONGEST_PATH = 200  # characters of a path in a message; parents above it are omitted

_TAG = "tag:yaml.org,2002:"
_TEXT, _NULL, _BOOL = f"{_TAG}str", f"{_TAG}null", f"{_TAG}bool"
_INTEGER, _FLOATING = f"{_TAG}int", f"{_TAG}float"
_MERGE, _PLAIN = f"{_TAG}merge", f"{_TAG}value"
_MAP, _SEQUENCE = f"{_TAG}map", f"{_TAG}seq"
_TOO_DEEP = f"not usable YAML: nested too deep or in itself; at most {DEEPEST} levels are allowed"
_CANNOT_START = "that cannot start any token"
_LIBRARYS_OWN_BOUND = "maximum nesting depth"  # libyaml reads ahead, and ends at 1,000 brackets
_NO_FILE = re.compile(r' in "<\w+ string>",')  # the library's name of the text
_ACCEPTED = "must be maps, sequences, strings, numbers, true, false or null"

_BOOLS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}

_INTEGERS = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")
_FLOATS = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
    r"|\.(?:nan|NaN|NAN))$"
)


def yaml_documents(
    text: str | bytes, source: str, on_position: Callable[[int], None] | None = None
) -> Iterator[Any]:
    """Yield the documents of a text lazily.

    ``on_position`` is called with the characters that have been read, document by document.
    Raises InputError with ``source``, line and field path, also later.
    """
    try:
        loader = _Loader(text)
        try:
            while loader.check_node():
                node = loader.begun().get_node()
                if on_position is not None and node is not None:
                    on_position(node.end_mark.index)
                yield _Tree(loader).value(node, 0)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        problem = _NO_FILE.sub(" in", " ".join(str(error).split()))
        if _CANNOT_START in problem and (number := _line_with_tab(text)):
            problem = f"must be indented with spaces, got a tab in line {number}"
            raise InputError(problem, source=source) from None
        if _LIBRARYS_OWN_BOUND in problem:
            raise InputError(_TOO_DEEP, source=source) from None
        raise InputError(f"not valid YAML: {problem}", source=source) from None
    except _TooDeepError:
        raise InputError(_TOO_DEEP, source=source) from None
    except InputError as error:
        raise error.within(source=source) from None


def _line_with_tab(text: str | bytes) -> int:
    """Return the number of the first line that is indented with a tab; 0 without one."""
    lines = (text if isinstance(text, bytes) else text.encode()).split(b"\n")
    indents = (line[: len(line) - len(line.lstrip())] for line in lines)
    return next((n for n, indent in enumerate(indents, start=1) if b"\t" in indent), 0)


def yaml_document(text: str | bytes, source: str) -> Any:
    """Return the only document of a text; None if there is none.  Raises as ``yaml_documents``."""
    documents = list(islice(yaml_documents(text, source), 2))
    if len(documents) > 1:
        raise InputError("must be a single document, got several (---)", source=source)
    return documents[0] if documents else None


def to_yaml(tree: Any, *, allow_unicode: bool = False) -> str:
    """Return containers of JSON as text that is read back as it is, here and by Kubernetes."""
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=allow_unicode)
    return text


class _Loader(yaml.CSafeLoader):
    """Composes nodes, and stops when there are too many or one is too deep."""

    yaml_implicit_resolvers = {  # noqa: RUF012 -- PyYAML reads it from the class
        first: [
            (tag, pattern)
            for tag, pattern in resolvers
            if tag.removeprefix(_TAG) not in {"timestamp", "int", "float"}
        ]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str | bytes) -> None:
        super().__init__(text)
        self.begun()

    def begun(self) -> "_Loader":
        """Reset the counters at the start of a document."""
        self._depth = self.nodes = 0
        return self

    def descend_resolver(self, _parent: object, _index: object) -> None:
        """Note that a node begins: PyYAML calls this before it composes one."""
        self._depth += 1
        self.nodes += 1
        if self._depth > DEEPEST:
            raise _TooDeepError
        if self.nodes > MOST_NODES:
            raise InputError(
                f"must have at most {MOST_NODES:,} values in one document: write JSON, which "
                "has no such limit, or several documents"
            )

    def ascend_resolver(self) -> None:
        """Note that a node ends."""
        self._depth -= 1


class _Tree:
    """Makes containers of the nodes of one document."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self._visited = 0

    def value(self, node: Any, depth: int) -> Any:
        """Return the value of a node."""
        tag = node.tag
        if tag == _TEXT:
            return node.value
        if depth > DEEPEST:
            raise _TooDeepError
        if isinstance(node, yaml.MappingNode) and tag == _MAP:
            return self._mapping(node, depth)
        if isinstance(node, yaml.SequenceNode) and tag == _SEQUENCE:
            return self._sequence(node, depth)
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        raise _odd_tag(node)

    def _mapping(self, node: Any, depth: int) -> dict[str, Any]:
        self._count(2 * len(node.value))
        pairs: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TEXT:
                key = key_node.value
            elif key_node.tag == _MERGE:
                merged = self._merged(value_node, depth) | merged
                continue
            else:
                key = _key(key_node)
            if key in pairs:
                raise InputError(
                    f"key must be given only once, got it again in line {_line(key_node)}",
                    path=key,
                )
            try:
                pairs[key] = self.value(value_node, depth + 1)
            except InputError as error:
                raise _at(error, key) from None
        return merged | pairs if merged else pairs

    def _sequence(self, node: Any, depth: int) -> list[Any]:
        self._count(len(node.value))
        items: list[Any] = []
        try:
            for item in node.value:
                items.append(self.value(item, depth + 1))  # noqa: PERF401 -- its length is needed
        except InputError as error:
            raise _at(error, f"[{len(items)}]") from None
        return items

    def _merged(self, node: Any, depth: int) -> dict[str, Any]:
        """Return what ``<<`` adds: of several maps the first that has a key."""
        maps = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for each in maps:
            if not isinstance(each, yaml.MappingNode) or depth > DEEPEST:
                raise InputError(f"<< must be followed by a map in line {_line(node)}")
            merged = self._mapping(each, depth + 1) | merged
        return merged

    def _count(self, nodes: int) -> None:
        self._visited += nodes
        if self._visited > self._loader.nodes + MOST_ALIASED:
            raise InputError(
                f"aliases must expand to at most {MOST_ALIASED:,} values: write the values out"
            )


def _at(error: InputError, step: str) -> InputError:
    return error.within(path=step) if len(error.path) < _LONGEST_PATH else error


class _TooDeepError(Exception):
    """A node is nested too deep; its path would be too long to be useful."""


def _odd_tag(node: Any) -> InputError:
    tag = node.tag.replace(_TAG, "!!")[:80]
    return InputError(f"{_ACCEPTED}, got {tag} in line {_line(node)}")


def _line(node: Any) -> int:
    line: int = node.start_mark.line + 1
    return line


def _key(node: Any) -> str:
    """Spell a key as JSON does: YAML reads ``8: x`` and ``on: x`` with other keys than text."""
    if not isinstance(node, yaml.ScalarNode):
        raise InputError(f"key must be a string in line {_line(node)}")
    if node.tag == _PLAIN:
        return str(node.value)
    value = _scalar(node)
    if value is None:
        raise InputError(f"key must be a string, got null in line {_line(node)}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _scalar(node: Any) -> Any:
    text, tag = node.value, node.tag
    if tag in (_TEXT, _PLAIN):
        return text
    if tag == _NULL:
        return None
    try:
        if tag == _BOOL:
            return _BOOLS[text.lower()]
        if tag in (_INTEGER, _FLOATING):
            if len(text) > LONGEST_NUMBER:
                raise InputError(
                    f"a number must have at most {LONGEST_NUMBER} characters, got "
                    f"{len(text):,} in line {_line(node)}"
                )
            return _integer(text) if tag == _INTEGER else _floating(text)
    except (ValueError, KeyError):
        short = tag.replace(_TAG, "!!")
        problem = f"must be {short}, got {text[:80]!r} in line {_line(node)}"
        raise InputError(problem) from None
    raise _odd_tag(node)


def _integer(text: str) -> int:
    digits = text.replace("_", "").lstrip("+-")
    base = {"0b": 2, "0x": 16}.get(digits[:2].lower())
    if base is not None:
        number = int(digits[2:], base)
    else:
        number = int(digits, 8 if digits[:1] == "0" and digits != "0" else 10)
    return -number if text[:1] == "-" else number


def _floating(text: str) -> float:
    number = text.replace("_", "").lower()
    if number.lstrip("+-") in (".inf", ".nan"):
        number = number.replace(".", "")
    return float(number)


_Loader.add_implicit_resolver(_INTEGER, _INTEGERS, list("-+0123456789"))
_Loader.add_implicit_resolver(_FLOATING, _FLOATS, list("-+0123456789."))


class _Dumper(yaml.CSafeDumper):
    """Quotes text that YAML 1.1 would take for text and Kubernetes for a number, such as 1e3."""


for _pattern, _tag in ((_FLOATS, _FLOATING), (_INTEGERS, _INTEGER)):
    _Dumper.add_implicit_resolver(_tag, _pattern, list("-+0123456789."))


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
