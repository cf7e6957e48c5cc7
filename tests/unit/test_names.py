"""Checks of names and prose, which ``make check`` runs."""

from pathlib import Path

import pytest
from tests.names_check import gerunds, repeated_aliases, repeated_classes
from tests.prose_check import turns_in


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
    found = repeated_classes(
        package(
            tmp_path,
            a="class Plan: ...\nclass _Row: ...\n",
            b__c="class Plan: ...\nclass _Row: ...\nclass Other: ...\n",
            d=inside,
        )
    )

    assert found == {"Plan": ["a.py", "b/c.py"]}


def test_type_alias_that_is_defined_twice_is_found(tmp_path: Path) -> None:
    """Constants and private aliases may share their names."""
    folder = package(
        tmp_path,
        a="Fees = dict[str, int]\n_Row = list[int]\nMAX = SIZES[0]\n",
        b="Fees = list[int]\n_Row = list[str]\nMAX = SIZES[1]\n",
    )

    assert repeated_aliases(folder) == {"Fees": ["a.py", "b.py"]}


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ('"""Rules of pods."""\n', []),
        ('"""What a pod is."""\n', [(1, "module docstring opens with 'What'")]),
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


def test_kinds_of_the_api_may_share_a_name_but_only_among_themselves(tmp_path: Path) -> None:
    """Kubernetes has two Events; a third one of ours is found."""
    kinds = {"api__core": "class Event: ...\n", "api__events": "class Event: ...\n"}

    assert repeated_classes(package(tmp_path, **kinds)) == {}
    assert list(repeated_classes(package(tmp_path, log="class Event: ...\n"))) == ["Event"]


def test_a_module_that_is_called_by_a_verb_is_found(tmp_path: Path) -> None:
    """Folders, too; words of the field and other words on -ing stay."""
    names = ("judging", "gang_placing", "telling__why", "binding", "pod_scheduling", "ingest")
    folder = package(tmp_path, **dict.fromkeys(names, ""))

    assert gerunds(folder) == ["gang_placing.py", "judging.py", "telling/why.py"]
