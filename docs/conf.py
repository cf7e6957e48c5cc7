"""Sphinx configuration of the documentation site: ``make docs``."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from docs.generate.__main__ import write_pages  # noqa: E402 # needs the path above
from docs.search_index import index_names  # noqa: E402 # needs the path above
from sphinx.application import Sphinx  # noqa: E402

write_pages(DOCS / "reference/generated")

project = "koordinator"
author = "The koordinator authors"
version = release = installed_version("koordinator")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["generate", "README.md"]
# Decisions and pages link to files of the repository, which the site does not contain.
suppress_warnings = ["myst.xref_missing", "myst.header"]

html_theme = "furo"
html_title = f"koordinator {release}"
html_copy_source = False
html_search_scorer = str(DOCS / "search_ranking.js")  # otherwise relative to the working directory
html_show_sphinx = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"


def setup(app: Sphinx) -> None:
    """Register index entries of names, and the reading of module docstrings.

    Module docstrings list their parts in aligned columns.
    """
    app.connect("autodoc-process-docstring", _keep_columns)
    app.connect("doctree-read", index_names)


def _keep_columns(
    _app: Sphinx, what: str, _name: str, _value: object, _options: object, lines: list[str]
) -> None:
    if what == "module":
        lines[:] = [f"| {line}" if line.strip() else line for line in lines]
