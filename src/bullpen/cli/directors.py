"""What `director`, `schedule` and `up` share: the directors of this home, started and stopped.

A director is started with a token of its own: made here, its hash told to the hub. Commands go to
its socket in the home.
"""

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass
from typing import TypeVar

import click

from bullpen.cli.components import OwnComponent, own_components
from bullpen.cli.supervised import Supervisable
from bullpen.cli.tasks import agents as task_agents
from bullpen.client.call import Call
from bullpen.client.directors import admit_director, revoke_director
from bullpen.client.hub import Hub
from bullpen.client.start import answers, start_hub
from bullpen.component import ask
from bullpen.directors import calls, token
from bullpen.directors import config as configs
from bullpen.directors.memory import directory_of
from bullpen.errors import BullpenError, Kind
from bullpen.home.agent_files import list_agent_files, load_agent_file
from bullpen.home.paths import Home, current_home
from bullpen.home.supervised import find_above, find_supervisor
from bullpen.home.yamlfile import read
from bullpen.model.director import GONE
from bullpen.suggest import did_you_mean
from bullpen.text import seconds_text

T = TypeVar("T")

GOAL_TYPE = "claude"


@dataclass(frozen=True)
class DirectorProblem:
    """What holds a director up, or one thing that it does (`about`)."""

    reason: str
    about: str = ""
    hint: str = ""
    again_at: float | None = None  # when it is tried again

    def text(self, now: float) -> str:
        """In one line: what git and others say has many."""
        again = ""
        if self.again_at is not None:
            again = f"again in {seconds_text(max(0.0, self.again_at - now))}"
        parts = [*self.reason.splitlines(), again, *self.hint.splitlines()]
        words = " · ".join(part.strip() for part in parts if part.strip())
        return f"{self.about}: {words}" if self.about else words


@dataclass(frozen=True)
class DirectorRow:
    """A director of this home; `state` is its own word, or `stopped`, `gone`, `restarting`."""

    name: str
    type: str
    state: str
    port: int | None
    autostart: bool
    restarts: int  # after crashes, since it was started
    problems: tuple[DirectorProblem, ...]

    def to_json(self) -> dict[str, object]:
        problem = self.problems[0].text(time.time()) if self.problems else ""
        problems = [{**vars(one)} for one in self.problems]
        return {**vars(self), "problem": problem, "problems": problems}


def complete_directors(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names for the shell; silent when there is no home."""
    try:
        names = configs.list_directors(current_home())
    except BullpenError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def start_director(home: Home, name: str) -> int | None:
    """Start it, unless it runs: its pid; None: it ran."""
    _refuse_agent()
    _, config = configs.load_director(home, name)
    supervisable = _supervisable(home, name)
    with supervisable.alone():  # each start makes a token of its own, and who fails revokes it
        if (running := find_running(home, name)) is not None:
            supervisable.supervise(running.pid)
            return None
        if supervisable.find_above() is not None:
            return None
        if not answers(home):
            start_hub(home, os.environ)
        hub = Hub(home)
        _start_leading_agent(hub, config.leading_agent(name))
        hub.do(admit_director(name, token.make_token(home, name)))
        try:
            return supervisable.start()
        except BaseException:
            if not _lives(home, name):
                _revoke(home, name)
            raise


@dataclass(frozen=True)
class WouldDo:
    """One thing that a director would do now; `waits`: why not yet."""

    about: str
    what: str
    waits: str | None

    def text(self) -> str:
        line = " ".join(f"{self.about}: {self.what}".split())
        return f"{line} (not yet: {self.waits})" if self.waits else line


def look_ahead(home: Home, name: str) -> list[WouldDo]:
    """What it would do now if it ran, in order. Reads only: here, at the hub, and at a forge."""
    _refuse_agent()
    kind, config = configs.load_director(home, name)
    ahead = []
    if (leading := config.leading_agent(name)) is not None:
        agent, role = leading
        ahead.append(WouldDo(agent, f"is started with role {role}, unless it runs", None))
    for one in asyncio.run(kind(home, name, config).look_ahead()):
        begun = "finds out what became of this, and else: " if one.is_begun else ""
        what = f"{begun}{one.action.words}"
        ahead.append(WouldDo(one.action.subject, what, one.waits or None))
    return ahead


def _refuse_agent() -> None:
    if os.environ.get("BULLPEN_ACTOR"):
        raise BullpenError("an agent may not start a director", kind=Kind.DENIED)


def _start_leading_agent(hub: Hub, leading: tuple[str, str] | None) -> None:
    """The director may not do that itself: its token only gives tasks. It stays when the director
    is stopped, with its task."""
    if leading is None:
        return
    name, role = leading
    has_file = name in list_agent_files(hub.home)
    agent = task_agents.find_agent(hub, name)
    if agent is None or not agent.running:
        task_agents.start(hub, name, None if has_file else role)
        return
    wanted = load_agent_file(hub.home, name).role if has_file else role
    if agent.kind != "headless" or agent.role != wanted:
        what = f"a task agent of role {agent.role}" if agent.kind == "headless" else "in a terminal"
        raise BullpenError(
            f"there is an agent {name} already, {what}: this director needs one of role {wanted}"
            " that takes tasks",
            hint=f"bullpen stop {name}, or name another one in the director's file: agent: NAME",
            kind=Kind.CONFLICT,
        )


def _supervisable(home: Home, name: str) -> Supervisable:
    directory = directory_of(home, name)
    return Supervisable(
        home, name, directory, f"director-{name}", "bullpen.directors.process", (name,)
    )


def _lives(home: Home, name: str) -> bool:
    return find_running(home, name) is not None or find_supervisor(home, name) is not None


def stop_director(home: Home, name: str) -> bool:
    """Stop it, and revoke its token; False: it was not running. What it gave goes on."""
    was_started = _lives(home, name) or token.token_file(home, name).exists()
    if not was_started and name not in configs.list_directors(home):
        raise _unknown(home, name)
    supervisable = _supervisable(home, name)
    with supervisable.alone():
        was_running = supervisable.stop(find_running(home, name))
        _revoke(home, name)
    return was_running


def _revoke(home: Home, name: str) -> None:
    """A hub that is down is not started for it: it counts no more when the next start makes a new
    one, and nobody has it, since its file is gone."""
    token.forget_token(home, name)
    with contextlib.suppress(BullpenError):
        Hub(home, start=False).do(revoke_director(name))


def find_running(home: Home, name: str) -> OwnComponent | None:
    """The process of that director."""
    own = own_components(home)
    return next((one for one in own if (one.type, one.name) == ("director", name)), None)


def comes_back(home: Home, name: str) -> bool:
    """Whether something starts it again, now that it does not run."""
    return find_supervisor(home, name) is not None


def list_rows(home: Home) -> list[DirectorRow]:
    """All that have a file, run or were started and not stopped, by name."""
    running = {one.name: one for one in own_components(home) if one.type == "director"}
    started = {path.parent.name for path in home.directors.glob("*/token")}
    files = home.directors.glob("*/supervisor.json")
    supervised = {file.parent.name for file in files if find_above(file.parent) is not None}
    names = {*configs.list_directors(home), *running, *supervised, *started}
    return [_row(home, name, running.get(name)) for name in sorted(names)]


def _row(home: Home, name: str, running: OwnComponent | None) -> DirectorRow:
    config, kind, problems = _look_at_file(home, name)
    supervisor = find_supervisor(home, name)
    state = "stopped"
    if running is not None:
        try:
            status = ask.get_status(running.socket)
            state, kind = status.state, str(status.config.get("type", kind))
            problems = [*_troubles(ask_director(running, calls.list_tasks())), *problems]
        except (ask.NoAnswerError, BullpenError):
            state = "silent"
            hint = f"bullpen director restart {name}"
            problems = [DirectorProblem("it does not answer", hint=hint), *problems]
    elif supervisor is not None:
        state = "restarting"
        ended = DirectorProblem(supervisor.ending, again_at=supervisor.again_at)
        problems = [ended, *problems]
    elif token.token_file(home, name).exists():  # `director stop` would have taken it away
        state = "gone"
        problems = [DirectorProblem(GONE, hint=f"bullpen director start {name}"), *problems]
    return DirectorRow(
        name=name,
        type=kind,
        state=state,
        port=running.port if running is not None else None,
        autostart=config.autostart if config is not None else False,
        restarts=supervisor.restarts if supervisor is not None else 0,
        problems=tuple(problems),
    )


def _look_at_file(
    home: Home, name: str
) -> tuple[configs.DirectorConfig | None, str, list[DirectorProblem]]:
    """What it says, its type, and everything wrong with it."""
    path = home.directors / f"{name}.yaml"
    if not path.exists():
        hint = f"put it back, or bullpen director stop {name}"
        return None, "?", [DirectorProblem(f"{path} is not there", hint=hint)]
    document = read(path)
    config, problems = configs.check_director_document(document, home)
    data = document.data if isinstance(document.data, dict) else {}
    in_file = [
        DirectorProblem(" ".join(filter(None, (f"{path}:{one.line}", one.key, one.message))))
        for one in problems
    ]
    return config, str(data.get("type", "?")), in_file


def _troubles(answer: calls.DirectorTasks) -> list[DirectorProblem]:
    return [
        DirectorProblem(
            one.reason,
            about=one.about,
            hint=one.hint,
            again_at=None if one.is_given_up else one.at + one.wait_seconds,
        )
        for one in answer.problems
    ]


def ask_director(running: OwnComponent, call: Call[T]) -> T:
    """What it answers."""
    try:
        return ask.do(running.socket, call)
    except ask.NoAnswerError as error:
        raise BullpenError(
            f"{running.name} does not answer",
            hint=f"bullpen director restart {running.name}",
            kind=Kind.UNAVAILABLE,
        ) from error


def give_goal(home: Home, name: str, prompt: str) -> str:
    """A goal for a director of type claude; its id. On disk when this returns."""
    return ask_director(_get_leading(home, name), calls.give_goal(prompt)).task_id


def get_goal(home: Home, name: str, id: str) -> calls.Goal:
    """How a goal stands."""
    return ask_director(_get_leading(home, name), calls.get_goal(id))


def cancel_goal(home: Home, name: str, id: str) -> None:
    """End a goal; one that is over stays as it is."""
    ask_director(_get_leading(home, name), calls.cancel_goal(id))


def list_goals(home: Home, name: str) -> list[calls.Goal]:
    """Those that are not over, then those that are, newest first."""
    running = _get_leading(home, name)
    over = ask_director(running, calls.list_history(limit=100)).items
    under_way = ask_director(running, calls.list_tasks()).tasks
    return [
        calls.Goal.model_validate(one.model_dump(exclude_unset=True)) for one in (*under_way, *over)
    ]


def _get_leading(home: Home, name: str) -> OwnComponent:
    """The process of a director that takes goals."""
    _, config = configs.load_director(home, name)
    if config.type != GOAL_TYPE:
        raise BullpenError(
            f"{name} is a director of type {config.type}: it finds its work itself",
            hint=f"bullpen director init {GOAL_TYPE}",
            kind=Kind.UNSUPPORTED,
        )
    return _get_running(home, name)


def _get_running(home: Home, name: str) -> OwnComponent:
    running = find_running(home, name)
    if running is None:
        raise BullpenError(
            f"{name} does not run",
            hint=f"bullpen director start {name}",
            kind=Kind.UNAVAILABLE,
        )
    return running


def _unknown(home: Home, name: str) -> BullpenError:
    known = configs.list_directors(home)
    return BullpenError(
        f"no director called {name}{did_you_mean(name, known)}",
        hint="bullpen director list",
        kind=Kind.NOT_FOUND,
    )
