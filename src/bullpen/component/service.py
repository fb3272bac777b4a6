"""The systemd user units of a home, one that restarts the hub and one that starts directors and the
view after a boot; and whether they go on after a log-out.

Called by `bullpen hub install-service`, `doctor` and the command that starts a hub first. Writes
two files and runs nothing: it returns the commands, for a person to run.
"""

import itertools
import os
import pwd
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from bullpen import proc
from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically
from bullpen.home.paths import Home, person_home
from bullpen.hot.own_python import TRUSTED_DIRECTORY, module_command

SYSTEMD = Path("/run/systemd/system")  # sd_booted(3) looks at the same
LINGER = Path("/var/lib/systemd/linger")
ENABLE_LINGER = "loginctl enable-linger"
ID_CHARACTERS = 8

Lingering = Literal["on", "off", "no systemd"]


def unit_text(python: Path, home: Path, search_path: str = "") -> str:
    """The hub's unit. `search_path` is the PATH that agents' programs are found in."""
    words = ("hub", "start", "--foreground")
    about = "# Agents outlive the hub: only the hub itself is signalled."
    return _unit(
        (f"Description=Bullpen hub ({_described(home)})",),
        _service(python, home, search_path, words, about),
        ("Restart=on-failure", "RestartSec=1"),
    )


def up_unit_text(python: Path, home: Path, hub_unit: str, search_path: str = "") -> str:
    """The unit of what says `autostart: true`. Apart from the hub's, which begins anew whenever a
    hub has crashed: that must not bring back what a person has stopped."""
    about = "# Directors and the view outlive the command that starts them."
    return _unit(
        (
            f"Description=Bullpen directors and view ({_described(home)})",
            f"Wants={hub_unit}",
            f"After={hub_unit}",
        ),
        ("Type=oneshot", "RemainAfterExit=yes"),
        _service(python, home, search_path, ("up", "--after-boot"), about),
    )


def _unit(unit: Sequence[str], *service: Sequence[str]) -> str:
    install = ("[Install]", "WantedBy=default.target", "")
    lines = itertools.chain.from_iterable(service)
    return "\n".join(("[Unit]", *unit, "", "[Service]", *lines, "", *install))


def _service(
    python: Path, home: Path, search_path: str, words: Sequence[str], about: str
) -> Sequence[str]:
    if any(char in str(python) for char in "\"'\\"):
        raise _impossible(str(python))  # systemd allows them in all words but the first
    command = " ".join(map(_quoted, module_command("bullpen", *words, python=str(python))))
    # systemd replaces $NAME in the words, of the program's own name too, where `$$` does not
    # help (Python finds its environment by that name); the colon turns it off (244 or newer).
    prefix = ":" if "$" in command else ""
    environment = {"BULLPEN_DIR": str(home), **({"PATH": search_path} if search_path else {})}
    return (
        f"ExecStart={prefix}{command}",
        f"WorkingDirectory={TRUSTED_DIRECTORY}",
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in environment.items()),
        about,
        "KillMode=process",
    )


def unit_name(home: Home) -> str:
    """Homes have a unit each, whatever they are called."""
    return f"bullpen-{home.id[:ID_CHARACTERS]}.service"


def up_unit_name(home: Home) -> str:
    """That of what comes after the hub."""
    return f"bullpen-{home.id[:ID_CHARACTERS]}-up.service"


def install(
    home: Home, python: Path, directory: Path | None = None
) -> tuple[list[Path], list[str]]:
    """Write the units; returns their paths and the commands that put them to work."""
    search_path = proc.absolute_entries(os.environ.get("PATH", ""))
    texts = {
        unit_name(home): unit_text(python, home.root, search_path),
        up_unit_name(home): up_unit_text(python, home.root, unit_name(home), search_path),
    }
    paths = [(directory or _user_units()) / name for name in texts]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, texts[path.name])
    commands = [
        "systemctl --user daemon-reload",
        f"systemctl --user enable --now {' '.join(texts)}",
    ]
    if lingering() == "off":
        commands.append(ENABLE_LINGER)
    return paths, commands


def lingering(systemd: Path = SYSTEMD, linger: Path = LINGER) -> Lingering:
    """Whether the system lets this user's programs run on after the last log-out."""
    if not systemd.is_dir():
        return "no systemd"
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "off"  # without an account there is nobody to let linger
    return "on" if (linger / user).exists() else "off"


def _user_units() -> Path:
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(configured) if configured.startswith("/") else person_home() / ".config"
    return base / "systemd" / "user"


def _quoted(word: str) -> str:
    """As systemd.syntax(7) and systemd.unit(5) read it: quotes, C escapes, specifiers."""
    if all(char.isalnum() or char in "/._=:-" for char in word):
        return word
    escaped = _checked(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _described(home: Path) -> str:
    return _checked(str(home)).replace("%", "%%")


def _checked(text: str) -> str:
    if not text.isprintable():  # surrogates are not either: systemd reads UTF-8 only
        raise _impossible(text)
    return text


def _impossible(path: str) -> BullpenError:
    return BullpenError(
        f"a systemd unit cannot name {path!r}",
        hint="move it to a path without such characters",
        kind=Kind.UNSUPPORTED,
    )
