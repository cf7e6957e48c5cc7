"""Constants, structs and string literals of Go sources, read without a Go compiler."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

_IMPORT = re.compile(r'^\s*(?:import\s+)?(\w+\s+)?"([\w./-]+)"\s*$', re.MULTILINE)
_CONSTANT = re.compile(
    r"^[ \t]*(?:const |var )?(\w+)(?:[ \t]+[\w.]+)?[ \t]*=[ \t]*"
    r'((?:"[^"\n]*"|[\w.]+)(?:\s*\+\s*(?:"[^"\n]*"|[\w.]+))*)[ \t]*(?://.*)?$',
    re.MULTILINE,
)
_STRUCT = re.compile(r"^(\t?)(?:type )?(\w+) struct \{\n(.*?)^\1\}", re.MULTILINE | re.DOTALL)
_OTHER_TYPE = re.compile(r"^\t?type (\w+) =? ?([*\[\]\w.]+)$", re.MULTILINE)
_FIELD = re.compile(
    r'^\s+(?:(\w+)\s+)?([*\[\]\w.]+)(?:\s+`[^`]*?json:"([^"]*)"[^`]*`)?\s*(?://.*)?$'
)
_TERM = re.compile(r'"([^"\n]*)"|([\w.]+)')
_LITERAL = re.compile(r'"([^"\\\n]+)"')
_FLAG = re.compile(r'\.\w*Var\w*\(\s*[^,"()]+(?:\([^()]*\))?[^,"()]*,\s*("[\w-]+"|\w+),')
_OWN_FLAG = re.compile(r'\.(?:Bool|Duration|Float64|Int|Int64|String|StringSlice)P?\(("[\w-]+"),')
_MAP = re.compile(r"map\[[\w.]+\](.*)")
_DEEPEST = 12
#: Constants of other modules that Koordinator uses.
_OF_OTHERS = {
    "PodGroupLabel": "pod-group.scheduling.sigs.k8s.io",
    "ResourceDefaultNamespacePrefix": "kubernetes.io/",
    "SchedulerSubsystem": "scheduler",
}


@dataclass(frozen=True, slots=True)
class _Field:
    name: str  # in JSON; empty for the fields of an embedded struct
    type: str


@dataclass(frozen=True, slots=True)
class _Package:
    constants: dict[str, str] = field(default_factory=dict)  # expressions by name
    structs: dict[str, tuple[_Field, ...]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)  # of another type
    imports: dict[str, str] = field(default_factory=dict)  # paths by local name


@dataclass(frozen=True)
class GoSources:
    """Sources of one release: texts by path, without tests and generated files."""

    files: Mapping[str, str]

    def constants(self, *folders: str) -> frozenset[str]:
        """Return the values of the text constants below some folders."""
        found = {
            self._value(folder, expression, 0)
            for folder, package in self._packages.items()
            if _is_below(folder, folders)
            for expression in package.constants.values()
        }
        found |= {
            value
            for name, value in _OF_OTHERS.items()
            for path, text in self.files.items()
            if f".{name}" in text and _is_below(posixpath.dirname(path), folders)
        }
        return frozenset(filter(None, found))

    def literals(self, *folders: str) -> frozenset[str]:
        """Return the texts in quotation marks below some folders."""
        return frozenset(
            literal
            for path, text in self.files.items()
            if _is_below(posixpath.dirname(path), folders)
            for literal in _LITERAL.findall(text)
        )

    def flags(self, *folders: str) -> frozenset[str]:
        """Return the names of the flags that are declared below some folders."""
        return frozenset(
            self._value(posixpath.dirname(path), expression, 0)
            for path, text in self.files.items()
            if _is_below(posixpath.dirname(path), folders)
            for expression in (*_FLAG.findall(text), *_OWN_FLAG.findall(text))
        ) - {""}

    def metrics(self) -> frozenset[str]:
        """Return the names of metrics, with any namespace or subsystem that is declared."""
        names = self._given_to("Name")
        names |= {f"{space}_{name}" for space in self._given_to("Namespace") for name in names}
        subsystems = self._given_to("Subsystem")
        return names | {f"{subsystem}_{name}" for subsystem in subsystems for name in names}

    def has_struct(self, folder: str, name: str) -> bool:
        """Return whether a package has a struct, or another name of one."""
        package = self._packages.get(folder, _Package())
        return name in package.structs or name in package.types

    def _given_to(self, keyword: str) -> frozenset[str]:
        """Return the values that composite literals give to a field, such as ``Name: …``."""
        assigned = re.compile(rf'\b{keyword}:\s*("[^"\n]*"|[\w.]+)')
        return frozenset(
            value
            for path, text in self.files.items()
            for expression in assigned.findall(text)
            if (value := self._value(posixpath.dirname(path), expression, 0))
        )

    def fields(self, folder: str, struct: str) -> Mapping[str, bool]:
        """Return JSON paths of the fields of a struct; true if the type is not in the sources."""
        return dict(self._fields(folder, struct, "", 0))

    def folders(self, pattern: str) -> Iterator[str]:
        """Yield the folders whose path matches a pattern."""
        for folder in self._packages:
            if re.fullmatch(pattern, folder):
                yield folder

    @cached_property
    def _packages(self) -> Mapping[str, _Package]:
        found: dict[str, _Package] = {}
        for path, text in self.files.items():
            package = found.setdefault(posixpath.dirname(path), _Package())
            package.constants.update(_CONSTANT.findall(text))
            package.types.update(_OTHER_TYPE.findall(text))
            for _, name, body in _STRUCT.findall(text):
                package.structs[name] = tuple(_struct_fields(body.splitlines()))
            for alias, imported in _IMPORT.findall(text):
                package.imports[alias.strip() or posixpath.basename(imported)] = imported
        return found

    def _value(self, folder: str, expression: str, depth: int) -> str:
        """Return the text of an expression; empty if a part of it is unknown."""
        parts = []
        for literal, name in _TERM.findall(expression):
            text = literal
            if name:
                home, constant = self._resolved(folder, name)
                inner = self._packages[home].constants.get(constant, "") if home else ""
                # A folder of Kubernetes, pkg/scheduler/metrics, is also one of Koordinator.
                text = "" if inner else _OF_OTHERS.get(constant, "")
                if inner and depth < _DEEPEST:
                    text = self._value(home, inner, depth + 1)
                if not text:
                    return ""
            parts.append(text)
        return "".join(parts)

    def _resolved(self, folder: str, name: str) -> tuple[str, str]:
        """Return folder and name of what a name refers to; an unknown package has no folder."""
        alias, _, inner = name.rpartition(".")
        if not alias:
            return folder, inner
        imported = self._packages[folder].imports.get(alias, "")
        if imported not in self._homes:
            homes = (each for each in self._packages if imported.endswith(f"/{each}"))
            self._homes[imported] = max(homes, key=len, default="")
        return self._homes[imported], inner

    @cached_property
    def _homes(self) -> dict[str, str]:
        """Folders by import path; empty for other modules."""
        return {}

    def _fields(
        self, folder: str, struct: str, prefix: str, depth: int
    ) -> Iterator[tuple[str, bool]]:
        package = self._packages.get(folder, _Package())
        if struct in package.types and depth < _DEEPEST:
            home, name = self._resolved(folder, package.types[struct].lstrip("*"))
            yield from self._fields(home, name, prefix, depth + 1)
        for each in package.structs.get(struct, ()):
            suffix, plain = _element(each.type)
            home, inner = self._resolved(folder, plain)
            if home and inner in self._packages[home].types:
                outer = suffix
                suffix, aliased = _element(self._packages[home].types[inner])
                home, inner = self._resolved(home, aliased)
                suffix = outer + suffix
            known = bool(home) and inner in self._packages[home].structs
            path = f"{prefix}{each.name}"
            if each.name:
                yield path, "." in plain and not known
            if known and depth < _DEEPEST:
                below = f"{path}{suffix}." if each.name else prefix
                yield from self._fields(home, inner, below, depth + 1)


def _struct_fields(lines: Iterable[str]) -> Iterator[_Field]:
    for line in lines:
        found = _FIELD.match(line)
        if found is not None:
            name, kind, tag = found[1], found[2], found[3]
            in_json, *options = (tag or "").split(",")
            if name is None or "inline" in options:
                yield _Field("", kind)
            elif in_json != "-":
                yield _Field(in_json or name, kind)


def _element(kind: str) -> tuple[str, str]:
    """Return the suffix of a path that a list or a map adds, and the type of the elements."""
    suffix = ""
    while True:
        kind = kind.removeprefix("*")
        if kind.startswith("[]"):
            suffix, kind = f"{suffix}[]", kind[2:]
        elif (entries := _MAP.fullmatch(kind)) is not None:
            suffix, kind = f"{suffix}.<key>", entries[1]
        else:
            return suffix, kind


def _is_below(folder: str, folders: Iterable[str]) -> bool:
    return any(f"{folder}/".startswith(f"{each}/") for each in folders)
