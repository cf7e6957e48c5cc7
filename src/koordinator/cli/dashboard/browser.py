"""Whether there is a browser that a page can be opened in, and opening it."""

import os
import sys
import webbrowser

_DESKTOPS = ("DISPLAY", "WAYLAND_DISPLAY")


def has_browser() -> bool:
    """Return whether somebody sits at a terminal of a desktop.

    Browsers that draw in the terminal itself don't count: they would take it over.
    """
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return False
    if sys.platform not in ("darwin", "win32") and not any(map(os.environ.get, _DESKTOPS)):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def open_browser(url: str) -> None:
    """Open a page in the reader's browser."""
    webbrowser.open(url)
