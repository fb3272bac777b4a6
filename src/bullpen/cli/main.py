"""The table of verbs and the boundary where errors become messages and exit codes.

A verb's module is imported only when that verb runs, and the help of the whole
is printed from the table, so the cost of one command never grows with the others.
"""

import contextlib
import io
import os
import sys
from importlib import import_module
from typing import Any

import click

from bullpen import __version__
from bullpen.cli.help_text import HelpText
from bullpen.errors import EXIT_CODES, BullpenError, Kind

# section -> verb -> one line of help; the verb's module is commands/<verb>.py, `-` as `_`
SECTIONS = {
    "Start": {
        "init": "Make a home for agents here",
        "doctor": "Check this machine and this home",
        "auth": "Keep credentials for agents, and log in for them",
        "trust": "Let agents use settings and hooks that a directory brings",
        "version": "Print version, Python, platform and home",
        "completion": "Print the completion script of your shell",
        "help": "Say more about a command",
    },
    "Describe": {
        "role": "List, show, make and check roles",
        "pod": "Start, list and stop pods; look at their templates",
        "validate": "Check role, template and config files",
    },
    "Run": {
        "run": "Start an agent",
        "list": "List agents and what they do",
        "tree": "Show every agent under the one that started it",
        "wait": "Wait until agents are idle, finished, blocked or gone",
        "events": "Show what your agents reported",
        "status": "Say how the hub is, or one agent",
        "explain": "Say why an agent's state is what it is",
        "stop": "End agents, with their grace",
        "kill": "End agents at once, or everything of this home",
        "restart": "Start agents again",
        "resume": "Bring ended agents back, with their conversations",
        "agent": "Start, stop and list agents that take tasks",
        "rm": "Remove an agent: its program, its session, its worktree",
        "gc": "Remove what ended agents left",
        "components": "Say how everything is that serves in this home",
        "discover": "Find what serves on this machine",
        "shutdown": "Have agents, components and the hub leave in order",
        "hub": "The daemon of this home",
        "up": "Start what is configured to run by itself",
        "down": "Stop what `up` starts",
        "fleet": "Make this machine one of many, and see the others",
        "director": "Start, stop and list what brings work in by itself",
        "schedule": "Look at and change what a scheduler runs, and when",
        "web": "A page with everything that goes on, for browsers and phones",
    },
    "Decide": {
        "approvals": "List what waits for your decision",
        "approve": "Let an agent go on",
        "deny": "Refuse what an agent wants to do",
        "answer": "Answer what an agent asks you",
    },
    "Talk": {
        "send": "Write to an agent, to a pod, or to the person",
        "inbox": "Print what was written to you, or to an agent",
    },
    "Look": {
        "attach": "Attach this terminal to an agent's",
        "peek": "Print the current screen of an agent",
        "send-keys": "Type into an agent's terminal",
        "logs": "Print what an agent wrote",
        "transcript": "Print what was said and done in a conversation",
        "usage": "Say what agents have used",
        "record": "Print a session for asciinema",
        "reset": "Put this terminal back in order",
    },
    "Work": {
        "task": "Give a task to an agent, look at one, steer it",
        "tasks": "List tasks that are not over",
        "history": "List tasks that are kept, and what they came to",
        "worktree": "Make, look at, compare and remove worktrees",
    },
    "Land": {
        "diff": "Show what an agent has done",
        "conflicts": "Say which branches would conflict",
        "land": "Land agents' work in a branch",
        "finish": "Land, keep or drop an agent's work, and remove the agent",
    },
}
# What agents' programs call; no person needs them.
INTERNAL = {
    "mcp": "Offer the hub's tools, as an agent's program",
    "hook": "Report an event of an agent's program",
    "permission-request": "Ask for a permission, as an agent's program",
}
SHOWN = {verb: text for section in SECTIONS.values() for verb, text in section.items()}
VERBS = {**SHOWN, **INTERNAL}
ALIASES = {"ls": "list", "ps": "list"}  # out of habit


class Table(click.Group):
    """A click group whose members are imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SHOWN)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        name = ALIASES.get(name, name)
        if name not in VERBS:
            return None
        command: click.Command = import_module(
            f"bullpen.cli.commands.{name.replace('-', '_')}"
        ).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(verbs.items()))

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list["click.shell_completion.CompletionItem"]:
        # The inherited one would import every verb for its help text.
        from click.shell_completion import CompletionItem

        items = [
            CompletionItem(verb, help=text)
            for verb, text in SHOWN.items()
            if verb.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(
    cls=Table,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every command that prints data takes --json. bullpen VERB --help says more.",
    invoke_without_command=True,
)
@click.version_option(__version__, "-V", "--version", message="bullpen %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Run a team of AI coding agents on your code."""
    if ctx.invoked_subcommand is None:
        from bullpen.cli.overview import show_overview

        show_overview()


def main() -> None:
    """Entry point of the installed command."""
    _prepare_streams()
    sys.exit(run(sys.argv[1:]))


def _prepare_streams() -> None:
    """Whoever closed one (`2>&-`) wants nothing from it; a file that is opened later must not get
    its number. No text is refused by a terminal that is not UTF-8, and who reads a pipe has each
    line when it is written."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As standard error is.
        sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)


def run(arguments: list[str]) -> int:
    """Run one command line; every failure ends here as a message and an exit code."""
    shared: dict[str, Any] = {}
    click.Context.formatter_class = HelpText
    try:
        complete = os.environ.get("_BULLPEN_COMPLETE")
        if complete:
            cli.main(arguments, prog_name="bullpen")  # answers the shell and exits
        with cli.make_context("bullpen", arguments) as context:
            shared = context.meta
            try:
                cli.invoke(context)
            finally:
                sys.stdout.flush()
    except BullpenError as error:
        # Nothing was done yet: a command finds its home first.
        is_accepted = _accepts_home(error)
        as_json = bool(shared.get("bullpen.json"))
        return run(arguments) if is_accepted else _report(error, as_json)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())  # a person who looks around made no error
        return 2
    except click.ClickException as error:
        _show_usage_error(error, as_json="--json" in arguments)
        return 2
    except (KeyboardInterrupt, click.Abort) as stop:
        _end_line(stop)
        return 130
    except BrokenPipeError:
        # The reader (head, less) left; point stdout away so that exiting does not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except OSError as error:
        # The system's own refusals (a full disk, a read-only directory) are no bugs.
        what = ": ".join(filter(None, (error.strerror or str(error), error.filename)))
        return _report(BullpenError(what, kind=Kind.COMMAND_FAILED), as_json="--json" in arguments)
    except Exception as error:
        return _report_bug(error)
    return 0


def _end_line(stop: BaseException) -> None:
    """The terminal has shown ^C, and the shell's prompt would follow in the same line. A `no` that
    was typed to a question has ended it."""
    keys = (KeyboardInterrupt, EOFError)
    if isinstance(stop, keys) or isinstance(stop.__context__, keys):
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr.isatty():
                sys.stderr.write("\n")


def _accepts_home(error: BullpenError) -> bool:
    """Whether a person at a terminal says that an unknown home is theirs; it is noted then."""
    from bullpen.cli import output
    from bullpen.home.accepted import UnknownHomeError

    is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    if not isinstance(error, UnknownHomeError) or not is_terminal:
        return False

    question = f"{error.message}.\nIt says which programs run. Is it yours?"
    try:
        if not click.confirm(output.printable(question, lines=True), err=True):
            return False
        error.accept()
    except click.Abort:
        return False
    except BullpenError as problem:
        output.write_error(problem.message, problem.hint)
        return False
    return True


def _report(error: BullpenError, as_json: bool) -> int:
    from bullpen.cli import output

    if as_json:
        output.write_json(error.to_json(), err=True)
    else:
        output.write_error(error.message, error.hint)
    return EXIT_CODES[error.kind]


def _show_usage_error(error: click.ClickException, as_json: bool) -> None:
    from bullpen.suggest import did_you_mean

    message = error.format_message()
    hint = ""
    context = getattr(error, "ctx", None)
    if isinstance(error, click.UsageError) and context is not None:
        hint = f"{context.command_path} --help"
        if message.startswith("No such command") and isinstance(context.command, click.Group):
            wrong = message.split("'")[1]
            near = did_you_mean(wrong, context.command.list_commands(context))
            message = f"no such command: {wrong}{near}"
    _report(BullpenError(message, hint=hint), as_json)


def _report_bug(error: Exception) -> int:
    from bullpen.cli import output

    if os.environ.get("BULLPEN_DEBUG"):
        import traceback

        traceback.print_exception(error)
    output.write_error(
        f"this is a bug in bullpen: {type(error).__name__}: {error}",
        "run it again with BULLPEN_DEBUG=1 and report what it prints",
    )
    return 70


if __name__ == "__main__":
    main()
