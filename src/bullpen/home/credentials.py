"""The credentials that Bullpen stores for agents: one private file each, in the home.

Values come in by standard input and go out in the environment of an engine. They are in no
message, exception or log. A file that others may read, or of another user, is refused with a hint.
The hub's own token is a file here too; the hub makes it, this module only reads it.
"""

import os
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from bullpen.errors import BullpenError, Kind
from bullpen.files import flush_directory, write_atomically
from bullpen.home.paths import Home, short_path

SECRETS = (
    "claude-token",
    "anthropic-api-key",
    "gemini-api-key",
    "openai-api-key",
    "github-token",
    "gitlab-token",
    "github-webhook-secret",
    "gitlab-webhook-secret",
)
IDENTITY = "git-config"  # who agents commit as: a name and an address, a line each
NAMES = (*SECRETS, IDENTITY)
API_TOKEN = "api-token"  # the hub's own: it lies here, too, and nobody sets it
FILES = (API_TOKEN, *NAMES)
LARGEST_BYTES = 1 << 16
# What is shorter is guessed, and stands by chance in what is looked through for credentials.
LEAST_CHARACTERS = 8


@dataclass(frozen=True)
class LoginSources:
    """How an engine's program logs in. `reads` are the variables that it looks at before any
    file; the first that is set wins. `gives` maps those that we set to our credentials."""

    reads: tuple[str, ...]
    gives: Mapping[str, str]
    directory: str  # of its configuration, in the person's home
    variable: str  # that names another directory
    file: str  # there after a login
    instead: tuple[str, ...] = ()  # variables that name who asks for no login of the program


# Claude Code 2.1.325 and `codex exec` 0.166.0 as tried, Gemini CLI 0.61.0 as its source says. Codex
# ignores OPENAI_API_KEY unless its configuration has a provider with that as `env_key`.
LOGINS = {
    "claude": LoginSources(
        ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
        {"ANTHROPIC_API_KEY": "anthropic-api-key", "CLAUDE_CODE_OAUTH_TOKEN": "claude-token"},
        ".claude",
        "CLAUDE_CONFIG_DIR",
        ".credentials.json",
        (
            "ANTHROPIC_BASE_URL",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
            "CLAUDE_CODE_USE_FOUNDRY",
        ),
    ),
    "gemini": LoginSources(
        ("GEMINI_API_KEY",),
        {"GEMINI_API_KEY": "gemini-api-key"},
        ".gemini",
        "",
        "oauth_creds.json",
    ),
    "codex": LoginSources(
        ("CODEX_API_KEY",),
        {"CODEX_API_KEY": "openai-api-key", "OPENAI_API_KEY": "openai-api-key"},
        ".codex",
        "CODEX_HOME",
        "auth.json",
    ),
}


@dataclass(frozen=True)
class Login:
    """What an engine would log in with; `text` names it and holds nothing of it."""

    kind: Literal["stored", "shell", "home", "own", "none"]
    text: str


def check_name(name: str) -> str:
    """The name, if it is one to set. A wrong one is not repeated: it may be the value itself."""
    if name == API_TOKEN:
        raise BullpenError(
            f"{API_TOKEN} is the hub's own, which makes it",
            hint=f"for a new one: bullpen hub stop, and remove credentials/{API_TOKEN} in the home",
            kind=Kind.DENIED,
        )
    return check_file_name(name)


def check_file_name(name: str) -> str:
    """The name, if it is one of a file that is kept here."""
    if name not in FILES:
        raise BullpenError(
            "no credential has that name", hint=f"one of: {', '.join(NAMES)}", kind=Kind.NOT_FOUND
        )
    return name


def load(home: Home, name: str) -> str | None:
    """The value, or None if it is not set; raises if its file cannot be trusted."""
    path = home.credentials / check_file_name(name)
    try:
        _refuse_open(home.credentials, home.credentials.lstat(), 0o700)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BullpenError(
            f"{path} cannot be read: {error.strerror}", hint=_again(name), kind=Kind.DENIED
        ) from error
    try:
        _refuse_open(path, os.fstat(descriptor), 0o600)
    except BullpenError:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read(LARGEST_BYTES + 2)
    try:
        return parse(name, raw)
    except BullpenError as error:
        raise BullpenError(f"{path}: {error.message}", hint=_again(name)) from error


def set_at(home: Home, name: str) -> datetime | None:
    """When it was set; None if it is not."""
    try:
        status = (home.credentials / check_file_name(name)).lstat()
    except FileNotFoundError:
        return None
    return datetime.fromtimestamp(status.st_mtime, UTC)


def store(home: Home, name: str, raw: bytes) -> None:
    """Check what was read from standard input, and keep it."""
    value = parse(check_name(name), raw)
    home.credentials.mkdir(mode=0o700, exist_ok=True)
    _refuse_open(home.credentials, home.credentials.lstat(), 0o700)
    write_atomically(home.credentials / name, value + "\n", 0o600)


def check_length(name: str, raw: bytes) -> None:
    """Refuse what is too short to be a secret. Those that are stored already go on."""
    if name in SECRETS and len(parse(name, raw)) < LEAST_CHARACTERS:
        raise BullpenError(
            f"the value of {name} is shorter than {LEAST_CHARACTERS} characters",
            hint=f"a longer one, such as: openssl rand -hex 32 | bullpen auth set {name}"
            if name.endswith("-webhook-secret")
            else _again(name),
        )


def load_secrets(home: Home) -> dict[str, str]:
    """All that are set and must reach nobody, by name."""
    values = {name: load(home, name) for name in (*SECRETS, API_TOKEN)}
    return {name: value for name, value in values.items() if value}


def clear(home: Home, name: str) -> bool:
    """Remove it; False if it was not set."""
    try:
        (home.credentials / check_name(name)).unlink()
    except FileNotFoundError:
        return False
    flush_directory(home.credentials)
    return True


def parse(name: str, raw: bytes) -> str:
    """The value in these bytes, without the line break that ends it. Pure."""
    if len(raw.rstrip(b"\r\n")) > LARGEST_BYTES:
        raise BullpenError(f"the value of {name} is longer than {LARGEST_BYTES >> 10} KiB")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        # Not as the cause: it holds the value.
        raise BullpenError(f"the value of {name} is not text") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if name == IDENTITY:
        return identity_text(*_parse_identity(text))
    if not text.strip():
        raise BullpenError(f"the value of {name} is empty", hint=_again(name))
    wrong = next((column for column, char in enumerate(text, 1) if not char.isprintable()), 0)
    if wrong:
        raise BullpenError(
            f"the value of {name} has a line break or control character at place {wrong}",
            hint="it has to be one line, with nothing around it",
        )
    return text


def engine_variables(home: Home, engine: str) -> dict[str, str]:
    """What an agent of that engine gets in its environment, of what is set."""
    ways = LOGINS.get(engine)
    sources = ways.gives if ways else {}
    values = {variable: load(home, name) for variable, name in sources.items()}
    return {**{v: value for v, value in values.items() if value}, **git_identity(home)}


def git_identity(home: Home) -> dict[str, str]:
    """Who an agent's commits are by; nothing if that is not set."""
    identity = load(home, IDENTITY)
    if identity is None:
        return {}
    name, email = identity.split("\n")
    people = ("AUTHOR", "COMMITTER")
    return {
        **{f"GIT_{person}_NAME": name for person in people},
        **{f"GIT_{person}_EMAIL": email for person in people},
    }


def find_login(home: Home | None, engine: str, env: Mapping[str, str], person: Path) -> Login:
    """What an agent without a configuration of its own would use, started from that shell."""
    ways = LOGINS[engine]
    for variable in ways.reads:
        name = ways.gives.get(variable)
        if home is not None and name and load(home, name):
            return Login("stored", f"{name} of this home")
        if env.get(variable):
            return Login("shell", f"{variable} of your shell")
    if home is not None and engine == "claude" and has_login(home.claude_config):
        return Login("home", f"of this home ({short_path(home.claude_config)})")
    own = Path(env.get(ways.variable, "") or person / ways.directory)
    if (own / ways.file).exists():
        return Login("own", f"your own ({short_path(own)})")
    for variable in ways.instead:
        if env.get(variable):
            return Login("shell", f"{variable} of your shell")
    return Login("none", "none found")


def has_login(claude_config: Path) -> bool:
    """Whether somebody logged in with that as Claude Code's configuration directory."""
    return (claude_config / LOGINS["claude"].file).exists()


def identity_text(name: str, email: str) -> str:
    """Who agents commit as, in the form in which it is kept. Pure."""
    name, email = name.strip(), email.strip()
    # Git drops < > and line breaks from names without a word.
    is_plain = (name + email).isprintable() and not set("<>") & set(name + email)
    if not name or not is_plain or "@" not in email.strip("@") or " " in email:
        raise BullpenError(
            "git-config has to be a name and a mail address",
            hint="two lines, or: Name <name@example.com>",
        )
    return f"{name}\n{email}"


def _parse_identity(text: str) -> tuple[str, str]:
    """`Name <address>`, or a line each, or lines as a configuration of git has them."""
    lines = text.splitlines()
    settings = {
        key.strip(): value.strip()
        for key, is_set, value in (line.partition("=") for line in lines)
        if is_set
    }
    if settings.keys() == {"name", "email"}:
        return settings["name"], settings["email"]
    if len(lines) == 1 and lines[0].endswith(">"):
        name, _, email = lines[0][:-1].rpartition("<")
        return name, email
    return (lines[0], lines[1]) if len(lines) == 2 else ("", "")


def _refuse_open(path: Path, status: os.stat_result, mode: int) -> None:
    wanted = stat.S_ISDIR if mode == 0o700 else stat.S_ISREG
    if not wanted(status.st_mode):
        raise BullpenError(
            f"{path} is not a {'directory' if mode == 0o700 else 'file'}",
            hint=f"remove it: rm {shlex.quote(str(path))}",
            kind=Kind.DENIED,
        )
    if status.st_uid != os.geteuid():
        raise BullpenError(
            f"{path} belongs to another user ({status.st_uid})",
            hint=f"chown {os.geteuid()} {shlex.quote(str(path))}",
            kind=Kind.DENIED,
        )
    if status.st_mode & 0o077:
        raise BullpenError(
            f"{path} is open to others ({stat.S_IMODE(status.st_mode):04o})",
            hint=f"chmod {mode:o} {shlex.quote(str(path))}",
            kind=Kind.DENIED,
        )


def _again(name: str) -> str:
    if name == API_TOKEN:
        return f"remove credentials/{API_TOKEN}, and restart the hub"
    return f"bullpen auth set {name} < FILE"
