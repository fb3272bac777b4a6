"""The block `fleet:` of a `config.yaml`: written, replaced, taken out; the rest stays as it was.

Called by `bullpen fleet join` and `leave`. What comes out is checked before it is written.
"""

import json
import re
import stat
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.files import locked, write_atomically
from bullpen.home.paths import Home, short_path
from bullpen.home.settings import Fleet, Settings, check_settings
from bullpen.home.yamlfile import parse

BLOCK = re.compile(r"\n?^fleet:.*\n(?:[ \t]+\S.*\n)*", re.MULTILINE)


def set_fleet(home: Home, fleet: Fleet) -> None:
    """Write it; one without `url` takes the block out. A link and the file's mode stay."""
    with locked(home.credentials):  # the home itself is the hub's
        text = check_change(home.config_file, fleet)
        file = home.config_file.resolve()
        mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o644
        write_atomically(file, text, mode)


def check_change(config_file: Path, fleet: Fleet) -> str:
    """What the file would be with that block; BullpenError if it cannot be changed."""
    text = config_file.read_text() if config_file.exists() else ""
    before, problems = check_settings(parse(config_file, text))
    if before is None or problems:
        raise BullpenError(
            f"{short_path(config_file)} has errors, and is left as it is",
            hint="bullpen validate --all",
        )
    new = with_block(text, fleet)
    after, problems = check_settings(parse(config_file, new))
    if after is None or problems or after != _with(before, fleet):
        raise BullpenError(
            f"{short_path(config_file)} is written in a form that cannot be changed here",
            hint=f"write it yourself: fleet: {json.dumps(_fields(fleet))}",
            kind=Kind.CONFLICT,
        )
    return new


def with_block(text: str, fleet: Fleet) -> str:
    """The text with this block in place of its own. Pure."""
    text = BLOCK.sub("", text if text.endswith("\n") or not text else text + "\n")
    if fleet.url is None:
        return text
    # JSON's strings are YAML's, whatever is in them.
    lines = [f"  {name}: {json.dumps(value)}\n" for name, value in _fields(fleet).items()]
    return text + "\nfleet:\n" + "".join(lines)


def _fields(fleet: Fleet) -> dict[str, object]:
    """What differs from the defaults."""
    return fleet.model_dump(exclude_defaults=True)


def _with(settings: Settings, fleet: Fleet) -> Settings:
    return settings.model_copy(update={"fleet": fleet})
