"""A director as a component: its memory, its loop, and `/tasks`, `/history`, `/agents`.

A type of directors is a subclass: it makes the rules (`loop.Rules`) and says what is shown of their
memory. Started by `process`; `component/server` gives it `/status`, `/config`, `/shutdown`, its
port, its socket and its entry in the hub's register. Holds the memory's lock while it lives.
"""

import contextlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from bullpen.client import AsyncHub
from bullpen.component.config import ComponentConfig
from bullpen.component.process import ComponentProcess
from bullpen.directors import memory
from bullpen.directors.config import DirectorConfig
from bullpen.directors.history import HistoryRow, page_of
from bullpen.directors.loop import WHOLE, Ahead, Loop, Rules, checkpoint_type
from bullpen.directors.memory import Action, MemoryFile
from bullpen.directors.token import load_token, token_file
from bullpen.home.paths import Home
from bullpen.home.settings import Discovery
from bullpen.model.component import Level
from bullpen.model.value import Value

S = TypeVar("S")
M = TypeVar("M", bound=Value)
A = TypeVar("A", bound=Action)
Shown: TypeAlias = Value | Mapping[str, object]
REVOKED = "no such token"  # what the hub says of a token that counts no more
O = TypeVar("O")  # noqa: E741 - what comes of an action


class Director(ComponentProcess, Generic[S, M, A, O]):
    """One director. The loop is there from the start on, so that its memory can be shown."""

    kind = "director"
    interfaces = ("statusable", "observable", "configurable")
    config_type: ClassVar[type[ComponentConfig]] = DirectorConfig
    starter: ClassVar[str] = ""  # the file that `director init` writes, as a rule
    config: DirectorConfig
    loop: Loop[S, M, A, O]
    hub: AsyncHub
    is_looking_ahead = False  # it does nothing, and need not have a token

    def __init__(self, home: Home, name: str, config: ComponentConfig) -> None:
        super().__init__(home, name, config)
        self._lock = contextlib.ExitStack()

    # ── what a type of directors says ──

    @classmethod
    def starter_in(cls, repository: Path | None) -> str:
        """The file that `director init` writes for who stands in that repository."""
        del repository
        return cls.starter

    @abstractmethod
    def make_rules(self) -> Rules[S, M, A, O]:
        """Its rules. `self.hub` is there; nothing may be asked of it yet."""

    @abstractmethod
    def tasks(self, memory: M) -> Sequence[Shown]:
        """What it holds now."""

    @abstractmethod
    def history(self, memory: M) -> tuple[HistoryRow, ...]:
        """What is over, newest first."""

    @abstractmethod
    def agents(self, memory: M) -> Sequence[Shown]:
        """The agents that work for it, with their state."""

    def more_routes(self) -> Sequence[BaseRoute]:
        """What it serves besides."""
        return ()

    # ── what a component is ──

    @property
    def hub_token(self) -> str:
        if self.is_looking_ahead and not token_file(self.home, self.name).exists():
            return ""
        return load_token(self.home, self.name)

    def discovery(self, settings: Discovery) -> Discovery:
        return self.config.discovery or settings

    def listen(self) -> None:
        self._lock.enter_context(memory.locked(self.directory))
        self._make_loop()

    def _make_loop(self) -> None:
        self.hub = AsyncHub(self.home, token=self.hub_token, start=False)
        rules = self.make_rules()
        file: MemoryFile[M, A] = MemoryFile(self.directory / memory.FILE, checkpoint_type(rules))
        self.loop = Loop(rules, file, tell=self._tell)

    async def look_ahead(self) -> list[Ahead[A]]:
        """What it would do now, instead of doing it: with reads alone, by who has no token (then
        as the owner) and no lock. Writes nothing, anywhere."""
        self.is_looking_ahead = True
        self._make_loop()
        async with self.hub:
            return await self.loop.look_ahead()

    @property
    def directory(self) -> Path:
        """What is its own."""
        return memory.directory_of(self.home, self.name)

    async def run(self) -> None:
        async with self.hub:
            await self.loop.run()

    async def hub_is_back(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: the loop says so
            await self.loop.hub_is_back()

    @property
    def is_working(self) -> bool:
        """Whether it holds anything that is not over."""
        return bool(self.tasks(self.loop.memory))

    @property
    def problem(self) -> str:
        """Of the whole before that of one subject."""
        troubles = self.loop.troubles
        first = troubles.get(WHOLE) or next(iter(troubles.values()), None)
        return self.life.problem or (first.reason if first is not None else "")

    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/tasks", self._get_tasks),
            Route("/history", self._get_history),
            Route("/agents", self._get_agents),
            *self.more_routes(),
        ]

    def _tell(self, level: Level, message: str, fields: dict[str, object]) -> None:
        if fields.get("reason") == REVOKED:
            fields = {**fields, "hint": f"bullpen director restart {self.name}"}
        self.life.note(level, message, **fields)

    async def _get_tasks(self, _: Request) -> Response:
        problems = [
            {"about": subject, **trouble.model_dump(mode="json")}
            for subject, trouble in self.loop.troubles.items()
        ]
        tasks = [_fields(one) for one in self.tasks(self.loop.memory)]
        return JSONResponse({"tasks": tasks, "problems": problems})

    async def _get_history(self, request: Request) -> Response:
        query = request.query_params
        rows = self.history(self.loop.memory)
        page = page_of(rows, query.get("page", ""), query.get("limit", ""))
        return JSONResponse(page.model_dump(mode="json"))

    async def _get_agents(self, _: Request) -> Response:
        agents = [_fields(one) for one in self.agents(self.loop.memory)]
        return JSONResponse({"agents": agents, "last_poll": self.loop.last_look or None})


def _fields(shown: Shown) -> dict[str, Any]:
    return shown.model_dump(mode="json") if isinstance(shown, Value) else dict(shown)
