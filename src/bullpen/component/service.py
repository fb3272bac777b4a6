"""The systemd user unit that restarts a hub, and whether it goes on after a log-out.

Called by `bullpen hub install-service`, `doctor` and the command that starts a hub first. Writes
one file and runs nothing: it returns the commands, for a person to run.
"""

import os
import pwd
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
    """The unit. `search_path` is the PATH that agents' programs are found in."""
    if any(char in str(python) for char in "\"'\\"):
        raise _impossible(str(python))  # systemd allows them in all words but the first
    words = module_command("bullpen", "hub", "start", "--foreground", python=str(python))
    command = " ".join(_quoted(word) for word in words)
    # systemd replaces $NAME in the words, of the program's own name too, where `$$` does not
    # help (Python finds its environment by that name); the colon turns it off (244 or newer).
    prefix = ":" if "$" in command else ""
    environment = {"BULLPEN_DIR": str(home), **({"PATH": search_path} if search_path else {})}
    lines = [f"Environment={_quoted(f'{name}={value}')}" for name, value in environment.items()]
    return "\n".join(
        [
            "[Unit]",
            f"Description=Bullpen hub ({_checked(str(home)).replace('%', '%%')})",
            "",
            "[Service]",
            f"ExecStart={prefix}{command}",
            f"WorkingDirectory={TRUSTED_DIRECTORY}",
            *lines,
            "# Agents outlive the hub: only the hub itself is signalled.",
            "KillMode=process",
            "Restart=on-failure",
            "RestartSec=1",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def unit_name(home: Home) -> str:
    """Homes have a unit each, whatever they are called."""
    return f"bullpen-{home.id[:ID_CHARACTERS]}.service"


def install(home: Home, python: Path, directory: Path | None = None) -> list[str]:
    """Write the unit; returns its path and, after it, the commands that put it to work."""
    text = unit_text(python, home.root, proc.absolute_entries(os.environ.get("PATH", "")))
    path = (directory or _user_units()) / unit_name(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    commands = ["systemctl --user daemon-reload", f"systemctl --user enable --now {path.name}"]
    if lingering() == "off":
        commands.append(ENABLE_LINGER)
    return [str(path), *commands]


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
