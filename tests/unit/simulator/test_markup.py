"""HTML made of nested calls."""

from koordinator.simulator.markup import Markup, element, join


def test_text_is_escaped_and_markup_is_not() -> None:
    """Elements nest, text in them can't become an element."""
    inner = element("b", "1 < 2 & 3")

    assert element("p", inner, " <i>") == "<p><b>1 &lt; 2 &amp; 3</b> &lt;i&gt;</p>"
    assert join(["<", Markup("<br>")]) == "&lt;<br>"


def test_attributes_are_quoted() -> None:
    """A quote in a value does not end it; None leaves the attribute out."""
    text = element("p", class_='a" onclick="b', aria_label="c", hidden=None)

    assert text == '<p class="a&quot; onclick=&quot;b" aria-label="c"></p>'


def test_void_elements_have_no_end_tag() -> None:
    """As HTML wants it."""
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'
