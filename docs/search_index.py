"""Index entries of the generated reference, by which the site's search finds names as a whole.

The search splits ``koordinator.sh/qosClass`` into words that most pages contain, and orders such
pages by their title.
"""

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

#: Pages whose tables don't begin with a name.
_EXCLUDED = ("compatibility", "rights")
_FOLDER = "reference/generated/"


def index_names(app: Sphinx, doctree: nodes.document) -> None:
    """Index the first name of each row of the generated reference, once per page."""
    page = app.env.docname
    if not page.startswith(_FOLDER) or page.removeprefix(_FOLDER) in _EXCLUDED:
        return
    seen = set()
    for row in list(doctree.findall(nodes.row)):
        literal = next(iter(row[0].findall(nodes.literal)), None)
        if literal is None or literal.astext() in seen:
            continue
        seen.add(literal.astext())
        _index(doctree, literal)


def _index(doctree: nodes.document, literal: nodes.literal) -> None:
    name = literal.astext().split(" ")[0]  # a flag has its type behind it
    target = nodes.target()
    target["names"] = [name]
    doctree.set_id(target)
    anchor = target["ids"][0]
    # ``koordinator.sh/gpu-core`` is searched for as ``gpu-core``, too.
    texts = dict.fromkeys((name, name.strip("/").rpartition("/")[2]))
    entries = [("single", text, anchor, "main", None) for text in texts if ";" not in text]
    literal.replace_self([addnodes.index(entries=entries), target, literal])
