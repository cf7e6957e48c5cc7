"""Components that read or write a constant of the API, found in the source.

A use within a shared module counts for each component that imports what contains the use.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from docs.generate.declarations import PACKAGE

#: Names of packages that are components; uses in any other package count for its importers.
COMPONENTS: Final[Mapping[str, str]] = {
    "scheduler": "koord-scheduler",
    "manager": "koord-manager",
    "descheduler": "koord-descheduler",
    "koordlet": "koordlet",
    "device_daemon": "koord-device-daemon",
    "vgpu_monitor": "koord vgpu-monitor",
    "yarn": "koord-yarn-operator",
}
#: Packages of commands and of tests, which are not components.
_LEFT_OUT: Final = frozenset({"cli", "dashboard", "simulator", "testing"})
_WRITING: Final = frozenset({"entry", "write"})  # methods of an AnnotationCodec
#: Lists of all kinds and devices: a component that reads one depends on no particular constant.
_LISTS: Final = frozenset({"KINDS", "NAMES"})
#: Keys, by definition, of objects that stay in memory or are shown as a proposal: to build one is
#: not to write it.
IN_MEMORY: Final[Mapping[str, frozenset[str]]] = {
    "domain.gangs.terms.terms_of_texts": frozenset({"LIGHTWEIGHT_MIN_AVAILABLE"}),
    "domain.reserve_pod.reserve_pod": frozenset(
        {"IS_PRE_ALLOCATION", "RESERVATION_NAME", "RESERVATION_NODE", "RESERVE_POD"}
    ),
    "manager.admission.lookup.QuotaChange": frozenset({"_ANNOTATIONS", "_LABELS"}),
    "manager.admission.quotas.charged": frozenset({"CHILD_REQUEST"}),
    "manager.lookups.ReaderLookup": frozenset({"QUOTA_NAME"}),
    "manager.quota_view._as_child": frozenset({"NAMESPACES", "QUOTA_PARENT"}),
    "manager.quota_view._as_parent": frozenset({"QUOTA_IS_PARENT"}),
    "scheduler.plugins.device_share.requests.Templates": frozenset({"WISHES"}),
    "scheduler.plugins.node_numa_resource.messages.weaker_policies": frozenset(
        {"NUMA_TOPOLOGY_SPEC", "RESOURCE_SPEC"}
    ),
    "scheduler.plugins.reservation.plugin.Reservations": frozenset({"AFFINITY"}),
    "scheduler.plugins.reservation.pre_allocation.PreAllocation": frozenset({"NODE_RESERVATION"}),
    "scheduler.rules.cpus.layout._decoded": frozenset({"CPU_TOPOLOGY"}),
    "scheduler.snapshot.pod_allocation.read_pod_allocation": frozenset({"KEYS"}),
    "yarn.mirror.node_as_read": frozenset({"_NOTES"}),
    "yarn.mirror.pod_as_read": frozenset({"COMPONENT", "_NOTES"}),
}
#: Fields of vendors of devices that components use by their names alone.  True where what is done
#: with the value is to write it.
FIELDS: Final[Mapping[str, bool]] = {"adapt": False, "node_lock": True}
_Name = tuple[str, str]  # module, and name on its top level; or "" and name of one of FIELDS


@dataclass(frozen=True, slots=True)
class Users:
    """Components by what they do with a constant."""

    readers: frozenset[str]
    writers: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Use:
    """A use of a name within a definition on the top level of a module."""

    name: _Name
    within: _Name
    component: str  # empty in a shared module
    writes: bool
    in_table: bool = False  # in a constant, whose keys other definitions read or write


def users_of(module: str, name: str) -> Users:
    """Return the components that use a constant of a module of the API."""
    readers = _components((module, name), writes=False)
    return Users(readers, _components((module, name), writes=True))


def _components(constant: _Name, *, writes: bool) -> frozenset[str]:
    """Return components that use a constant directly, or something shared that does."""
    components, seen, pending = set(), {constant}, [constant]
    keys = {constant}  # and tables that have it
    while pending:
        used = pending.pop()
        for use in _uses().get(used, ()):
            if used in keys and use.writes != writes:
                if use.in_table and use.within not in seen:
                    seen.add(use.within)
                    keys.add(use.within)
                    pending.append(use.within)
                continue
            if use.component:
                components.add(use.component)
            elif use.within not in seen:
                seen.add(use.within)
                pending.append(use.within)
    return frozenset(components)


@cache
def _uses() -> Mapping[_Name, list[_Use]]:
    trees = {
        _module_name(path): ast.parse(path.read_text("utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in _LEFT_OUT
    }
    imports = {module: dict(_imports(tree)) for module, tree in trees.items()}
    found: dict[_Name, list[_Use]] = {}
    for module, tree in trees.items():
        package = module.split(".")[1] if "." in module else ""
        for use in _uses_in(module, tree, imports, COMPONENTS.get(package, "")):
            found.setdefault(_origin(use.name, imports), []).append(use)
    return found


def _origin(name: _Name, imports: Mapping[str, Mapping[str, _Name]]) -> _Name:
    """Return where a name is defined that a package may only pass on."""
    while (passed_on := imports.get(name[0], {}).get(name[1])) is not None:
        name = passed_on
    return name


def _module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _uses_in(
    module: str, tree: ast.Module, imports: Mapping[str, Mapping[str, _Name]], component: str
) -> Iterator[_Use]:
    known = {**imports[module]}
    known |= {name: (module, name) for node in tree.body for name in _defined(node)}
    for node in tree.body:
        definitions = [name for name in _defined(node) if name not in _LISTS]
        parts = [*ast.walk(node)] if definitions else []
        is_table = isinstance(node, ast.Assign | ast.AnnAssign)  # its keys are looked up
        given = dict(_given(parts)) if is_table else {}
        for part, field in given.items():
            if name := _referred(part, known):
                yield _Use(name, ("", field), "", FIELDS[field])
        written = set() if is_table else {*_written(parts)}
        names = {
            (name, part in written)
            for part in parts
            if part not in given and (name := _referred(part, known))
        }
        for definition in definitions:
            own = f"{module.partition('.')[2]}.{definition}"
            for name, writes in names:
                if name != (module, definition):
                    is_write = writes and name[1] not in IN_MEMORY.get(own, ())
                    yield _Use(name, (module, definition), component, is_write, is_table)


def _imports(tree: ast.Module) -> Iterator[tuple[str, _Name]]:
    """Yield local names, each with its module and its name there."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                yield each.asname or each.name, (node.module, each.name)


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [each.id for each in node.targets if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _referred(node: ast.AST, known: Mapping[str, _Name]) -> _Name | None:
    """Return module and name of a reference; None for a local one."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        if node.attr in FIELDS:
            return ("", node.attr)
        imported = known.get(node.value.id) if isinstance(node.value, ast.Name) else None
        return (".".join(imported), node.attr) if imported is not None else None
    return None


def _given(parts: Iterable[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
    """Yield values of FIELDS in a table, each with its field."""
    for each in parts:
        if isinstance(each, ast.keyword) and each.arg is not None and each.arg in FIELDS:
            yield each.value, each.arg


def _written(parts: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield expressions that are keys of new entries, or the codec of one.

    A key in a variable is what was assigned to it.
    """
    assigned: dict[str, list[ast.AST]] = {}
    for variable, value in _assigned(parts):
        assigned.setdefault(variable, []).append(value)
    for each in parts:
        match each:
            case ast.Dict():
                keys: list[ast.expr | None] = list(each.keys)
            case ast.DictComp(
                key=ast.Name(id=bound),
                generators=[ast.comprehension(target=ast.Name(id=variable), iter=table)],
            ):
                keys = [table] if bound == variable else []  # {key: … for key in TABLE}
            case ast.Subscript(ctx=ast.Store()):
                keys = [each.slice]
            case ast.Call(func=ast.Attribute(value=codec, attr=attr)) if attr in _WRITING:
                keys = [codec]
            case _:
                keys = []
        for key in filter(None, keys):
            yield key
            yield from assigned.get(key.id, ()) if isinstance(key, ast.Name) else ()
            match key:
                case ast.Attribute(value=codec, attr="key"):  # CODEC.key: …
                    yield codec


def _assigned(parts: Iterable[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Yield names of variables, each with an expression that is assigned to it."""
    for each in parts:
        match each:
            case ast.Assign(targets=[ast.Name(id=variable)], value=value):
                yield variable, value
            case ast.Assign(targets=[ast.Tuple(elts=variables)], value=ast.Tuple(elts=values)):
                for target, value in zip(variables, values, strict=True):
                    if isinstance(target, ast.Name):
                        yield target.id, value
