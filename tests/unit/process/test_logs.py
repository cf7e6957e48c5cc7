"""Logs are for people (text) and for machines (JSON); both show what varies."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation.errors import InputError
from koordinator.process.logs import (
    JsonFormatter,
    LogFormat,
    PlainFormatter,
    TextFormatter,
    escaped,
    print_warnings,
    set_up_logging,
    set_verbosity,
)

log = logging.getLogger("koordinator.scheduler")
library = logging.getLogger("uvicorn.error")

SetUp = Callable[..., io.StringIO]


@pytest.fixture
def set_up() -> Iterator[SetUp]:
    """Set logging up on a stream, and put back what was there."""
    root, ours = logging.getLogger(), logging.getLogger("koordinator")
    before = root.handlers[:], root.level, ours.level
    root.handlers.clear()  # they are pytest's: not to be closed

    def to_stream(log_format: LogFormat = LogFormat.TEXT, verbosity: int = 0) -> io.StringIO:
        stream = io.StringIO()
        set_up_logging(log_format, verbosity, stream)
        return stream

    yield to_stream
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def test_text_is_one_line_with_every_extra(set_up: SetUp) -> None:
    """Level, time, process and logger lead, as in klog."""
    stream = set_up()
    log.warning("pod not bound", extra={"pod": "shop/web", "tries": 2, "path": Path("/a b")})

    line = stream.getvalue()
    assert line[0] == "W"
    assert line.endswith(
        ' koordinator.scheduler] "pod not bound" pod="shop/web" tries=2 path="/a b"\n'
    )


@pytest.mark.usefixtures("set_up")
def test_command_prints_warnings_with_their_subject() -> None:
    """The format is a sentence for the user of a command, without klog's header."""
    stream = io.StringIO()
    print_warnings(stream)
    log.warning("annotation ignored", extra={"complaint": "node c: not valid JSON"})
    log.info("pod bound")

    assert stream.getvalue() == "warning: annotation ignored (complaint: node c: not valid JSON)\n"


def test_user_input_never_begins_a_log_line(set_up: SetUp) -> None:
    """A forged line would be believed."""
    stream = set_up()
    log.info("pod seen", extra={"pod": 'x\nE0101 "all is lost"'})

    assert stream.getvalue().count("\n") == 1
    assert r'pod="x\nE0101 \"all is lost\""' in stream.getvalue()


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter(), PlainFormatter()])
@pytest.mark.parametrize("place", ["msg", "extra", "key", "exception"])
@given(
    typed=st.text(
        alphabet=st.sampled_from(
            "a\n\r\t\x00\x1b\x7f\x9b\u2028\u2029\u202e\u200b\xad\udc80\U000e0001"
        ),
        min_size=1,
    )
)
def test_no_control_character_reaches_a_log(
    formatter: logging.Formatter, place: str, typed: str
) -> None:
    """In every format a name can't move the cursor, begin a line or reverse the text."""
    fields: dict[str, object] = {"msg": "pod seen", "levelname": "WARNING"}
    if place == "exception":
        fields["exc_info"] = (ValueError, ValueError(typed), None)
    else:
        fields |= {"msg": typed} if place == "msg" else {"pod": typed}
        if place == "key":
            fields[f"k{typed}"] = 1
    line, *more = formatter.format(logging.makeLogRecord(fields)).split("\n")

    assert line.isprintable()
    assert all(each.startswith("    ") and each.isprintable() for each in more)
    assert not more or place == "exception"


@given(text=st.text())
def test_escaped_text_can_be_unescaped(text: str) -> None:
    """Printable characters stay unchanged."""
    shown = escaped(text)

    assert shown.isprintable()
    assert shown == text or not text.isprintable()
    if "\\" not in text and '"' not in text:
        assert json.loads(f'"{shown}"') == text


def test_json_is_an_object_per_line(set_up: SetUp) -> None:
    """Values that JSON lacks are logged as text, and no extra field replaces one of ours."""
    stream = set_up(LogFormat.JSON)
    log.error("annotation ignored", extra={"complaint": ValueError("bad"), "n": 1, "level": "x"})

    line = json.loads(stream.getvalue())
    assert line.pop("ts") > 1e12  # milliseconds
    assert line == {
        "level": "error",
        "logger": "koordinator.scheduler",
        "msg": "annotation ignored",
        "complaint": "bad",
        "n": 1,
    }


@pytest.mark.parametrize("log_format", LogFormat)
def test_tracebacks_are_shown(set_up: SetUp, log_format: LogFormat) -> None:
    """An unexpected error must be found."""
    stream = set_up(log_format)
    try:
        int("boom")
    except ValueError:
        log.exception("plugin failed")

    assert "Traceback" in stream.getvalue()
    assert "ValueError: invalid literal" in stream.getvalue()


@pytest.mark.parametrize(
    ("verbosity", "details", "of_libraries"),
    [(0, False, False), (3, False, False), (4, True, False), (8, True, True)],
)
def test_verbosity_selects_the_lines(
    set_up: SetUp, verbosity: int, details: bool, of_libraries: bool
) -> None:
    """4 is the debug level of Kubernetes; libraries are quiet until 8."""
    stream = set_up(verbosity=verbosity)
    log.info("told always")
    log.debug("details")
    library.info("library")

    text = stream.getvalue()
    assert "told always" in text
    assert ("details" in text) is details
    assert ("library" in text) is of_libraries


def test_verbosity_changes_while_running(set_up: SetUp) -> None:
    """PUT /debug/flags/v sets the verbosity."""
    stream = set_up()
    assert set_verbosity("4") == "successfully set verbosity to 4"
    log.debug("details")

    assert "details" in stream.getvalue()


@pytest.mark.parametrize("text", ["", "high", "-1", "1.5", "9" * 4000, "\u0663"])
def test_a_wrong_verbosity_is_refused(text: str) -> None:
    """The text names the expected values."""
    with pytest.raises(InputError, match="must be an integer"):
        set_verbosity(text)
