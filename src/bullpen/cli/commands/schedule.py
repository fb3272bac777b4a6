"""`bullpen schedule`: the schedule of a scheduler: look at it, change it, run an entry now."""

import heapq
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from bullpen.cli import output
from bullpen.cli.components import OwnComponent
from bullpen.cli.directors import ask_director, complete_directors, find_running
from bullpen.cli.help_text import Group
from bullpen.cli.tasks.options import directory_of
from bullpen.directors import calls
from bullpen.directors import config as configs
from bullpen.directors.scheduler.config import Entry
from bullpen.directors.scheduler.cron import occurrences
from bullpen.directors.scheduler.file import ScheduleFile, no_entry
from bullpen.directors.scheduler.zone import local_zone
from bullpen.errors import BullpenError, Kind
from bullpen.home.agent_files import list_agent_files
from bullpen.home.paths import Home, current_directory, current_home
from bullpen.home.roles import list_roles
from bullpen.home.yamlfile import read
from bullpen.terminal.sessions import known

HEADERS = ("NAME", "CRON", "NEXT", "FOR", "LAST")
FEW_RUNS = 5
MOST_RUNS = 1000
DAY_SECONDS = 86_400

director_option = click.option(
    "--director",
    metavar="NAME",
    shell_complete=complete_directors,
    help="Whose schedule; not needed if there is one scheduler.",
)


@click.group(cls=Group)
def command() -> None:
    """The schedule of a scheduler: list, add, remove, run, next.

    It is the list `schedule` in directors/NAME.yaml; what you change there counts at once.
    """


@command.command("list")
@director_option
@output.json_option
def list_(director: str | None, as_json: bool) -> None:
    """List what is scheduled, when it comes next, and what came of it last."""
    counting = _counting(current_home(), director)
    name, running = counting.director, counting.running
    scheduled: dict[str, calls.ScheduledEntry] = {}
    if running is not None:
        schedule = ask_director(running, calls.get_schedule()).schedule
        scheduled = {one.name: one for one in schedule}
    entries = [_shown(entry, 1, scheduled.get(entry.name)) for entry in counting.entries.values()]
    if as_json:
        fields = {"director": name, "running": running is not None, "problem": counting.problem}
        output.write_json({**fields, "schedule": entries})
        return
    counting.tell_problem()
    if not entries:
        output.write(f'{name} has nothing to do · bullpen schedule add NAME "CRON" "PROMPT"')
    else:
        output.write_table(HEADERS, [_line(one) for one in entries])
    if running is None:
        output.write(f"{name} is not running · bullpen director start {name}")


@command.command()
@click.argument("name")
@click.argument("cron")
@click.argument("prompt")
@click.option("--agent", help="Who takes it.")
@click.option("--role", help="Any free agent of this role takes it.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Or with this label.")
@click.option("--project", help="Where it works: a file in projects/.")
@click.option("--workdir", metavar="DIR", help="Or in this directory.")
@click.option(
    "--fleet", is_flag=True, default=None, help="On any machine of the fleet; see docs/fleet.md."
)
@click.option("--model", help="Which model.")
@click.option("--timezone", metavar="ZONE", help="e.g. Europe/Berlin (default: this machine's).")
@click.option("--overlap", type=click.Choice(["skip", "queue", "allow"]), help="(default: skip)")
@click.option("--catch-up", type=click.Choice(["none", "once", "all"]), help="(default: none)")
@click.option("--timeout", metavar="DURATION", help="(default: 1h)")
@director_option
@output.json_option
def add(
    name: str,
    cron: str,
    prompt: str,
    labels: tuple[str, ...],
    director: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Add an entry. CRON has five fields, or is @hourly, @daily …; quote it.

    For example: bullpen schedule add tidy "30 2 * * MON-FRI" "Tidy up." --role coder --workdir .

    It works in the directory of --workdir, or in a worktree of the repository that the file of
    --project names. Without either it works in an empty directory of its own, wherever you stand.
    """
    home = current_home()
    _, file = _file(home, director)
    fields["workdir"] = directory_of(fields["workdir"], current_directory())
    options = {key: value for key, value in fields.items() if value is not None}
    entry = file.add({"name": name, "cron": cron, "prompt": prompt, **options, **_labels(labels)})
    shown = _shown(entry, 1, None)
    if as_json:
        output.write_json(shown)
    else:
        output.write(f"{entry.name} runs next {_when(entry, shown['next_runs'])}")
    for lack in _lacks(home, entry):
        _note(lack)


@command.command()
@click.argument("name")
@director_option
@output.json_option
def remove(name: str, director: str | None, as_json: bool) -> None:
    """Remove an entry. A run that is under way goes on."""
    _, file = _file(current_home(), director)
    file.remove(name)
    if as_json:
        output.write_json({"removed": name})
    else:
        output.write(f"{name} is removed")


@command.command()
@click.argument("name")
@director_option
@output.json_option
def run(name: str, director: str | None, as_json: bool) -> None:
    """Run an entry now, besides its times."""
    home = current_home()
    counting = _counting(home, director)
    counting.tell_problem()
    if name not in counting.entries:
        raise no_entry(name, list(counting.entries))
    scheduler, running = counting.director, counting.running
    if running is None:
        raise BullpenError(
            f"{scheduler} is not running",
            hint=f"bullpen director start {scheduler}",
            kind=Kind.UNAVAILABLE,
        )
    occurrence = ask_director(running, calls.run_entry(name))
    if as_json:
        output.write_json(occurrence.to_json())
    else:
        output.write(f"{occurrence.id} is due · bullpen schedule list says what comes of it")
    for lack in _lacks(home, counting.entries[name]):
        _note(lack)


@command.command("next")
@click.argument("name", required=False)
@click.option(
    "-n",
    "count",
    type=click.IntRange(1, MOST_RUNS),
    help=f"How many at most (default: 5; with --days {MOST_RUNS:,}).",
)
@click.option("--days", type=click.IntRange(1, 366), help="All within so many days of 24 hours.")
@director_option
@output.json_option
def next_(
    name: str | None, count: int | None, days: int | None, director: str | None, as_json: bool
) -> None:
    """Say when entries come next, also where clocks change.

    All entries in the order of time, or that one.
    """
    counting = _counting(current_home(), director)
    counting.tell_problem()
    known_entries = counting.entries
    if name is not None and name not in known_entries:
        raise no_entry(name, list(known_entries))
    entries = [one for one in known_entries.values() if name in (None, one.name)]
    count = count or (FEW_RUNS if days is None else MOST_RUNS)
    now = datetime.now(UTC).timestamp()
    end = now + days * DAY_SECONDS if days is not None else math.inf
    runs = list(islice(_in_order(entries, now, end), count + 1))
    if days is not None and len(runs) > count:
        last, entry = runs[count - 1]
        _note(
            f"there are more: the first {count:,}, up to {_when(entry, [last])}"
            " · fewer --days, or the NAME of an entry"
        )
    runs = runs[:count]
    if as_json:
        rows = [{"name": one.name, "at": due, "timezone": _zone(one)} for due, one in runs]
        output.write_json({"runs": rows})
        return
    for due, entry in runs:
        output.write(f"{_when(entry, [due])}  {entry.name}")
    if not runs:
        output.write(f"none within {days} days" if days is not None else "none")


@dataclass(frozen=True)
class _Counting:
    """A scheduler and the entries that count: those of its file, or, while that has errors, those
    that the running scheduler goes on with."""

    director: str
    running: OwnComponent | None
    entries: Mapping[str, Entry]
    problem: str | None

    def tell_problem(self) -> None:
        if self.problem:
            _note(f"the file has errors, and the schedule of before counts: {self.problem}")


def _counting(home: Home, director: str | None) -> _Counting:
    name = _scheduler(home, director)
    running = find_running(home, name)
    if running is None:
        return _Counting(name, None, _file(home, name)[1].entries, None)
    file = ScheduleFile(home, configs.config_file(home, name))
    file.look()
    if not file.problem:
        return _Counting(name, running, file.entries, None)
    keys = Entry.key_names()
    rows = [one.to_json() for one in ask_director(running, calls.get_schedule()).schedule]
    entries = [Entry.model_validate({k: one[k] for k in keys if k in one}) for one in rows]
    return _Counting(name, running, {entry.name: entry for entry in entries}, file.problem)


def _file(home: Home, director: str | None) -> tuple[str, ScheduleFile]:
    """The scheduler that is meant, and its file, which is right."""
    director = _scheduler(home, director)
    kind, _ = configs.load_director(home, director)
    if _type(home, director) != "scheduler":
        raise BullpenError(f"{director} is no scheduler: {kind.__name__}")
    file = ScheduleFile(home, configs.config_file(home, director))
    file.look()
    return director, file


def _scheduler(home: Home, director: str | None) -> str:
    """The one that is meant. A file that cannot be read at all may be a scheduler's."""
    if director is not None:
        return director
    names = configs.list_directors(home)
    candidates = [name for name in names if _type(home, name) == "scheduler"]
    candidates = candidates or [name for name in names if _type(home, name) is None]
    if not candidates:
        raise BullpenError(
            "there is no scheduler", hint="bullpen director init scheduler", kind=Kind.NOT_FOUND
        )
    if len(candidates) > 1:
        raise BullpenError(f"which? --director {' or --director '.join(candidates)}")
    return candidates[0]


def _lacks(home: Home, entry: Entry) -> Iterator[str]:
    """What the entry needs and this home does not have now; it may have it in time."""
    if entry.agent and entry.agent not in {*list_agent_files(home), *known(home)}:
        yield f"no agent called {entry.agent} · bullpen agent start {entry.agent} --role ROLE"
    if (
        entry.role
        and not entry.fleet
        and entry.role not in {file.name for file in list_roles(home.roles)}
    ):
        yield f"no role called {entry.role} · bullpen role list"
    if entry.project and not (home.projects / f"{entry.project}.yaml").exists():
        yield f"no project called {entry.project}: {home.projects / entry.project}.yaml"
    if entry.workdir and not Path(entry.workdir).is_dir():
        yield f"no directory {entry.workdir}"


def _note(text: str) -> None:
    sys.stderr.write(f"note: {output.printable(text)}\n")


def _type(home: Home, name: str) -> object:
    data = read(home.directors / f"{name}.yaml").data  # whose name may be wrong, too
    return data.get("type") if isinstance(data, dict) else None


def _labels(labels: tuple[str, ...]) -> dict[str, dict[str, str]]:
    pairs = [label.partition("=") for label in labels]
    if wrong := [name for name, sign, _ in pairs if not (name and sign)]:
        raise BullpenError(f"--label {wrong[0]} is no KEY=VALUE")
    return {"labels": {name: value for name, _, value in pairs}} if pairs else {}


def _zone(entry: Entry) -> str:
    return entry.timezone or local_zone()


def _in_order(entries: Iterable[Entry], now: float, end: float) -> Iterator[tuple[float, Entry]]:
    """All runs up to that time, of each entry no more than are looked at."""

    def of(entry: Entry) -> Iterator[tuple[float, Entry]]:
        for due in occurrences(entry.cron, _zone(entry), now):
            if due > end:
                return
            yield due, entry

    return heapq.merge(*map(of, entries), key=itemgetter(0))


def _next(entry: Entry, count: int) -> list[float]:
    now = datetime.now(UTC).timestamp()
    return list(islice(occurrences(entry.cron, _zone(entry), now), count))


def _shown(entry: Entry, count: int, running: calls.ScheduledEntry | None) -> dict[str, Any]:
    fields = entry.model_dump(mode="json", exclude_defaults=True)
    return {
        **fields,
        "timezone": _zone(entry),
        "next_runs": [_utc(due) for due in _next(entry, count)],
        "last": running.last.to_json() if running and running.last else None,
        "waits_for": running.waits_for if running else None,
    }


def _utc(due: float) -> datetime:
    return datetime.fromtimestamp(due, UTC)


def _when(entry: Entry, runs: list[Any]) -> str:
    """In the entry's own zone, as its person thinks of it."""
    from zoneinfo import ZoneInfo

    if not runs:
        return "never"
    moment = runs[0] if isinstance(runs[0], datetime) else _utc(runs[0])
    return moment.astimezone(ZoneInfo(_zone(entry))).strftime("%a %Y-%m-%d %H:%M %Z")


def _line(one: dict[str, Any]) -> tuple[str, ...]:
    labels = ",".join(f"{key}={value}" for key, value in one.get("labels", {}).items())
    agent = one.get("agent") or " ".join(filter(None, (one.get("role"), labels))) or "anybody"
    agent += " of the fleet" if one.get("fleet") else ""
    entry = Entry.model_validate({key: one[key] for key in ("name", "cron", "prompt", "timezone")})
    return (
        one["name"],
        one["cron"],
        _when(entry, one["next_runs"]),
        agent,
        _came_of(one),
    )


def _came_of(one: dict[str, Any]) -> str:
    """Of the run that waits, or of the last."""
    last = one["last"]
    if one["waits_for"]:
        return f"waits: {one['waits_for']}"
    return f"{last['state']}: {last['reason']}".removesuffix(": ") if last else ""
