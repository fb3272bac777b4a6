"""The page in the person's own browser, on this machine. Called by `bullpen web open`.

The browser is given a file that leads to the address for log-in. What a program is started with
can be read by every user of the machine, and the address holds the token; the file is its owner's
alone.
"""

import html
import os
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path

from bullpen.files import write_atomically

PAGE = """<!doctype html><meta charset="utf-8"><title>Bullpen</title>
<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0; url={address}">
<p><a href="{address}">Bullpen</a></p>
"""
WINDOWS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")


def has_browser(env: Mapping[str, str]) -> bool:
    """Whether one can be shown. Those for terminals cannot draw the page."""
    return sys.platform == "darwin" or any(env.get(name) for name in WINDOWS)


def open_browser(address: str, file: Path) -> bool:
    """Show that address by way of the file; False: there is no browser."""
    if not has_browser(os.environ):
        return False
    write_atomically(file, PAGE.format(address=html.escape(address)), 0o600)
    return webbrowser.open(file.as_uri())
