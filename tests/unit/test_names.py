"""The check of names, a part of ``make check``, finds what it is for."""

from pathlib import Path

from tests.names_check import gerunds, repeated_classes


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
