"""Which key leaves an attached terminal."""

import functools

from bullpen.paths import Home

DEFAULT = "ctrl-\\"


@functools.cache  # for who is attached it stays what it was
def detach_key(home: Home) -> str:
    """The setting `detach_key`.

    Reading settings costs more than all the rest of `attach`: not done while no line
    mentions this one.
    """
    try:
        lines = home.config_file.read_bytes().splitlines()
    except FileNotFoundError:
        return DEFAULT
    if not any(b"detach_key" in line.partition(b"#")[0] for line in lines):
        return DEFAULT
    from bullpen.settings import load_settings

    return load_settings(home.config_file).detach_key
