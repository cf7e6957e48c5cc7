"""The frame of every page that is written: one HTML file that loads nothing.

A content security policy holds it to that.  report.css has the looks.
"""

from importlib.resources import files

from koordinator.simulator.markup import Markup, element

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def html_page(title: str, *content: str) -> str:
    """Return a whole page; ``content`` is what stands in its body."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", asset("report.css")),
    )
    body = element("body", *content)
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def section(title: str, *content: str) -> Markup:
    """Return a part of a page under a heading."""
    return element("section", element("h2", title), *content)


def asset(name: str) -> Markup:
    """Return a file of this package as it is put into pages."""
    return Markup(files("koordinator.simulator").joinpath(name).read_text("utf-8"))
