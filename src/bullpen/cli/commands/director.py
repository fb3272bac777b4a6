"""`bullpen director`: what brings work in by itself: make, start, stop and list directors."""

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from bullpen.cli import directors, output, worktree_sites
from bullpen.cli.component_log import write_log
from bullpen.cli.connect import connect
from bullpen.cli.directors import complete_directors
from bullpen.cli.help_text import Group
from bullpen.cli.tasks import where
from bullpen.cli.tasks.options import prompt_of
from bullpen.cli.tasks.wait import say
from bullpen.client.landings import list_landings
from bullpen.directors import config as configs
from bullpen.directors.calls import Goal
from bullpen.errors import BullpenError, Kind
from bullpen.files import create_once
from bullpen.home.paths import Home, current_home, person_home, short_path

HEADERS = ("NAME", "TYPE", "STATE", "PORT", "AUTOSTART", "RESTARTS")
GOAL_HEADERS = ("ID", "STATE", "AGENT", "GOAL")
LOOK_AGAIN_SECONDS = 0.2
AWAY_SECONDS = 10.0  # that a director whose goal is waited for may be stopped
OTHER_NAMES = {"manager": "claude"}  # what people call a type
OVER = ("completed", "failed", "cancelled")

name_argument = click.argument("name", shell_complete=complete_directors)


@click.group(cls=Group)
def command() -> None:
    """Directors bring work in by themselves: they find it, and give it to agents.

    Each has a file in directors/ in the home, and a process of its own.
    """


@command.command()
@click.argument("type", metavar="TYPE", type=click.Choice(sorted([*configs.TYPES, *OTHER_NAMES])))
@click.argument("name", required=False)
@output.json_option
def init(type: str, name: str | None, as_json: bool) -> None:
    """Write a file for a director, with every key as a comment. A manager's names the repository
    that you are in.

    Types: scheduler, which gives tasks by the clock; github and gitlab, which turn issues into
    pull requests; claude, a manager, which takes goals and leads other agents.
    """
    home = current_home()
    type = OTHER_NAMES.get(type, type)
    path = configs.config_file(home, name or type)
    home.directors.mkdir(mode=0o700, exist_ok=True)
    starter = configs.director_type(type).starter_in(_repository_here(home))
    if not create_once(path, starter.encode()):
        raise BullpenError(f"{path} is there already", hint="edit it", kind=Kind.CONFLICT)
    if as_json:
        output.write_json({"name": path.stem, "type": type, "file": str(path)})
        return
    output.write(f"written: {output.printable(short_path(path))}")
    output.write(f"next: edit it, then bullpen director start {path.stem}")


def _repository_here(home: Home) -> Path | None:
    """That tasks may work in."""
    from bullpen.home.settings import load_settings
    from bullpen.home.workdirs import checked_directory

    with contextlib.suppress(BullpenError):
        repository = where.find_repository(Path.cwd())
        if repository is not None:
            settings = load_settings(home.config_file)
            return checked_directory(home, settings, person_home(), str(repository))
    return None


@command.command()
@name_argument
@click.option("--dry-run", is_flag=True, help="Say what it would do first, and do nothing.")
@output.json_option
def start(name: str, dry_run: bool, as_json: bool) -> None:
    """Start a director, unless it runs.

    With --dry-run it looks once at what it works on, reads only, and prints what it would do now.
    Nothing is started, written or asked for; also of one that runs already.
    """
    if dry_run:
        _write_ahead(directors.look_ahead(current_home(), name), as_json)
        return
    _started(name, directors.start_director(current_home(), name), as_json)


def _write_ahead(ahead: Sequence[directors.WouldDo], as_json: bool) -> None:
    if as_json:
        output.write_json({"would": [vars(one) for one in ahead]})
        return
    for one in ahead:
        output.write(output.printable(one.text()))
    output.write("nothing was done" if ahead else "it would do nothing now; nothing was done")


@command.command()
@name_argument
@output.json_option
def stop(name: str, as_json: bool) -> None:
    """Stop a director. Tasks that it gave go on; it takes them up again when it is started."""
    was_running = directors.stop_director(current_home(), name)
    if as_json:
        output.write_json({"name": name, "stopped": was_running})
    else:
        output.write(f"{name} stopped" if was_running else f"{name} was not running")


@command.command()
@name_argument
@output.json_option
def restart(name: str, as_json: bool) -> None:
    """Stop a director, and start it again."""
    home = current_home()
    configs.load_director(home, name)  # a file with errors stops nothing
    directors.stop_director(home, name)
    _started(name, directors.start_director(home, name), as_json)


def _started(name: str, pid: int | None, as_json: bool) -> None:
    if as_json:
        output.write_json({"name": name, "started": pid is not None, "pid": pid})
        return
    output.write(f"{name} runs · pid {pid}" if pid is not None else f"{name} runs already")
    _write_notes(current_home(), name)


def _write_notes(home: Home, name: str) -> None:
    _, config = configs.load_director(home, name)
    for note in config.notes(home):
        sys.stderr.write(output.printable(f"note: {note}") + "\n")


@command.command()
@name_argument
@click.argument("goal")
@click.option("--wait", is_flag=True, help="Until it is over; then print the report.")
@output.json_option
def task(name: str, goal: str, wait: bool, as_json: bool) -> None:
    """Give a goal to a director of type claude (`-`: standard input).

    It has agents work on it, looks at what they made, and reports.
    """
    home = current_home()
    id = directors.give_goal(home, name, prompt_of(goal))
    _write_notes(home, name)
    goal_now = _look_at_goal(home, name, id, wait)
    if not wait and not as_json:
        output.write(f"{id} · {name} leads · bullpen director goal {name} {id} --wait")
        return
    _write_goal(goal_now, wait, as_json)


@command.command()
@name_argument
@click.argument("id")
@click.option("--wait", is_flag=True, help="Until it is over; then print the report.")
@click.option("--cancel", is_flag=True, help="End it. Tasks that were given to others go on.")
@output.json_option
def goal(name: str, id: str, wait: bool, cancel: bool, as_json: bool) -> None:
    """Say how a goal stands, with the report when it is over; wait for it, or end it."""
    home = current_home()
    if cancel:
        directors.cancel_goal(home, name, id)
    _write_goal(_look_at_goal(home, name, id, wait), wait, as_json)


@command.command()
@name_argument
@output.json_option
def goals(name: str, as_json: bool) -> None:
    """List the goals of a director of type claude: those that are not over, then the last ones."""
    rows_of_goals = directors.list_goals(current_home(), name)
    if as_json:
        output.write_json({"goals": [one.to_json() for one in rows_of_goals]})
        return
    if not rows_of_goals:
        output.write(f'{name} has no goals · bullpen director task {name} "GOAL"')
        return
    rows = [
        (one.id, one.state, one.agent or "–", " ".join(one.goal.split())) for one in rows_of_goals
    ]
    output.write_table(GOAL_HEADERS, rows)


def _look_at_goal(home: Home, name: str, id: str, wait: bool) -> Goal:
    answered = -AWAY_SECONDS
    while True:
        try:
            current = directors.get_goal(home, name, id)
            answered = time.monotonic()
            if not wait or current.state in OVER:
                return current
        except BullpenError as error:
            # One that crashed, or is restarted by a person, comes back and knows its goals.
            is_soon = time.monotonic() < answered + AWAY_SECONDS or directors.comes_back(home, name)
            if not wait or error.kind is not Kind.UNAVAILABLE or not is_soon:
                raise
        time.sleep(LOOK_AGAIN_SECONDS)


def _write_goal(one: Goal, has_waited: bool, as_json: bool) -> None:
    """One that was waited for is its report; one that was only looked at says its state first."""
    line = f"{one.id} {one.state}" + (f": {one.reason}" if one.reason else "")
    if as_json:
        output.write_json(one.to_json())
    elif not has_waited:
        output.write(output.printable(line, lines=True))
    if not as_json and one.report:
        output.write(output.printable(one.report, lines=True))
    if not as_json and one.branch:
        # Of one that was waited for, standard output is the report and nothing else.
        (say if has_waited else output.write)(output.printable(_branch_line(one, one.branch)))
    if has_waited and one.state != "completed":
        raise BullpenError(line, kind=Kind.COMMAND_FAILED)


def _branch_line(one: Goal, branch: str) -> str:
    """What the person can do with it: nothing of it is in a branch of theirs."""
    look = f"bullpen diff {branch}"
    if one.state not in OVER:
        return f"on branch {branch} · {look}"
    if not one.commit_count:
        return f"nothing has landed on its branch {branch}"
    count = "1 commit" if one.commit_count == 1 else f"{one.commit_count} commits"
    landed = _find_landed(branch)
    has_worktree = branch in worktree_sites.all_names()
    if landed is not None:
        clean_up = f" · bullpen finish {branch} --land removes its branch" if has_worktree else ""
        return f"{count} · {landed}{clean_up}"
    if not has_worktree:
        return f"{count} on branch {branch}, whose worktree was removed"
    return f"{count} on branch {branch} · {look} · bullpen land {branch}"


def _find_landed(branch: str) -> str | None:
    """Where it landed last, if the hub is up and still knows."""
    from bullpen.model.landing import SHORT, Landed

    try:
        landings = connect(start=False).do(list_landings(everything=True)).landings
    except BullpenError:
        return None
    for landing in reversed(landings):
        if landing.name == branch and isinstance(landing.status, Landed):
            return f"landed on {landing.target} as {landing.status.commit[:SHORT]}"
    return None


@command.command("list")
@output.json_option
def list_(as_json: bool) -> None:
    """List directors, and what holds them up."""
    rows = directors.list_rows(current_home())
    if as_json:
        output.write_json({"directors": [row.to_json() for row in rows]})
        return
    if not rows:
        output.write("no directors · bullpen director init scheduler")
        return
    table = [
        (
            row.name,
            row.type,
            row.state,
            str(row.port or ""),
            "yes" if row.autostart else "",
            str(row.restarts or ""),
        )
        for row in rows
    ]
    output.write_table(
        HEADERS, table, drop=("AUTOSTART", "PORT", "RESTARTS", "TYPE"), cut=("NAME",)
    )
    # Below the table, where no narrow terminal cuts them.
    for row in rows:
        for problem in row.problems:
            output.write(output.printable(f"{row.name}: {problem.text(time.time())}"))


@command.command()
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until you press Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0), default=100, help="Only so many, the last.")
@output.json_option
def logs(name: str, follow: bool, lines: int, as_json: bool) -> None:
    """Print a director's log. With --json one entry per line, as the file has it."""
    path = current_home().logs / f"{configs.check_director_name(name)}.log"
    start = f"bullpen director start {name}"
    write_log(path, start=start, follow=follow, lines=lines, as_json=as_json)
