"""The installed command: a few hot verbs without the command line, all others through it.

A hot verb asks the running hub for finished text and prints it, in little more time than
the interpreter takes to start; so nothing heavy is imported here (no click, os.path, json,
socket, re). Whatever is not plain (an option it does not know, a doubt about the home, no
hub, any answer but the good one) is left to `bullpen.cli.main`, which starts from the beginning and
does the whole thing: only requests that may be made twice belong here.
"""

import posix
import sys

from bullpen import __version__
from bullpen.client import hook, reach, wire

ANSWER_SECONDS = 10.0


def main() -> None:
    """Entry point of the installed command."""
    if sys.argv[1:2] == ["send"]:
        # Chosen once: if no answer comes, the whole command line sends the same message again.
        sys.argv[2:2] = [f"--id=m-{posix.urandom(6).hex()}"]
    words = sys.argv[1:]
    code = run(words, posix.environ) if words and words[0] in VERBS else None
    if code is not None:
        # Everything is written; taking the interpreter down would cost a tenth of the whole.
        posix._exit(code)
    from bullpen.cli.main import main as whole

    whole()


def run(words: list[str], environ: reach.Environment) -> int | None:
    """One hot verb; the exit code, or None if the whole command line has to do it."""
    verb, *rest = words
    try:
        return VERBS[verb](rest, environ)
    except KeyboardInterrupt:
        return 130


def hooked_agent(words: list[str], environ: reach.Environment) -> str | None:
    """Whose hook it is, `""` if nobody's; None for words that `hook` does not have."""
    parsed = _parse(words, values=("--agent",))
    if parsed is None:
        return None
    own = environ.get(b"BULLPEN_ACTOR", b"").decode("utf-8", "surrogateescape")
    return parsed[0].get("--agent", own)


def _list(words: list[str], environ: reach.Environment) -> int | None:
    parsed = _parse(words, flags=("--json",), values=("--pod",))
    if parsed is None:
        return None
    options, _ = parsed
    query = "" if "--json" in options else _for_people(environ)
    if "--pod" in options:
        query += f"&pod={wire.quoted(options['--pod'])}"
    own = environ.get(b"BULLPEN_POD")
    if own:
        query += f"&own_pod={wire.quoted(own)}"
    return _show("/agents", query, environ)


def _status(words: list[str], environ: reach.Environment) -> int | None:
    parsed = _parse(words, flags=("--json",), places=1)
    if parsed is None:
        return None
    options, names = parsed
    path = f"/agents/{wire.quoted(names[0])}" if names else "/status"
    return _show(path, "" if "--json" in options else _for_people(environ), environ)


def _hook(words: list[str], environ: reach.Environment) -> int | None:
    agent = hooked_agent(words, environ)
    socket = reach.find_socket(environ)
    if agent is None or socket is None:
        return None
    try:
        hook.write(1, hook.pass_on(socket, agent, environ))
    except OSError:
        return 0  # the engine left
    return 0


def _send(words: list[str], environ: reach.Environment) -> int | None:
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


def _inbox(words: list[str], environ: reach.Environment) -> int | None:
    # No --json: only the whole command line writes control characters of others as ASCII.
    parsed = _parse(words, flags=("--full",), places=1)
    if parsed is None:
        return None
    options, names = parsed
    name = names[0] if names else environ.get(b"BULLPEN_ACTOR") or "root"
    query = _for_people(environ) + ("&full=1" if "--full" in options else "")
    return _show(f"/agents/{wire.quoted(name)}/messages", query, environ)


VERBS = {"list": _list, "status": _status, "hook": _hook, "send": _send, "inbox": _inbox}


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


def _for_people(environ: reach.Environment) -> str:
    """The part of the query that asks for finished text; 0 columns is no limit."""
    is_terminal = posix.isatty(1)
    colour = is_terminal and not environ.get(b"NO_COLOR")
    given = environ.get(b"COLUMNS", b"")
    if given.isdigit() and len(given) < 5:
        columns = int(given)
    else:
        columns = posix.get_terminal_size(1).columns if is_terminal else 0
    return f"&text=1&colour={colour:d}&columns={columns}"


def _escaped(text: str) -> str:
    """As it stands in a string of JSON."""
    table = {code: f"\\u{code:04x}" for code in range(32)}
    return text.translate({**table, 34: '\\"', 92: "\\\\"})


def _show(path: str, query: str, environ: reach.Environment, body: bytes = b"") -> int | None:
    """Ask, or with a body send it, and print the answer."""
    socket = reach.find_socket(environ)
    if socket is None:
        return None
    target = f"{path}?{query[1:]}" if query else path
    method, good, headers = "GET", 200, reach.headers(environ)
    if body:
        method, good, headers["content-type"] = "POST", 201, "application/json"
    try:
        answer = wire.request(socket, method, target, headers, body, ANSWER_SECONDS)
    except (wire.HubError, OSError, ValueError):
        return None
    if answer.status != good:
        return None
    _tell_version(answer.headers.get("bullpen-version", __version__))
    text = answer.body
    try:
        hook.write(1, text if text.endswith(b"\n") or not text else text + b"\n")
    except BrokenPipeError:
        return 141
    except OSError as error:
        _tell(f"error: {error.strerror}")
        return 1
    return 0


def _tell_version(version: str) -> None:
    if version != __version__:
        shown = version if version.isascii() and version.isprintable() else ascii(version)
        _tell(f"hub is version {shown}, this command is {__version__} · bullpen hub restart")


def _tell(line: str) -> None:
    try:
        hook.write(2, f"{line}\n".encode())
    except OSError:
        return  # nobody listens there
