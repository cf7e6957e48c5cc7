"""Names in the package: a public class or type alias exists once, a module is called by a noun.

Packages list in their docstrings only modules that they have.  A Protocol with one implementation
exists only where an import rule requires it, and its docstring names the rule.  Names of functions,
parameters and variables have none of the words of ``VAGUE_WORDS``: ``held`` names no value, but
``requests``, ``allocation`` and ``message`` do.  Words of ``VAGUE_VALUES`` are verbs that functions
may have: a docstring may state that something *is found*, but ``found`` is not the name of a node.
No value of the package is called by one of the ``ADVERBS``.
``python -m tests.names_check`` prints what breaks a rule, and exits 1 if anything does; it is a
part of ``make check``.  Several kinds of the API may have one name, since Kubernetes chose it.
"""

import ast
import functools
import gc
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/koordinator"

#: Folders in which names have no vague words.
NAMED = ("src/koordinator", "tests", "benchmarks", "examples")

#: Words that no name has, since the field has a noun for what the value is.
VAGUE_WORDS = frozenset(
    {
        "anew",
        "anybody",
        "asked",
        "everybody",
        "heard",
        "hears",
        "heed",
        "heeds",
        "held",
        "nobody",
        "said",
        "says",
        "somebody",
        "spoken",
        "tells",
        "told",
        "untold",
        "unheard",
        "whoever",
    }
)

#: Words that no parameter, variable or attribute has, except as in ``not_found`` and ``as_found``.
VAGUE_VALUES = frozenset({"found", "gone", "lack", "lacking", "sought"})

#: Words that are not the whole name of a parameter, variable or attribute of the package.
ADVERBS = frozenset({"elsewhere", "here", "nowhere", "there", "what", "where"})

_VAGUE = re.compile(rf"(?<![a-z])(?:{'|'.join(sorted(VAGUE_WORDS))})(?![a-z])", re.IGNORECASE)
_VAGUE_VALUE = re.compile(
    rf"(?<![a-z])(?<!not_)(?<!as_)(?:{'|'.join(sorted(VAGUE_VALUES))})(?![a-z])"
)
#: The same where a name is bound; prose between quotation marks seldom looks so.
_BOUND_VALUE = re.compile(rf"{_VAGUE_VALUE.pattern}\w* *(?:[:=,)]| in )")

#: Names that stay although they exist more than once, with the reason.
SHARED: Mapping[str, str] = {}

#: Spelling of a type alias: the name of a constant has capital letters only.
_CAPITALIZED = re.compile("_?[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")

#: Modules that stay although a verb is their name, with the reason.
VERBS: Mapping[str, str] = {}

#: Words on -ing that are nouns of the field.
NOUNS = frozenset(
    {
        "binding",  # the subresource of pods
        "coscheduling",
        "descheduling",
        "nesting",
        "packing",
        "provisioning",  # of volumes
        "recording",
        "rounding",
        "scheduling",
        "sharing",  # of GPUs
        "testing",  # the name that numpy, pandas and Django give such a package
    }
)


#: Name of an import rule of ``pyproject.toml`` in a docstring.
_RULE = re.compile(r"\bRule R\d+\b")

#: Protocols with one implementation that code outside the package may implement.
EXTENSION_POINTS = frozenset({"descheduler/contract.py:DeferringEvictPlugin"})

#: Names at the start of a line, as packages list their modules: ``a``, ``b``  what they are.
_LISTING = re.compile(r"^(``\w+``(?:, ``\w+``)*) +\S", re.MULTILINE)


def repeated_names(source: Path = SOURCE) -> dict[str, list[str]]:
    """Return the modules of every public class or type alias whose name is defined repeatedly."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in _modules(source):
        for node in tree.body:
            name = node.name if isinstance(node, ast.ClassDef) else _alias_name(node)
            if name is not None and not name.startswith("_"):
                places[name].append(path)
    return {
        name: paths
        for name, paths in sorted(places.items())
        if len(paths) > 1 and name not in SHARED and not _is_kind_alone(paths)
    }


def _alias_name(node: ast.stmt) -> str | None:
    """Return the name that ``X = Mapping[…]`` defines, if it is an alias."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
        target = node.targets[0]
        if isinstance(target, ast.Name) and re.fullmatch(
            "_?[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*", target.id
        ):
            return target.id
    return None


def gerunds(source: Path = SOURCE) -> list[str]:
    """Return the modules and packages whose last word ends in -ing and is no noun of the field."""
    paths = set()
    for path, _ in _modules(source):
        for part in path.removesuffix(".py").split("/"):
            word = part.rpartition("_")[2]
            if word.endswith("ing") and word not in NOUNS and path not in VERBS:
                paths.add(path)
    return sorted(paths)


def stale_listings(source: Path = SOURCE) -> dict[str, list[str]]:
    """Return the modules that the docstring of a package lists and the package does not have."""
    stale: dict[str, list[str]] = {}
    for path, tree in _modules(source):
        folder = source / path
        if folder.name != "__init__.py":
            continue
        modules = {entry.stem for entry in folder.parent.iterdir()}
        listed = [
            name
            for line in _LISTING.findall(ast.get_docstring(tree) or "")
            for name in re.findall(r"\w+", line)
            if name not in modules and name.islower()
        ]
        if listed:
            stale[path] = listed
    return stale


def vague_names(folder: Path) -> dict[str, list[str]]:
    """Return the names with a vague word that the modules of a folder define."""
    vague: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        if not _has_vague(text):  # parsing all files takes long
            continue
        defined = {name for node in ast.walk(_parsed(text)) for name in _vague(node)}
        if defined:
            vague[path.relative_to(folder).as_posix()] = sorted(defined)
    return vague


def adverbs(source: Path = SOURCE) -> dict[str, list[str]]:
    """Return the parameters, variables and attributes with an adverb as their name, by module."""
    named: dict[str, list[str]] = {}
    for path, tree in _modules(source):
        names = {
            name
            for node in ast.walk(tree)
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for name in _defined(node)
            if name in ADVERBS
        }
        if names:
            named[path] = sorted(names)
    return named


def _has_vague(text: str) -> bool:
    """Return whether a name of a module can have such a word; str.find is faster than a pattern."""
    lower = text.lower()
    if any(word in lower for word in VAGUE_WORDS) and _VAGUE.search(text):
        return True
    return any(word in text for word in VAGUE_VALUES) and bool(_BOUND_VALUE.search(text))


def _vague(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node defines or assigns, if it has a word that it may not have."""
    is_value = not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    for name in _defined(node):
        if _VAGUE.search(name) or (is_value and _VAGUE_VALUE.search(name)):
            yield name


def _defined(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node defines or assigns."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr


def unjustified_protocols(source: Path = SOURCE) -> list[str]:
    """Return the Protocols with one implementation, and without an import rule in the docstring.

    An implementation is a class with methods of all the names of the Protocol.
    """
    classes = {
        f"{path}:{node.name}": node
        for path, tree in _modules(source)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    protocols = {place for place, node in classes.items() if "Protocol" in _bases(node)}
    by_name = {node.name: node for place, node in classes.items() if place in protocols}
    members = {place: _methods(node) for place, node in classes.items() if place not in protocols}
    places = []
    for place in sorted(protocols - EXTENSION_POINTS):
        node = classes[place]
        wanted = _methods(node).union(
            *(_methods(by_name[base]) for base in _bases(node) if base in by_name)
        )
        implementations = sum(wanted <= names for names in members.values())
        if implementations == 1 and not _RULE.search(ast.get_docstring(node) or ""):
            places.append(place)
    return places


def _bases(node: ast.ClassDef) -> set[str]:
    return {base.id for base in node.bases if isinstance(base, ast.Name)}


def _methods(node: ast.ClassDef) -> set[str]:
    return {
        part.name
        for part in node.body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_accessor(part)
    }


def _is_accessor(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether it is a property, for which an implementation may have an attribute."""
    return any(ast.unparse(decorator) == "property" for decorator in node.decorator_list)


def _modules(source: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(source.rglob("*.py")):
        yield path.relative_to(source).as_posix(), _parsed(path.read_text("utf-8"))


@functools.cache  # parsing takes most of the time of the check
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _is_kind_alone(paths: list[str]) -> bool:
    return all(path.startswith("api/") for path in paths)


def main() -> int:
    """Print what breaks a rule; return the exit status."""
    gc.disable()  # the trees of all modules stay until the end: searching them takes long
    wrong = [
        f"{name} is defined in {' and '.join(paths)}: give each a name that says what it is"
        for name, paths in repeated_names().items()
    ]
    wrong += [f"module {path} is called by a verb: name what is in it" for path in gerunds()]
    wrong += [
        f"Protocol {place} has one implementation: use the class, or name the rule that forbids it"
        for place in unjustified_protocols()
    ]
    wrong += [
        f"{path} lists {', '.join(names)}, which the package does not have"
        for path, names in stale_listings().items()
    ]
    wrong += [
        f"{folder}/{path} has {', '.join(names)}: name what each is, such as a request or a message"
        for folder in NAMED
        for path, names in vague_names(ROOT / folder).items()
    ]
    wrong += [
        f"{path} has {', '.join(names)}: name what each is, such as rows or amounts"
        for path, names in adverbs().items()
    ]
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
