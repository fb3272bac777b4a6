"""`bullpen auth`: the credentials that agents get, and logging in for them."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from bullpen import clock, proc
from bullpen.cli import output
from bullpen.cli.help_text import Group
from bullpen.errors import BullpenError, Kind
from bullpen.home import credentials
from bullpen.home.paths import Home, current_home, person_home

if TYPE_CHECKING:
    from bullpen.cli.forge_rights import Checked

TOKEN = "claude-token"
FORGE_TOKENS = ("github-token", "gitlab-token")


def complete_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of credentials for the shell."""
    return [name for name in credentials.NAMES if name.startswith(incomplete)]


@click.group(cls=Group)
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
    gemini-api-key, openai-api-key, github-token, gitlab-token, github-webhook-secret,
    gitlab-webhook-secret; or git-config: the name and the mail address that agents commit
    with, in two lines or as Name <address>.
    GitHub and GitLab are asked what their token may do, for the repositories of this home's
    directors, and you are told what is missing; one that they do not know is not kept.
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
    was_set = credentials.set_at(home, name) is not None
    value = _read(name) if forge is None else _ask(home, name, forge)
    credentials.check_length(name, value)
    checks, odd = _check(home, name, value)
    credentials.store(home, name, value)
    for warning in _warnings(checks, odd):
        sys.stderr.write(f"warning: {output.printable(warning)}\n")
    if as_json:
        fields = {"name": name, "set": True, "was_set": was_set}
        output.write_json(fields | ({"checked": [vars(one) for one in checks]} if checks else {}))
    elif name == credentials.IDENTITY:
        output.write(f"agents started from now on commit as {_commits_as(home)}")
    else:
        is_given = any(name in ways.gives.values() for ways in credentials.LOGINS.values())
        use = "for agents started from now on" if is_given else "no agent gets it"
        output.write(f"{name} is {'replaced' if was_set else 'set'} · {use}")
        for one in checks:
            if one.unchecked is None and not one.is_refused:
                output.write(output.printable(one.text()))


def _check(home: Home, name: str, value: bytes) -> "tuple[list[Checked], str]":
    """What forges say of a token of theirs, and what is odd about it."""
    if name not in FORGE_TOKENS:
        return [], ""
    from bullpen.cli.forge_rights import check_token
    from bullpen.home.forge_token import check_form

    token = credentials.parse(name, value)
    odd = check_form(name, token)
    return check_token(home, name, token), odd


def _warnings(checks: "Sequence[Checked]", odd: str) -> Iterator[str]:
    if odd and all(one.unchecked is not None for one in checks) and checks:
        yield odd
    for one in checks:
        if one.unchecked is not None:
            yield f"it is kept, and was not checked: {one.unchecked}"
        if one.lacks:
            yield f"at {one.server} it lacks {' · '.join(one.lacks)}"


@command.command()
@click.argument("name", required=False, shell_complete=complete_names)
@output.json_option
def status(name: str | None, as_json: bool) -> None:
    """Say which credentials are set, and what each engine would log in with.

    With NAME about that credential only.
    """
    home = current_home()
    names = credentials.FILES if name is None else [credentials.check_file_name(name)]
    kept = [_look(home, each) for each in names]
    logins = [_login(home, engine) for engine in credentials.LOGINS if name is None]
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
        drop=("SINCE",),
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

    Runs `claude setup-token` in this terminal and keeps the token that it makes: every agent can
    use it, also in a sandbox, where your own login cannot be reached. It lasts about a year.
    """
    home = current_home()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BullpenError(
            "logging in needs a terminal",
            hint="without one: claude setup-token, then bullpen auth set claude-token < FILE",
        )
    token = _setup_token(home)
    if not token:
        output.write("No token was seen. Paste it here if it was printed.")
        token = _read(TOKEN).decode()
    credentials.store(home, TOKEN, token.encode())
    output.write(f"{TOKEN} is set · agents use it from their next start, tasks from now on")
    login = credentials.find_login(home, "claude", os.environ, person_home())
    if TOKEN not in login.text:
        output.write(f"but this comes before it: {login.text}")


def _setup_token(home: Home) -> str:
    from bullpen.cli.setup_token import run_here
    from bullpen.engines.programs import find_program
    from bullpen.engines.versions import PROGRAMS

    program = find_program(os.environ, PROGRAMS["claude"])
    # With one of these set it might take that, and ask nobody.
    unwanted = credentials.LOGINS["claude"].reads
    shell = proc.with_absolute_path(os.environ)
    env = {name: value for name, value in shell.items() if name not in unwanted}
    # In a directory of ours: where the person stands there may be hooks of a stranger.
    code, token = run_here([program, "setup-token"], home.root, env)
    if code and not token:
        raise BullpenError(
            f"claude setup-token ended with {code}",
            hint="bullpen auth claude, once more · or: bullpen auth set anthropic-api-key < FILE",
            kind=Kind.COMMAND_FAILED,
        )
    return token


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
    from bullpen.home import forge_user

    if name != credentials.IDENTITY or forge not in forge_user.FORGES:
        # What was given is not repeated: it may be a value that was meant for standard input.
        raise BullpenError(
            "--from is for git-config only, and names a forge",
            hint=f"bullpen auth set git-config --from {'|'.join(forge_user.FORGES)}",
        )
    account = forge_user.FORGES[forge]
    token = credentials.load(home, account.credential)
    if token is None:
        raise BullpenError(
            f"{account.credential} is not set",
            hint=f"bullpen auth set {account.credential} < FILE",
            kind=Kind.NOT_FOUND,
        )
    return forge_user.ask(account, token).encode()


def _commits_as(home: Home) -> str:
    identity = credentials.git_identity(home)
    return output.printable(f"{identity['GIT_AUTHOR_NAME']} <{identity['GIT_AUTHOR_EMAIL']}>")


def _look(home: Home, name: str) -> dict[str, Any]:
    since = credentials.set_at(home, name)
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
