"""What of Claude Code's settings says how it reaches the model and logs in there.

For a run that is to have no other settings: the reviewer's. Reads files, writes none.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bullpen.engines import parse
from bullpen.files import read_plain

FILE = "settings.json"
FILE_BYTES = 1 << 20
# Commands that give a key or renew a login.
HELPERS = ("apiKeyHelper", "awsAuthRefresh", "awsCredentialExport")


def read_login(directories: Iterable[Path]) -> dict[str, Any]:
    """The helpers and variables of the settings in these directories; a later one wins. Nobody but
    the person and Bullpen may be able to write there: helpers are run."""
    login: dict[str, Any] = {}
    for directory in directories:
        settings = _read(directory / FILE)
        login |= {key: settings[key] for key in HELPERS if isinstance(settings.get(key), str)}
        env = parse.fields(settings.get("env"))
        texts = {name: value for name, value in env.items() if isinstance(value, str)}
        if texts:
            login["env"] = {**login.get("env", {}), **texts}
    return login


def _read(file: Path) -> dict[str, Any]:
    try:
        return parse.read_fields(read_plain(file, FILE_BYTES, may_link=True))
    except OSError:
        return {}  # most have none
