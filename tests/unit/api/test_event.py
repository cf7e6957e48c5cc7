"""Notes of events have the length that the API server accepts."""

from hypothesis import example, given
from hypothesis import strategies as st

from koordinator.api.event import fitting_note

LONGEST = 1024  # bytes


@given(st.text(max_size=30).map(lambda text: text * 60))
@example("é" * 800)
@example("a" * LONGEST)
@example("a" * (LONGEST + 1))
def test_note_is_cut_by_bytes(note: str) -> None:
    """The API server counts bytes of UTF-8; what fits is unchanged, what is cut ends so."""
    result = fitting_note(note)

    assert len(result.encode()) <= LONGEST
    if len(note.encode()) <= LONGEST:
        assert result == note
    else:
        assert result.endswith("…")
        assert note.startswith(result.removesuffix("…"))
        assert len(result.encode()) > LONGEST - 4  # of one character
