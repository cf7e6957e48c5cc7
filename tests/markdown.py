"""Code blocks of the documentation."""

import re


def code_blocks(page: str, language: str) -> list[str]:
    """Return the contents of the fenced code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
