"""Hooks: what an engine says about itself, received or found where it was left meanwhile.

Kept are the event's name, the tool, ids and a little text, never file contents.
"""

import asyncio
import hashlib
import json
import logging
import math
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

from bullpen.component.redact import Redactor
from bullpen.engines import get_engine
from bullpen.engines.transcripts import open_file
from bullpen.home.paths import Home
from bullpen.hub.agents.observe import Observer
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.agents.watch import Watch
from bullpen.model.event import Draft
from bullpen.model.state import EngineReport, Idle

log = logging.getLogger("bullpen.hub")

SPOOL = "hooks.spool"
API_DIRECTORY = "api"  # in the session: all of it that can be written in a sandbox
SPOOL_BYTES = 17 << 20  # a little more than is ever spooled
SPOOL_LINES = 5_000  # an hour of hard work; the last ones, which say how it is
TEXT_CHARACTERS = 200
READ_CHARACTERS, CUT_CHARACTERS = 600, 400
IDS = ("session_id", "tool_use_id", "prompt_id", "agent_id", "agent_type", "source", "reason")
TEXTS = ("message", "prompt", "error")

_redactor = Redactor()


class Hooks:
    """Takes hooks in. Called by the route for hooks, and by `adopt` for those that were spooled."""

    def __init__(self, home: Home, observer: Observer, watch: Watch) -> None:
        self._home = home
        self._observer = observer
        self._watch = watch

    async def receive(self, live: LiveAgent, body: bytes) -> dict[str, Any]:
        """Record one hook and the state it leads to."""
        async with live.hooking:  # those that were spooled come first, also before one that waits
            if _has_spooled(self._home.session(live.agent.name)):
                await self.take_spooled(live)
            return await self._take(live, body, time.time(), "")

    async def take_spooled(self, live: LiveAgent) -> None:
        """Hooks that came while the hub was away, in their order, each once."""
        session = self._home.session(live.agent.name)
        for path, taken, mark in _spools(session):
            # Twice if a killed hub had taken some, and more came since; not for as long as
            # somebody goes on writing.
            for _ in range(2):
                lines = await asyncio.to_thread(_take_file, path, taken)
                if lines is None:
                    break
                for at, body, key in lines:
                    await self._take(live, body, at, f"spool:{live.agent.run}:{mark}{key}")
                await asyncio.to_thread(_remove, taken)

    async def _take(self, live: LiveAgent, body: bytes, at: float, key: str) -> dict[str, Any]:
        try:
            hook = json.loads(body)
        except (ValueError, RecursionError):
            hook = None
        if not isinstance(hook, dict):
            data: dict[str, Any] = {"run": live.agent.run, "malformed": len(body)}
            await self._observer.observe(live, None, _draft(live, at, data, key))
            return {}
        hook = {name: _sound(value) for name, value in hook.items()}
        # They come in their order. A clock that was set back must not make the last word the
        # first.
        engine = get_engine(live.agent.engine)
        seen = engine.observe(hook, max(at, live.view.told_at))
        await self._watch.converse(live, engine.conversation(hook))
        received = _draft(live, at, summary(live.agent.run, hook), key)
        await self._observer.observe(live, seen, received, *_failure(live, seen, key))
        return hook


def _spools(session: Path) -> tuple[tuple[Path, Path, str], ...]:
    """Where hooks are left, where they are taken to (never among what an agent in a sandbox can
    write), and what tells their keys apart."""
    return (
        (session / SPOOL, session / f"{SPOOL}.taken", ""),
        (
            session / API_DIRECTORY / SPOOL,
            session / f"{SPOOL}.{API_DIRECTORY}.taken",
            f"{API_DIRECTORY}:",
        ),
    )


def _has_spooled(session: Path) -> bool:
    return any(os.path.lexists(path) for path, _, _ in _spools(session))


def summary(run: str, hook: dict[str, Any]) -> dict[str, Any]:
    """What of a hook is kept."""
    kept: dict[str, Any] = {"run": run, "event": str(hook.get("hook_event_name", ""))[:80]}
    if hook.get("tool_name"):
        kept["tool"] = str(hook["tool_name"])[:80]
    for name in IDS:
        if isinstance(hook.get(name), str):
            kept[name] = hook[name][:80]
    for name in TEXTS:
        if isinstance(hook.get(name), str):
            kept["text"] = excerpt(hook[name])
    return kept


def excerpt(text: str) -> str:
    """Its beginning, without credentials. Half a one is not recognised: where the text was cut
    before that, its end is not shown."""
    redacted = _redactor.text(text[:READ_CHARACTERS])
    shown = len(redacted) - (CUT_CHARACTERS if len(text) > READ_CHARACTERS else 0)
    return redacted[: max(0, min(shown, TEXT_CHARACTERS))]


def _sound(value: Any) -> Any:
    """A text without half surrogates, which JSON can hold and no answer of ours could."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _failure(live: LiveAgent, seen: EngineReport | None, key: str) -> list[Draft]:
    """The event of a turn that failed, for whoever waits for that."""
    if seen is None or not isinstance(seen.state, Idle) or not seen.state.failed:
        return []
    data = {"run": live.agent.run, "why": seen.state.failed}
    return [Draft(seen.at, "agent.failed", live.agent.name, data, key and f"failed:{key}")]


def _draft(live: LiveAgent, at: float, data: dict[str, Any], key: str) -> Draft:
    return Draft(time=at, kind="hook.received", agent=live.agent.name, data=data, key=key)


def _take_file(path: Path, taken: Path) -> list[tuple[float, bytes, str]] | None:
    """The spooled lines; None: there is no file. Renamed first, so that who spools now begins a
    new file; one that a killed hub had taken is read again (each line has a key of its own)."""
    if not os.path.lexists(taken):
        try:
            if stat.S_ISDIR(path.lstat().st_mode):
                return None  # nobody spools into that
            path.rename(taken)
        except OSError:  # none, or none that can be taken
            return None
    entries = []
    lines = _read_spool(taken).splitlines()
    if len(lines) > SPOOL_LINES:
        log.warning("too many spooled hooks", extra={"path": str(taken), "lines": len(lines)})
    for number, line in list(enumerate(lines))[-SPOOL_LINES:]:
        at, _, body = line.partition(b"\t")
        try:
            moment = float(at)
        except ValueError:
            moment = math.nan
        if math.isfinite(moment):
            # One from the future would stand against everything that is said after it.
            key = f"{number}:{hashlib.sha256(line).hexdigest()[:16]}"
            entries.append((min(moment, time.time()), body, key))
        elif line:  # an empty one is no more than a line break too many
            log.warning("a spooled hook has no time", extra={"path": str(taken)})
    return entries


def _read_spool(taken: Path) -> bytes:
    """An agent may have put anything there: neither a link nor a pipe is followed or waited for,
    and what is longer than can be is cut."""
    opened = open_file(taken, os.O_NOFOLLOW)
    if opened is None:
        log.warning("what is spooled is no file", extra={"path": str(taken)})
        return b""
    with opened as file:
        return file.read(SPOOL_BYTES)


def _remove(taken: Path) -> None:
    """Also what is no file, or it would stand in the way of the next."""
    try:
        taken.unlink(missing_ok=True)
    except OSError:
        shutil.rmtree(taken, ignore_errors=True)
