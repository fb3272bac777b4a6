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
from bullpen.hub.registry import Live
from bullpen.hub.supervise import Supervisor
from bullpen.model.event import Draft

log = logging.getLogger("bullpen.hub")

SPOOL = "hooks.spool"
DOORS = "api"  # in the session: all of it that can be written in a sandbox
SPOOL_BYTES = 17 << 20  # a little more than is ever spooled
SPOOL_LINES = 5_000  # an hour of hard work; the last ones, which say how it is
TEXT_CHARACTERS = 200
READ_CHARACTERS, CUT_CHARACTERS = 600, 400
IDS = ("session_id", "tool_use_id", "prompt_id", "agent_id", "agent_type", "source", "reason")
TEXTS = ("message", "prompt", "error")

_redactor = Redactor()


async def receive(supervisor: Supervisor, live: Live, body: bytes) -> dict[str, Any]:
    """Record one hook and the state it leads to."""
    async with live.hooking:  # those that were spooled come first, also before one that waits
        if _has_spooled(supervisor.home.session(live.agent.name)):
            await take_spooled(supervisor, live)
        return await _take(supervisor, live, body, time.time(), "")


async def take_spooled(supervisor: Supervisor, live: Live) -> None:
    """Hooks that came while the hub was away, in their order, each once."""
    session = supervisor.home.session(live.agent.name)
    for path, taken, mark in _spools(session):
        # Twice if a killed hub had taken some, and more came since; not for as long as somebody
        # goes on writing.
        for _ in range(2):
            lines = await asyncio.to_thread(_take_file, path, taken)
            if lines is None:
                break
            for at, body, key in lines:
                await _take(supervisor, live, body, at, f"spool:{live.agent.run}:{mark}{key}")
            await asyncio.to_thread(_remove, taken)


def _spools(session: Path) -> tuple[tuple[Path, Path, str], ...]:
    """Where hooks are left, where they are taken to (never among what an agent in a sandbox can
    write), and what tells their keys apart."""
    return (
        (session / SPOOL, session / f"{SPOOL}.taken", ""),
        (session / DOORS / SPOOL, session / f"{SPOOL}.{DOORS}.taken", f"{DOORS}:"),
    )


def _has_spooled(session: Path) -> bool:
    return any(os.path.lexists(path) for path, _, _ in _spools(session))


async def _take(
    supervisor: Supervisor, live: Live, body: bytes, at: float, key: str
) -> dict[str, Any]:
    try:
        hook = json.loads(body)
    except (ValueError, RecursionError):
        hook = None
    if not isinstance(hook, dict):
        data: dict[str, Any] = {"run": live.agent.run, "malformed": len(body)}
        await supervisor.record.observe(live, None, _draft(live, at, data, key))
        return {}
    hook = {name: _sound(value) for name, value in hook.items()}
    # They come in their order. A clock that was set back must not make the last word the first.
    engine = get_engine(live.agent.engine)
    seen = engine.observe(hook, max(at, live.view.told_at))
    await supervisor.watch.converse(live, engine.conversation(hook))
    await supervisor.record.observe(
        live, seen, _draft(live, at, summary(live.agent.run, hook), key)
    )
    return hook


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
    found = _redactor.text(text[:READ_CHARACTERS])
    shown = len(found) - (CUT_CHARACTERS if len(text) > READ_CHARACTERS else 0)
    return found[: max(0, min(shown, TEXT_CHARACTERS))]


def _sound(value: Any) -> Any:
    """A text without half surrogates, which JSON can hold and no answer of ours could."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _draft(live: Live, at: float, data: dict[str, Any], key: str) -> Draft:
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
    found = []
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
            found.append((min(moment, time.time()), body, key))
        elif line:  # an empty one is no more than a line break too many
            log.warning("a spooled hook has no time", extra={"path": str(taken)})
    return found


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
