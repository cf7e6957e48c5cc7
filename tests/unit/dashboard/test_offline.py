"""Self-contained HTML file of a result page."""

import base64
import hashlib
import json
import re

from koordinator.dashboard.offline import offline_page
from koordinator.simulator.page import PageMark, PageSection, ResultPage

NASTY = "</script><script>alert('x')</script> & <!-- \"quotes\""


def page(text: str = "t") -> ResultPage:
    marks = (PageMark(1.0, text),)
    return ResultPage(title=text, facts=(text,), sections=(PageSection(title=text, marks=marks),))


def test_policy_permits_only_the_bundle() -> None:
    """The policy names the script and the style by their digests."""
    html = offline_page(page())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src &#x27;none&#x27;")
    for kind, pattern in (
        ("script", r'<script type="module">(.*)</script>'),
        ("style", r"<style>(.*)</style>"),
    ):
        inside = re.search(pattern, html, re.DOTALL)
        assert inside is not None
        digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
        assert f"{kind}-src &#x27;sha256-{digest}&#x27;" in policy[1]


def test_hostile_text_stays_inside_json_strings() -> None:
    html = offline_page(page(NASTY))

    assert "<script>alert" not in html
    assert html.count("</script>") == 2
    data = re.search(r'id="results">(.*?)</script>', html)
    assert data is not None
    assert json.loads(data[1])["title"] == NASTY
