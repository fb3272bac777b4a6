"""Directors: of each the hash of the token that counts, and how it stands.

Called by `hub/http/directors` (the owner lets one in, and revokes it), by `hub/http/agents` (the
list) and by the guard of the API (whose token is this?). Writes the table `directors`, for the next
hub. How one stands is read from the register, from its supervisor's file and from its own
(`director_files`), whenever somebody asks. What a director may do is `hub/http/guard`'s.
"""

import asyncio
import hmac
import time

from bullpen.errors import BullpenError, Kind
from bullpen.home.named_files import files_in
from bullpen.home.paths import Home
from bullpen.home.supervised import Supervised, find_supervisor
from bullpen.hub.agents.tokens import hash_of
from bullpen.hub.components import Components
from bullpen.hub.director_files import DirectorFiles
from bullpen.hub.store.store import Store
from bullpen.model.component import Component
from bullpen.model.director import GONE, DirectorLetIn, DirectorShown
from bullpen.model.names import NAME

REPLACE = "INSERT OR REPLACE INTO directors (name, token_hash, since) VALUES (?, ?, ?)"


class Directors:
    """All directors of the home, by name."""

    def __init__(self, store: Store, home: Home, components: Components) -> None:
        self._store = store
        self._home = home
        self._components = components
        self._files = DirectorFiles(home)
        self._known: dict[str, tuple[str, float]] = {}  # hash, since when
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Read whom earlier hubs let in."""
        select = "SELECT name, token_hash, since FROM directors"
        rows = await self._store.read(lambda database: database.execute(select).fetchall())
        self._known = {name: (token_hash, since) for name, token_hash, since in rows}

    async def list(self) -> list[DirectorShown]:
        """All that have a file or are let in."""
        living = await self._components.living()
        processes = {one.name: one for one in living if one.kind == "director"}
        files = {path.stem for path in files_in(self._home.directors)}
        problems = await self._files.problems() if files else {}
        shown = []
        for name in sorted({*files, *self._known, *processes}):
            # A file may also be wrong by its name.
            if NAME.fullmatch(name) is None and not (name in problems and name.isprintable()):
                continue
            above = find_supervisor(self._home, name)
            one = show_director(name, name in self._known, processes.get(name), above)
            shown.append(one.model_copy(update={"file_problem": problems.get(name, "")}))
        return shown

    async def notable(self) -> tuple[DirectorShown, ...]:
        """Those that nobody has stopped, or that nobody can start."""
        return tuple(one for one in await self.list() if one.state != "stopped" or one.file_problem)

    def find(self, token: str) -> str:
        """The director whose token it is; empty: nobody's."""
        given, owner = hash_of(token), ""
        for name, (token_hash, _) in self._known.items():  # all, so that the time tells nothing
            if hmac.compare_digest(given, token_hash):
                owner = name
        return owner

    async def admit(self, name: str, token_hash: str) -> DirectorLetIn:
        """From now on that token is the director's, and no other. On disk when this returns."""
        async with self._changing:
            row = (name, token_hash, time.time())
            await self._store.write(lambda change: change.connection.execute(REPLACE, row))
            self._known[name] = row[1:]
        return DirectorLetIn(name=name, since=row[2])

    async def revoke(self, name: str) -> DirectorLetIn:
        """Its token counts no more. What it started goes on."""
        async with self._changing:
            if name not in self._known:
                raise BullpenError(f"no director called {name[:80]}", kind=Kind.NOT_FOUND)
            delete = "DELETE FROM directors WHERE name = ?"
            await self._store.write(lambda change: change.connection.execute(delete, (name,)))
            _, since = self._known.pop(name)
        return DirectorLetIn(name=name, since=since)


def show_director(
    name: str, is_let_in: bool, process: Component | None, above: Supervised | None
) -> DirectorShown:
    """How it stands, by who is let in, who is registered and what its supervisor says. Pure."""
    restarts = above.restarts if above is not None else 0
    if process is not None:
        return DirectorShown(
            name=name,
            state=process.state or "running",
            since=process.registered,
            problem=process.problem,
            restarts=restarts,
            pid=process.pid,
        )
    if above is None:
        if not is_let_in:
            return DirectorShown(name=name, state="stopped")
        return DirectorShown(name=name, state="gone", problem=GONE)
    return DirectorShown(
        name=name,
        state="starting" if above.child else "restarting",
        since=above.ended_at or None,
        problem=above.ending,
        restarts=restarts,
        again_at=above.again_at or None,
    )
