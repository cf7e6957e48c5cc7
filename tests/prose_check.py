"""Check of prose: plain technical English in docstrings, comments and texts of the package.

``python -m tests.prose_check`` prints each place, and exits 1 if there is one; ``make check`` runs
it.  It looks for turns that no reference documentation of the field uses, for docstrings of modules
and classes that open with a question word, and for docstrings that continue another sentence: a
reader of a failure sees only this one.  It can't recognize good prose, only these turns.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

#: Folders and files that are checked.
CHECKED = ("src/koordinator", "tests", "benchmarks", "docs", "examples")

#: Turns that are checked in docstrings and comments.
TURNS = re.compile(
    r"\b(nobody|somebody|everybody|anybody|whoever|whomever|told|tells?|said|says|heard|hears?|"
    r"heed\w*|anew|gone|be it|be they|so it is|of which|of whom|as far as|ha(?:s|ve) a say|"
    r"would do|will do|that of the|those of|what is so|all the same|likewise|lets?|lay down|"
    r"laid down|stands? for|made of it|gives? way|comes? again|signs? of life|knows? of|"
    r"asks? for|asked for|is meant|goes by|thereof|thereby|whereof|wherein|hitherto)\b"
    r"|accepted (?:is|are)\b|\belse (?:it|they) (?:is|are)\b",
    re.IGNORECASE,
)

#: Turns that are checked in every text of the package: messages, events, help.
TURNS_OF_MESSAGES = re.compile(
    r"\b(nobody|somebody|everybody|anybody|whoever|heed\w*|anew|be it|has a say|what is so|"
    r"all the same|sign of life)\b|\baccepted (?:is|are)\b",
    re.IGNORECASE,
)

QUESTION = re.compile(r"(What|Which|Who|How|Whether|Where|Why|Whose|When)\b")

#: Openings of a docstring that continues another sentence, such as the name of a test, or is none:
#: only a reader of both understands it.  From ``It`` on: pronouns for something in the name.
FRAGMENT = re.compile(
    r"(?:And|Or|Nor|Also|But|Then|Else|Otherwise|Unless|Likewise|Ditto|Even|Not even|So that|"
    r"So (?:are|do|does|is|the)|As (?:above|before)|The same (?:as|for|goes|of|with)|"
    r"What|Who|Whose|Which|Whatever|Whoever|However|How|"
    r"It|It's|Its|They|Their|Theirs|Them|He|His|She|Her|This|These|That|Those|Such|Here|Both|"
    r"Either|Neither|None of|(?:Another|Each) one|(?:All|Any|Each|Most|One|Some) of (?:its|their|"
    r"them|these|those)|Each (?:for|has|is|was|with)|One (?:that|which|with|without)|"
    r"Only (?:if|that|where)|All (?:are|have))\b"
)

#: What a line may contain although it matches, since an original or a format spells it so.
QUOTED = re.compile(r"``[^`]*``|\"[^\"]*\"")

#: Between two adjacent string literals, which are one text
_JOINT = re.compile(r"\"\s*\n\s*[bfrBFR]{0,2}\"")
#: Docstring that opens with a question word or a fragment
_OPENING = re.compile(rf"^\s*[rR]?\"\"\"\s*(?:{QUESTION.pattern}|{FRAGMENT.pattern})", re.MULTILINE)

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

Place = tuple[int, str]


def turns_in(path: Path) -> list[Place]:
    """Return line number and turn of every place in a Python file, by line."""
    source = path.read_text("utf-8")
    if not _may_have_turns(source):  # few files have one, and parsing all takes long
        return []
    tree = ast.parse(source)
    docstrings = list(_docstrings(tree))
    places = [place for node in docstrings for place in _matches(TURNS, node)]
    places += _bad_openings(tree)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comment = ast.Constant(token.string, lineno=token.start[0])
            places += _matches(TURNS, comment)
    if path.is_relative_to(ROOT / "src"):
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        for node in texts:
            if isinstance(node.value, str) and node not in docstrings:
                places += _matches(TURNS_OF_MESSAGES, node)
    return sorted(places)


def _bad_openings(tree: ast.Module) -> Iterator[Place]:
    """Yield the docstrings that open with a fragment or, of modules and classes, a question."""
    for node in ast.walk(tree):
        if not isinstance(node, _DOCUMENTED):
            continue
        text, line = ast.get_docstring(node) or "", getattr(node, "lineno", 1)
        question, fragment = QUESTION.match(text), FRAGMENT.match(text)
        if question and isinstance(node, ast.Module | ast.ClassDef):
            yield line, f"docstring opens with {question.group()!r}, not with a noun"
        elif fragment:
            yield line, f"docstring opens with {fragment.group()!r}, so it needs its neighbour"


def _may_have_turns(source: str) -> bool:
    """Return False if no text of a module has a turn, adjacent strings being one text."""
    text = _JOINT.sub("", source)
    patterns = TURNS, TURNS_OF_MESSAGES, _OPENING
    return any(pattern.search(text) for pattern in patterns)


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            first = node.body[0] if node.body else None
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


def _matches(pattern: re.Pattern[str], node: ast.Constant) -> Iterator[Place]:
    text = QUOTED.sub(lambda quoted: " " * len(quoted.group()), str(node.value))
    for match in pattern.finditer(text):
        yield node.lineno + text.count("\n", 0, match.start()), match.group()


def checked_files() -> Iterator[Path]:
    """Yield every Python file that is checked, in order of path."""
    itself = Path(__file__)
    for folder in CHECKED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path != itself:
                yield path


def main() -> int:
    """Print every place; return the exit status."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {turn}"
        for path in checked_files()
        for line, turn in turns_in(path)
    ]
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
