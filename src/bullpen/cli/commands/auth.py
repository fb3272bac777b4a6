"""`bullpen auth`: the credentials that agents get, and logging in for them."""

import os
import sys
from typing import Any

import click

from bullpen import clock, credentials
from bullpen.cli import output
from bullpen.errors import BullpenError, Kind
from bullpen.paths import Home, current_home, person_home, shown


def complete_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of credentials for the shell."""
    return [name for name in credentials.NAMES if name.startswith(incomplete)]


@click.group()
def command() -> None:
    """Keep credentials for agents, and log in for them.

    They are files in the home that only you can read. Those of engines reach an agent's
    program in its environment, the forges' reach no agent. What is not set here is left to
    the program's own login.
    """


# A value that begins with a dash must come to us, or the refusal would print it.
@command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("name", shell_complete=complete_names)
@click.argument("words", nargs=-1, metavar="")
@click.option("--from", "forge", metavar="FORGE", help="git-config: ask github or gitlab.")
@output.json_option
def set_(name: str, words: tuple[str, ...], forge: str | None, as_json: bool) -> None:
    """Keep a credential, read from standard input or typed unseen.

    NAME is one of claude-token (from: claude setup-token), anthropic-api-key,
    gemini-api-key, openai-api-key, github-token, gitlab-token; or git-config: the name
    and the mail address that agents commit with, in two lines or as Name <address>.
    With --from they are those of the person whom the github-token or gitlab-token belongs to
    (another server: GITHUB_API_URL, GITLAB_URL).
    """
    credentials.check_name(name)
    if words:
        raise BullpenError(
            "a value is never taken from the command line: other users and your shell's history"
            " see it there",
            hint=f"bullpen auth set {name} < FILE · if it was a real one, make a new one",
        )
    home = current_home()
    was_set = credentials.since(home, name) is not None
    value = _read(name) if forge is None else _ask(home, name, forge)
    credentials.store(home, name, value)
    if as_json:
        output.write_json({"name": name, "set": True, "was_set": was_set})
    elif name == credentials.IDENTITY:
        output.write(f"agents started from now on commit as {_commits_as(home)}")
    else:
        is_given = any(name in ways.gives.values() for ways in credentials.WAYS.values())
        use = "for agents started from now on" if is_given else "no agent gets it"
        output.write(f"{name} is {'replaced' if was_set else 'set'} · {use}")


@command.command()
@click.argument("name", required=False, shell_complete=complete_names)
@output.json_option
def status(name: str | None, as_json: bool) -> None:
    """Say which credentials are set, and what each engine would log in with.

    With NAME about that credential only.
    """
    home = current_home()
    names = credentials.KEPT if name is None else [credentials.check_kept(name)]
    kept = [_look(home, each) for each in names]
    logins = [_login(home, engine) for engine in credentials.WAYS if name is None]
    if as_json:
        output.write_json({"credentials": kept, "engines": logins})
        return
    output.write_table(
        ["CREDENTIAL", "", "SINCE"],
        [
            (
                entry["name"],
                "refused" if entry["problem"] else "set" if entry["set"] else "–",
                entry["since"] or "",
            )
            for entry in kept
        ],
    )
    if logins:
        output.write()
        rows = [(entry["engine"], entry["login"] or "refused") for entry in logins]
        output.write_table(["ENGINE", "LOGIN"], rows)
    for problem in dict.fromkeys(e["problem"] for e in (*kept, *logins) if e["problem"]):
        output.write(f"refused: {output.printable(problem)}")


@command.command()
@click.argument("name", shell_complete=complete_names)
@output.json_option
def clear(name: str, as_json: bool) -> None:
    """Forget a credential; agents that run keep it until they end."""
    was_set = credentials.clear(current_home(), name)
    if as_json:
        output.write_json({"name": name, "set": False, "was_set": was_set})
    else:
        output.write(f"{name} is forgotten" if was_set else f"{name} was not set")


@command.command()
def claude() -> None:
    """Log in to Claude Code for the agents of this home.

    Starts Claude Code in this terminal with the home's configuration directory, at its /login.
    Log in, then leave it (/exit). Agents without a sandbox use that login in place of your own.
    """
    home = current_home()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BullpenError(
            "logging in needs a terminal",
            hint="without one: claude setup-token, then bullpen auth set claude-token < FILE",
        )
    config = home.claude_config
    config.mkdir(mode=0o700, parents=True, exist_ok=True)
    config.chmod(0o700)
    output.write(f"Claude Code starts with {output.printable(shown(config))}: log in, then /exit")
    sys.stdout.flush()
    _run_here(home)
    if not credentials.has_login(config):
        raise BullpenError(
            f"nobody is logged in there: no {config / '.credentials.json'}",
            hint="bullpen auth claude, and /login in it · or bullpen auth set claude-token",
            kind=Kind.COMMAND_FAILED,
        )
    login = credentials.find_login(home, "claude", os.environ, person_home())
    output.write("logged in · agents without a sandbox use it from their next start")
    if login.kind != "home":
        output.write(f"but this comes before it: {login.text}")


def _run_here(home: Home) -> None:
    """Claude Code with the person's own terminal; what it left of the terminal is put right."""
    import subprocess
    import termios

    from bullpen.engines.claude.config import Config, make_ready
    from bullpen.engines.programs import find_program
    from bullpen.engines.versions import PROGRAMS

    needed = PROGRAMS["claude"]
    program = find_program(os.environ, needed.variable, needed.program, needed.package)
    # With one of these set it takes that, and does not ask anybody to log in.
    unwanted = credentials.WAYS["claude"].reads
    env = {name: value for name, value in os.environ.items() if name not in unwanted}
    # In a directory of ours: where the person stands there may be hooks of a stranger.
    place = home.claude_config
    env["CLAUDE_CONFIG_DIR"] = str(place)
    # Else it first asks whether to trust that directory, with "No, exit" chosen.
    make_ready(Config(place, place / ".claude.json"), str(place), "")
    before = termios.tcgetattr(0)
    try:
        argv = [program, "--setting-sources", "user", "--permission-mode", "manual", "/login"]
        subprocess.call(argv, cwd=place, env=env)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _read(name: str) -> bytes:
    if not sys.stdin.isatty():
        # Two more than may be: a longer one is recognised as such, an endless one not read.
        return sys.stdin.buffer.read(credentials.LARGEST_BYTES + 3)
    try:
        if name == credentials.IDENTITY:
            lines = [click.prompt(what, err=True) for what in ("Name", "Mail address")]
            return "\n".join(lines).encode("utf-8", "surrogateescape")
        import getpass

        return getpass.getpass(f"{name} (not shown): ").encode("utf-8", "surrogateescape")
    except EOFError:
        return b""


def _ask(home: Home, name: str, forge: str) -> bytes:
    """Who the forge says that the token's owner is."""
    from bullpen import forge_user

    if name != credentials.IDENTITY or forge not in forge_user.FORGES:
        # What was given is not repeated: it may be a value that was meant for standard input.
        raise BullpenError(
            "--from is for git-config only, and names a forge",
            hint=f"bullpen auth set git-config --from {'|'.join(forge_user.FORGES)}",
        )
    found = forge_user.FORGES[forge]
    token = credentials.load(home, found.credential)
    if token is None:
        raise BullpenError(
            f"{found.credential} is not set",
            hint=f"bullpen auth set {found.credential} < FILE",
            kind=Kind.NOT_FOUND,
        )
    return forge_user.ask(found, token).encode()


def _commits_as(home: Home) -> str:
    found = credentials.git_identity(home)
    return output.printable(f"{found['GIT_AUTHOR_NAME']} <{found['GIT_AUTHOR_EMAIL']}>")


def _look(home: Home, name: str) -> dict[str, Any]:
    since = credentials.since(home, name)
    entry: dict[str, Any] = {
        "name": name,
        "set": since is not None,
        "since": clock.to_text(since) if since else None,
        "problem": None,
    }
    try:
        credentials.load(home, name)
    except BullpenError as error:
        entry["problem"] = f"{error.message} · {error.hint}"
    return entry


def _login(home: Home, engine: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"engine": engine, "kind": None, "login": None, "problem": None}
    try:
        login = credentials.find_login(home, engine, os.environ, person_home())
    except BullpenError as error:
        return {**entry, "problem": f"{error.message} · {error.hint}"}
    return {**entry, "kind": login.kind, "login": login.text}
