"""Self-contained HTML file of a result page, built from the dashboard's bundle and its data.

The content security policy permits the bundle by its digest and nothing else.
"""

import base64
import hashlib
from html import escape
from importlib.resources import files

import msgspec

from koordinator.simulator.page import ResultPage

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<div id="app"></div>
<noscript>{title}: this page needs JavaScript. Use -o json for the same data.</noscript>
<script type="application/json" id="results">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def offline_page(page: ResultPage) -> str:
    """Return the text of the HTML file."""
    script, style = _asset("dashboard.js"), _asset("dashboard.css")
    policy = (
        f"default-src 'none'; img-src data:; script-src {_digest(script)}; "
        f"style-src {_digest(style)}; base-uri 'none'; form-action 'none'"
    )
    # Only "<" can end a script element.  In JSON it occurs in strings only, where the escape is
    # valid.
    data = msgspec.json.encode(page).decode().replace("<", "\\u003c")
    return _PAGE.format(
        policy=escape(policy), title=escape(page.title), style=style, data=data, script=script
    )


def _asset(name: str) -> str:
    return files("koordinator.dashboard").joinpath("static", name).read_text("utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
