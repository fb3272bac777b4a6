"""A few hot verbs, done without the whole command line.

A hot verb asks the running hub for finished text and prints it. Nothing heavy is imported (no
click, os.path, json, socket, re). An unknown option, a doubt about the home, no hub, or any answer
but the expected one is left to the whole command line, which starts over: so only requests that may
be made twice belong here.
"""

import posix
import sys

from bullpen import __version__
from bullpen.hot import find_hub, hook, wire

ANSWER_SECONDS = 10.0
LOOK_SECONDS = 60.0  # at files: git may have many of them to read
# By them git has other settings than the hub's.
GIT_SETTINGS = (b"GIT_CONFIG_GLOBAL", b"GIT_CONFIG_SYSTEM", b"GIT_CONFIG_NOSYSTEM")
AS_JSON = "&iso=1"  # times as text, as the whole command line writes them


def main() -> None:
    """Do the process's command and end it, or come back: the whole command line has to do it."""
    if sys.argv[1:2] == ["send"]:
        # Chosen once: if no answer comes, the whole command line sends the same message again.
        sys.argv[2:2] = [f"--id=m-{posix.urandom(6).hex()}"]
    words = sys.argv[1:]
    code = run(words, posix.environ) if words and words[0] in VERBS else None
    if code is not None:
        # Everything is written; taking the interpreter down would cost a tenth of the whole.
        posix._exit(code)


def run(words: list[str], environ: find_hub.Environment) -> int | None:
    """One hot verb; the exit code, or None if the whole command line has to do it."""
    verb, *rest = words
    try:
        return VERBS[verb](rest, environ)
    except KeyboardInterrupt:
        return 130


def hooked_agent(words: list[str], environ: find_hub.Environment) -> str | None:
    """Whose hook it is, `""` if nobody's; None for words that `hook` does not have."""
    parsed = _parse(words, values=("--agent",))
    if parsed is None:
        return None
    own = environ.get(b"BULLPEN_ACTOR", b"").decode("utf-8", "surrogateescape")
    return parsed[0].get("--agent", own)


def _list(words: list[str], environ: find_hub.Environment) -> int | None:
    parsed = _parse(words, flags=("--json", "--fleet"), values=("--pod",))
    if parsed is None:
        return None
    options, _ = parsed
    query = AS_JSON if "--json" in options else _for_people(environ)
    if "--fleet" in options:
        return None if "--pod" in options else _show("/fleet", f"{query}&agents=1", environ)
    if "--pod" in options:
        query += f"&pod={wire.quoted(options['--pod'])}"
    own = environ.get(b"BULLPEN_POD")
    if own:
        query += f"&own_pod={wire.quoted(own)}"
    return _show("/agents", query, environ)


def _status(words: list[str], environ: find_hub.Environment) -> int | None:
    parsed = _parse(words, flags=("--json",), places=1)
    if parsed is None:
        return None
    options, names = parsed
    path = f"/agents/{wire.quoted(names[0])}" if names else "/status"
    return _show(path, AS_JSON if "--json" in options else _for_people(environ), environ)


def _hook(words: list[str], environ: find_hub.Environment) -> int | None:
    agent = hooked_agent(words, environ)
    socket = find_hub.find_socket(environ)
    if agent is None or socket is None:
        return None
    try:
        hook.write(1, hook.pass_on(socket, agent, environ))
    except OSError:
        return 0  # the engine left
    return 0


def _send(words: list[str], environ: find_hub.Environment) -> int | None:
    parsed = _parse(words, values=("--id", "--priority"), places=2)
    if parsed is None or len(parsed[1]) != 2 or "--id" not in parsed[0]:
        return None
    options, (name, text) = parsed
    fields = {
        "text": text,
        "id": options["--id"],
        "priority": options.get("--priority", "normal"),
    }
    inner = ",".join([f'"{key}":"{_escaped(value)}"' for key, value in fields.items()])
    try:
        body = f"{{{inner}}}".encode()
    except UnicodeEncodeError:
        return None  # bytes that are no text
    return _show(f"/agents/{wire.quoted(name)}/messages", "&text=1", environ, body)


def _inbox(words: list[str], environ: find_hub.Environment) -> int | None:
    # No --json: only the whole command line writes control characters of others as ASCII.
    parsed = _parse(words, flags=("--full",), places=1)
    if parsed is None:
        return None
    options, names = parsed
    name = names[0] if names else environ.get(b"BULLPEN_ACTOR") or "root"
    query = _for_people(environ) + ("&full=1" if "--full" in options else "")
    return _show(f"/agents/{wire.quoted(name)}/messages", query, environ)


def _explain(words: list[str], environ: find_hub.Environment) -> int | None:
    return _of_agent(words, environ, "explain", f"&text=1&columns={_columns(environ)}")


def _peek(words: list[str], environ: find_hub.Environment) -> int | None:
    return _of_agent(words, environ, "screen", "&text=1")


def _of_agent(
    words: list[str], environ: find_hub.Environment, what: str, as_text: str
) -> int | None:
    parsed = _parse(words, flags=("--json",), places=1)
    if parsed is None or not parsed[1]:
        return None
    options, (name,) = parsed
    query = AS_JSON if "--json" in options else as_text
    return _show(f"/agents/{wire.quoted(name)}/{what}", query, environ)


def _approvals(words: list[str], environ: find_hub.Environment) -> int | None:
    # No number: one of them is shown page by page.
    parsed = _parse(words, flags=("--json",))
    if parsed is None:
        return None
    return _show("/approvals", AS_JSON if parsed[0] else _for_people(environ), environ)


def _tree(words: list[str], environ: find_hub.Environment) -> int | None:
    parsed = _parse(words, flags=("--json",))
    if parsed is None:
        return None
    return _show("/tree", AS_JSON if parsed[0] else _for_people(environ), environ)


def _usage(words: list[str], environ: find_hub.Environment) -> int | None:
    # No --since: reading a duration is the whole command line's.
    parsed = _parse(words, flags=("--json",), values=("--by",))
    if parsed is None:
        return None
    options, _ = parsed
    query = AS_JSON if "--json" in options else _for_people(environ)
    if "--by" in options:
        query += f"&by={wire.quoted(options['--by'])}"
    return _show("/usage", query, environ)


def _tasks(words: list[str], environ: find_hub.Environment) -> int | None:
    parsed = _parse(words, flags=("--json",), places=1)
    if parsed is None:
        return None
    options, names = parsed
    query = AS_JSON if "--json" in options else _for_people(environ)
    return _show(f"{_whose(names, environ)}/tasks", query, environ)


def _history(words: list[str], environ: find_hub.Environment) -> int | None:
    # No --json, which the whole command line puts together; no `show`, which is another command.
    parsed = _parse(words, values=HISTORY_OPTIONS, places=1)
    if parsed is None or parsed[1] == ["show"]:
        return None
    options, names = parsed
    # `text` is what is looked for here.
    query = _for_people(environ).replace("&text=1", "&lines=1", 1)
    for name, value in options.items():
        query += f"&{name[2:]}={wire.quoted(value)}"
    return _show(f"{_whose(names, environ)}/history", query, environ)


def _worktree(words: list[str], environ: find_hub.Environment) -> int | None:
    if words[:1] != ["list"] or any(name in environ for name in GIT_SETTINGS):
        return None
    parsed = _parse(words[1:], flags=("--json",), values=("--repo",))
    directory = _directory(parsed[0].get("--repo", "")) if parsed else None
    if parsed is None or directory is None:
        return None
    query = AS_JSON if "--json" in parsed[0] else _for_people(environ)
    query += f"&repo={wire.quoted(directory)}"
    return _show("/worktrees", query, environ, seconds=LOOK_SECONDS)


def _directory(text: str) -> str | None:
    """Where that is from here; None if the hub could take it for another."""
    try:
        path = text if text.startswith("/") else f"{posix.getcwdb().decode()}/{text}"
        path.encode()
    except (OSError, UnicodeError):
        return None
    return None if text.startswith("~") else path


def _whose(names: list[str], environ: find_hub.Environment) -> str:
    """Where the tasks of that agent are; an agent sees its own, everybody else all."""
    name = names[0] if names else environ.get(b"BULLPEN_ACTOR")
    return f"/agents/{wire.quoted(name)}" if name else ""


HISTORY_OPTIONS = ("--state", "--session", "--text", "--page", "--limit")
VERBS = {"list": _list, "status": _status, "hook": _hook, "send": _send, "inbox": _inbox}
VERBS |= {"explain": _explain, "peek": _peek, "usage": _usage, "tasks": _tasks}
VERBS |= {"history": _history, "approvals": _approvals, "tree": _tree}
VERBS["worktree"] = _worktree
VERBS["ls"] = VERBS["ps"] = _list


def _parse(
    words: list[str], flags: tuple[str, ...] = (), values: tuple[str, ...] = (), places: int = 0
) -> tuple[dict[str, str], list[str]] | None:
    """Options by name, and the other words; None for anything out of the ordinary."""
    options: dict[str, str] = {}
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word in flags:
            options[word] = ""
        elif name in values:
            options[name] = value if equals else next(rest, "")
            if not options[name] or options[name].startswith("-"):
                return None
        elif not word or word.startswith("-"):
            return None
        else:
            others.append(word)
    return (options, others) if len(others) <= places else None


def _for_people(environ: find_hub.Environment) -> str:
    """The part of the query that asks for finished text."""
    plain = environ.get(b"NO_COLOR") or environ.get(b"TERM") == b"dumb" or not posix.isatty(1)
    return f"&text=1&colour={not plain:d}&columns={_columns(environ)}"


def _columns(environ: find_hub.Environment) -> int:
    """Of the terminal; 0, which is no limit, for a pipe."""
    if not posix.isatty(1):
        return 0
    given = environ.get(b"COLUMNS", b"")
    is_given = given.isdigit() and len(given) < 5
    return int(given) if is_given else posix.get_terminal_size(1).columns


def _escaped(text: str) -> str:
    """As it stands in a string of JSON."""
    table = {code: f"\\u{code:04x}" for code in range(32)}
    return text.translate({**table, 34: '\\"', 92: "\\\\"})


def _show(
    path: str,
    query: str,
    environ: find_hub.Environment,
    body: bytes = b"",
    seconds: float = ANSWER_SECONDS,
) -> int | None:
    """Ask, or with a body send it, and print the answer."""
    socket = find_hub.find_socket(environ)
    if socket is None:
        return None
    target = f"{path}?{query[1:]}" if query else path
    method, good, headers = "GET", 200, find_hub.headers(environ)
    if body:
        method, good, headers["content-type"] = "POST", 201, "application/json"
    try:
        answer = wire.request(socket, method, target, headers, body, seconds)
    except (wire.HubError, OSError, ValueError):
        return None
    text = answer.body
    # JSON: only the whole command line writes what may mislead a reader as ASCII.
    if answer.status != good or (not _is_text(query) and not text.isascii()):
        return None
    _tell_version(answer.headers.get("bullpen-version", __version__))
    try:
        hook.write(1, text if text.endswith(b"\n") or not text else text + b"\n")
    except BrokenPipeError:
        return 141
    except OSError as error:
        _tell(f"error: {error.strerror}")
        return 1
    return 0


def _is_text(query: str) -> bool:
    return query.startswith(("&text=1", "&lines=1"))


def _tell_version(version: str) -> None:
    if version != __version__:
        shown = version if version.isascii() and version.isprintable() else ascii(version)
        _tell(f"hub is version {shown}, this command is {__version__} · bullpen hub restart")


def _tell(line: str) -> None:
    try:
        hook.write(2, f"{line}\n".encode())
    except OSError:
        return  # nobody listens there
