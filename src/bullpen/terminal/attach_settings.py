"""The settings of an attached terminal: the key that leaves, the status row, the bell."""

import functools
from typing import NamedTuple

from bullpen.home.paths import Home

KEYS = (b"detach_key", b"status_row", b"bell")


class AttachSettings(NamedTuple):
    """The settings of those names, at their defaults."""

    detach_key: str = "ctrl-\\"
    status_row: bool = False
    bell: bool = True


@functools.cache  # for who is attached they stay what they were
def attach_settings(home: Home) -> AttachSettings:
    """What config.yaml says.

    Reading settings costs more than all the rest of `attach`: not done while no line mentions
    one of these.
    """
    try:
        lines = home.config_file.read_bytes().splitlines()
    except FileNotFoundError:
        return AttachSettings()
    if not any(key in line.partition(b"#")[0] for line in lines for key in KEYS):
        return AttachSettings()
    from bullpen.home.settings import load_settings

    settings = load_settings(home.config_file)
    return AttachSettings(settings.detach_key, settings.status_row, settings.bell)
