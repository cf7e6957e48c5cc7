"""Checks of names, prose, upstream sources and pages, which ``make check`` runs."""

from pathlib import Path

import pytest
from tests.names_check import (
    adverbs,
    gerunds,
    repeated_names,
    stale_listings,
    unjustified_protocols,
    vague_names,
)
from tests.pages_check import (
    missing_layers,
    missing_modules,
    missing_paths,
    modules,
    outdated_parts,
)
from tests.prose_check import turns_in
from tests.sources_check import UpstreamName, named_sources, verify


def package(folder: Path, **modules: str) -> Path:
    """Write modules, by path with ``__`` for a slash; return their folder."""
    for name, text in modules.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_class_name_that_exists_twice_is_found(tmp_path: Path) -> None:
    """Private classes and classes inside others may share their names."""
    inside = "class Outer:\n    class Plan: ...\n"
    repeated = repeated_names(
        package(
            tmp_path,
            a="class Plan: ...\nclass _Row: ...\n",
            b__c="class Plan: ...\nclass _Row: ...\nclass Other: ...\n",
            d=inside,
        )
    )

    assert repeated == {"Plan": ["a.py", "b/c.py"]}


def test_listed_module_that_does_not_exist_is_found(tmp_path: Path) -> None:
    """Names in running text, and of classes, are no list of modules."""
    listing = "``plan``, ``gone``  plans\n``rows``   rows\n``Row``  a row\nand ``none``."
    folder = package(tmp_path, a__plan="", a__rows="")
    (folder / "a/__init__.py").write_text(f'"""Parts.\n\n{listing}\n"""')

    assert stale_listings(folder) == {"a/__init__.py": ["gone"]}


def test_vague_name_is_found(tmp_path: Path) -> None:
    """In functions, parameters, variables and attributes; words that only contain one are none."""
    text = "def tell(held):\n    asked_s, holder = 1, 2\n    holder.was_told = 3\n"
    folder = package(tmp_path, a=text, b="withheld = threshold = 1\n")

    assert vague_names(folder) == {"a.py": ["asked_s", "held", "was_told"]}


def test_verb_as_the_name_of_a_value_is_found(tmp_path: Path) -> None:
    """Functions may have the verb, and so may the name of an error or a fixture."""
    text = "def is_found(gone):\n    found = not_found = left_as_found = foundation = 1\n"
    folder = package(tmp_path, a=text, b='"""found, gone."""\n')

    assert vague_names(folder) == {"a.py": ["found", "gone"]}


def test_adverb_as_the_name_of_a_value_is_found(tmp_path: Path) -> None:
    """A name that only contains an adverb is none."""
    folder = package(
        tmp_path, a="def add(there):\n    here, is_there = there, True\n", b="lookup_there = 1"
    )

    assert adverbs(folder) == {"a.py": ["here", "there"]}


def test_type_alias_that_is_defined_twice_is_found(tmp_path: Path) -> None:
    """Constants and private aliases may share their names."""
    folder = package(
        tmp_path,
        a="Fees = dict[str, int]\n_Row = list[int]\nMAX = SIZES[0]\n",
        b="Fees = list[int]\n_Row = list[str]\nMAX = SIZES[1]\n",
    )

    assert repeated_names(folder) == {"Fees": ["a.py", "b.py"]}


def test_class_with_the_name_of_a_type_alias_is_found(tmp_path: Path) -> None:
    """A word has one meaning, whether a class or an alias defines it."""
    folder = package(tmp_path, a="Fees = dict[str, int]\n", b="class Fees: ...\n")

    assert repeated_names(folder) == {"Fees": ["a.py", "b.py"]}


def test_protocol_of_one_class_without_a_rule_is_found(tmp_path: Path) -> None:
    """With two implementations, or with the rule in its docstring, a Protocol may stay."""
    read, write = "    def read(self): ...\n", "    def write(self): ...\n"
    folder = package(
        tmp_path,
        a=f"class Reader(Protocol):\n{read}class Writer(Protocol):\n{write}",
        b=f"class File:\n{read}{write}class Socket:\n{write}",
        c="class Tool(Reader, Protocol):\n    'Rule R2.'\n    def run(self): ...\n",
        d=f"class Program:\n{read}    def run(self): ...\n",
    )
    assert unjustified_protocols(folder) == []

    (folder / "d.py").write_text("")
    assert unjustified_protocols(folder) == ["a.py:Reader"]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ('"""Rules of pods."""\n', []),
        ('"""What a pod is."""\n', [(1, "docstring opens with 'What', not with a noun")]),
        (
            '"""Rules."""\n\nclass Pod:\n    """How a pod runs."""\n',
            [(3, "docstring opens with 'How', not with a noun")],
        ),
        ('"""Rules."""\n\ndef is_a() -> bool:\n    """Whether it is one."""\n', []),
        (
            '"""Rules."""\n\ndef test_a() -> None:\n    """And no pod is lost."""\n',
            [(3, "docstring opens with 'And', so it needs its neighbour")],
        ),
        ('"""Rules."""\n\ndef test_a() -> None:\n    """Others stay, and so do pods."""\n', []),
        ('"""Rules of pods.\n\nNobody is told.\n"""\n', [(3, "Nobody"), (3, "told")]),
        ('"""Rules."""\n\nX = 1  # whoever asks\n', [(3, "whoever")]),
        ('"""Rules of ``nobody``, which an original says: "gone"."""\n', [(1, "says")]),
    ],
)
def test_private_idiom_in_docstrings_and_comments_is_found(
    tmp_path: Path, text: str, places: list[tuple[int, str]]
) -> None:
    """Quoted texts, in double back quotes or quotation marks, are not checked."""
    path = tmp_path / "a.py"
    path.write_text(text)

    assert turns_in(path) == places


@pytest.mark.parametrize(
    ("opening", "is_rejected"),
    [
        ("Also evicted", True),
        ("It is evicted", True),
        ("Its node is free", True),
        ("They wait", True),
        ("Their node is free", True),
        ("Those that wait", True),
        ("Both are evicted", True),
        ("Neither is evicted", True),
        ("One of them is evicted", True),
        ("One that waits is evicted", True),
        ("Each has a node", True),
        ("One pod is evicted", False),
        ("Each pod has a node", False),
        ("Items are evicted", False),
        ("None means no limit", False),
    ],
)
def test_docstring_that_needs_the_name_of_its_function_is_found(
    tmp_path: Path, opening: str, is_rejected: bool
) -> None:
    """A pronoun or a conjunction at the start refers to something outside the docstring."""
    path = tmp_path / "a.py"
    path.write_text(f'def test_pods() -> None:\n    """{opening}."""\n')

    assert [line for line, _ in turns_in(path)] == ([1] if is_rejected else [])


def test_kinds_of_the_api_may_share_a_name_but_only_among_themselves(tmp_path: Path) -> None:
    """Kubernetes has two Events; a third one of ours is found."""
    kinds = {"api__core": "class Event: ...\n", "api__events": "class Event: ...\n"}

    assert repeated_names(package(tmp_path, **kinds)) == {}
    assert list(repeated_names(package(tmp_path, log="class Event: ...\n"))) == ["Event"]


def test_a_module_that_is_called_by_a_verb_is_found(tmp_path: Path) -> None:
    """Folders, too; words of the field and other words on -ing stay."""
    names = ("judging", "gang_placing", "telling__why", "binding", "pod_scheduling", "ingest")
    folder = package(tmp_path, **dict.fromkeys(names, ""))

    assert gerunds(folder) == ["gang_placing.py", "judging.py", "telling/why.py"]


def test_upstream_name_without_verification_is_found(tmp_path: Path) -> None:
    """Paths and identifiers belong to the repository that is named before them."""
    package(
        tmp_path,
        a='"""Rules.\n\nSource: koordinator pkg/a.go, ``Fit``; k8s.io/api core/v1;\n'
        'kubernetes pkg/b, ``Score``.\n"""\n',
        b='"""Rules, ``Other``.\n\nSource: HAMi pkg/c.go.\n"""\n',
    )

    assert named_sources(tmp_path) == {
        ("koordinator", "pkg/a.go"): "a.py",
        ("koordinator", "Fit"): "a.py",
        ("kubernetes", "pkg/b"): "a.py",
        ("kubernetes", "Score"): "a.py",
    }


def test_name_is_verified_in_a_checkout_of_its_repository(tmp_path: Path) -> None:
    """An identifier may be qualified; every part of it has to exist."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/a.go").write_text("func (p *Plugin) Fit() {}\n")
    names = [
        UpstreamName("koordinator", text) for text in ("pkg/a.go", "pkg/b.go", "Plugin.Fit", "fit")
    ]

    assert verify(names, {"koordinator": tmp_path}) == {names[0], names[2]}


def test_path_or_link_of_a_page_that_names_nothing_is_found(tmp_path: Path) -> None:
    """Code blocks, other repositories' paths and images are not checked."""
    page = tmp_path / "page.md"
    page.write_text(
        "`scheduler/contract/` `scheduler/no/` `pkg/a.go` `foundation/nothing.py`\n"
        "[here](page.md) [there](https://example.com) [away](other.md#part)\n"
        "```\n`scheduler/neither/`\n```\n"
    )

    assert [*missing_paths(page)] == ["other.md", "scheduler/no/", "foundation/nothing.py"]


def test_module_named_in_a_page_that_does_not_exist_is_found(tmp_path: Path) -> None:
    """A module has the end of its path as its name; a last part may be something it defines."""
    folder = package(tmp_path, loop__units="LIMIT = 1\nclass Unit: ...\n")
    (folder / "loop/__init__.py").touch()
    text = "`loop.units`, `units.Unit`, `loop.units.LIMIT`, `loop.gone`, `loop.units.x`, `a.b`"

    assert list(missing_modules(text, modules(folder))) == ["loop.gone", "loop.units.x"]


def test_missing_order_of_layers_in_a_page_is_reported() -> None:
    """The row of a rule has the layers of its contract, in their order."""
    contracts: list[dict[str, object]] = [
        {"name": "R1 system", "layers": ["cli", "api | host"]},
        {"name": "R2 loop", "layers": ["b", "a"]},
        {"name": "R3 adapters", "allowed_importers": ["cli"]},
    ]
    page = "| R1 | inside: cli > api, host |\n| R2 | a > b |\n"

    assert list(missing_layers(page, contracts)) == ["R2 loop: b > a"]


def test_part_that_the_list_of_a_component_lacks_is_found(tmp_path: Path) -> None:
    """Continued lines and the lists of other components do not count."""
    folder = package(tmp_path / "scheduler", loop="", cycle__run="", __init__="")
    page = (
        "\n   scheduler ───\n     loop  events in,\n           run\n     old  x\n\n     cycle  y\n"
    )

    assert list(outdated_parts(page, folder)) == ["cycle is not listed", "old does not exist"]
