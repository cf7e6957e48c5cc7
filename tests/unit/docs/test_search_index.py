"""Index entries of the generated reference, in the index of the site's search."""

import json
from typing import Any

import pytest

PAGE = """# Labels

| label | meaning |
|---|---|
| `koordinator.sh/qosClass` | QoS class; see `koordinator.sh/priority` |
| `--node-name <str>` | name of the node |
| `spec.minMember` | members |
| `spec.minMember` | of another section |
| `/mutate-pod` | webhook |
| group | `apps` |
"""


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return index entries of a small site: number of page, anchor, whether it is a main entry."""
    application = pytest.importorskip("sphinx.application", reason="only where the site is built")
    from docs.search_index import index_names  # noqa: PLC0415 -- needs Sphinx

    folder = tmp_path_factory.mktemp("site")
    for name in ("index", "reference/generated/labels", "reference/generated/rights", "how-to/a"):
        file = folder / f"{name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(PAGE.replace("qosClass", f"qosClass-of-{file.stem}"))
    extensions = {"extensions": ["myst_parser"]}
    app = application.Sphinx(
        folder, None, folder / "out", folder / "trees", "html", extensions, None, warning=None
    )
    app.connect("doctree-read", index_names)
    app.build()
    text = (folder / "out/searchindex.js").read_text("utf-8")
    index: dict[str, Any] = json.loads(text[text.index("{") : text.rindex("}") + 1])
    index_entries: dict[str, list[Any]] = index["indexentries"]
    return index_entries


def test_search_finds_names_as_a_whole(entries: dict[str, list[Any]]) -> None:
    """The first name of each row, once per page, with an anchor; flags without their type."""
    assert {name: anchor for name, [[_, anchor, is_main]] in entries.items() if is_main} == {
        "--node-name": "node-name",
        "/mutate-pod": "mutate-pod",
        "koordinator.sh/qosclass-of-labels": "koordinator-sh-qosclass-of-labels",
        "mutate-pod": "mutate-pod",
        "qosclass-of-labels": "koordinator-sh-qosclass-of-labels",
        "spec.minmember": "spec-minmember",
    }


def test_only_the_generated_reference_is_indexed(entries: dict[str, list[Any]]) -> None:
    """Tables of other pages, and of rights, don't begin with a name."""
    assert not [name for name in entries if name.endswith(("-of-a", "-of-index", "-of-rights"))]
