"""The file `state.db`: making it, opening it, bringing an older one up to date, refusing others.

`hub/store.py` is the only caller. Looks before it touches: a damaged file, or one of a later
version, is left exactly as it was found. What the tables mean is the store's business.
"""

import contextlib
import os
import sqlite3
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.files import flush_directory

BUSY_SECONDS = 5.0
CACHE_KIB = 16_384
# The log is checkpointed in the writer's thread, during a commit: rarely, but not so rarely
# that everybody waits for a big one.
CHECKPOINT_PAGES = 2_000
LOG_BYTES = 64 << 20  # what is left of the write-ahead log after a burst

# `latest` says for each kind and agent between which ids its events lie. An index of events
# by agent would do the same and cost three times the whole insert at 500 agents: each row
# dirties a page of its own there, and every dirty page goes through the log.
FIRST = (
    """
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        time REAL NOT NULL,
        kind TEXT NOT NULL,
        agent TEXT NOT NULL,
        data TEXT NOT NULL,
        key TEXT
    )
    """,
    "CREATE UNIQUE INDEX events_key ON events (key) WHERE key IS NOT NULL",
    """
    CREATE TABLE latest (
        kind TEXT NOT NULL,
        agent TEXT NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        PRIMARY KEY (kind, agent)
    ) WITHOUT ROWID
    """,
)

COMPONENTS = (
    """
    CREATE TABLE components (
        name TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        url TEXT NOT NULL,
        pid INTEGER NOT NULL,
        version TEXT NOT NULL,
        start_time TEXT NOT NULL,
        registered REAL NOT NULL
    ) WITHOUT ROWID
    """,
)

# `usage` outlives the agents: `born` tells one of a name from the next. The other four keep what
# telemetry and states have been counted up to, so that nothing counts twice.
USAGE = (
    """
    CREATE TABLE usage (
        agent TEXT NOT NULL,
        born TEXT NOT NULL,
        role TEXT NOT NULL,
        pod TEXT NOT NULL,
        model TEXT NOT NULL,
        day TEXT NOT NULL,
        input INTEGER NOT NULL,
        output INTEGER NOT NULL,
        cache_read INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        usd REAL NOT NULL,
        requests INTEGER NOT NULL,
        tool_calls INTEGER NOT NULL,
        tool_seconds REAL NOT NULL,
        work_seconds REAL NOT NULL,
        PRIMARY KEY (agent, born, role, pod, model, day)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE usage_series (
        agent TEXT NOT NULL,
        series BLOB NOT NULL,
        value REAL NOT NULL,
        PRIMARY KEY (agent, series)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE usage_seen (
        agent TEXT NOT NULL,
        key BLOB NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (agent, key)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX usage_seen_at ON usage_seen (at)",
    """
    CREATE TABLE usage_clocks (
        agent TEXT PRIMARY KEY,
        at REAL NOT NULL,
        is_working INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE TABLE usage_mark (id INTEGER PRIMARY KEY, event INTEGER NOT NULL)",
)

MESSAGES = (
    """
    CREATE TABLE messages (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        sender TEXT NOT NULL,
        recipient TEXT NOT NULL,
        text TEXT NOT NULL,
        priority TEXT NOT NULL,
        created REAL NOT NULL,
        sent REAL,
        channel TEXT NOT NULL,
        delivered REAL,
        read REAL
    )
    """,
    "CREATE INDEX messages_recipient ON messages (recipient, number)",
    "CREATE INDEX messages_open ON messages (recipient) WHERE read IS NULL",
)

# `data` is the whole task; the other columns are what is looked for.
TASKS = (
    """
    CREATE TABLE tasks (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        agent TEXT NOT NULL,
        session TEXT NOT NULL,
        request TEXT UNIQUE,
        state TEXT NOT NULL,
        created REAL NOT NULL,
        text TEXT NOT NULL,
        data TEXT NOT NULL
    )
    """,
    "CREATE INDEX tasks_agent ON tasks (agent, number)",
    "CREATE INDEX tasks_open ON tasks (number)"
    " WHERE state IN ('queued', 'working', 'idle', 'cancelling')",
    """
    CREATE TABLE task_sessions (
        id TEXT PRIMARY KEY,
        agent TEXT NOT NULL,
        data TEXT NOT NULL
    ) WITHOUT ROWID
    """,
)

# Step n leads from version n to n + 1 (PRAGMA user_version). Written once, never edited.
STEPS = (FIRST, COMPONENTS, USAGE, MESSAGES, TASKS)

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def open_database(path: Path) -> sqlite3.Connection:
    """The writer's connection to a database of this version, made or brought up to date."""
    try:
        if not path.exists():
            _create(path)
        _look(path)
        connection = connect(path)
        try:
            _bring_up_to_date(connection)
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise failure("open", path, error) from error
    return connection


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection that any thread may use, one at a time; transactions are written out."""
    mode = "ro" if read_only else "rw"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    if not read_only:
        # The default of a build may differ: an acknowledged row is on the disk, not in its queue.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
    return connection


def failure(what: str, path: Path, error: Exception) -> BullpenError:
    """What went wrong with the file, in words; for the one who asked."""
    hint = "check the disk and who may write there; nothing that was acknowledged is lost"
    match primary_code(error):
        case sqlite3.SQLITE_FULL:
            hint = "free some space on that disk; nothing that was acknowledged is lost"
        case sqlite3.SQLITE_BUSY:
            hint = "another program holds it: only the hub may have it open for writing"
        case code if code in _DAMAGED:
            return _damaged(path, str(error))
    return BullpenError(f"cannot {what} {path}: {error}", hint=hint, kind=Kind.UNAVAILABLE)


def primary_code(error: BaseException) -> int:
    """SQLite's code without its extension; 0 for what is no error of SQLite."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _damaged(path: Path, reason: str) -> BullpenError:
    return BullpenError(
        f"{path} is damaged: {reason}",
        hint=f"nothing was changed. Agents go on without it. Keep a copy of {path.name},"
        f" {path.name}-wal and {path.name}-shm, then try `sqlite3 {path.name} .recover`, or move"
        " all three away to begin an empty history",
        kind=Kind.UNAVAILABLE,
    )


def _create(path: Path) -> None:
    """Made beside and linked in when it is whole, so that a file that is there is a database."""
    if _log_of(path).exists():
        if path.exists():
            return  # another made it in the meantime: a log comes after its database
        # SQLite would delete the log of a database that it finds missing.
        raise _damaged(path, f"it is missing, and its log {path.name}-wal is there")
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    os.close(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with contextlib.closing(connect(beside)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            _bring_up_to_date(connection)
        with contextlib.suppress(FileExistsError):  # two at once: the first one's counts
            path.hardlink_to(beside)
    finally:
        for name in (beside, _log_of(beside), Path(f"{beside}-shm")):
            name.unlink(missing_ok=True)
    flush_directory(path.parent)


def _look(path: Path) -> None:
    """Refuse what cannot be used, through a connection that can change nothing."""
    if path.stat().st_size == 0:
        raise _damaged(path, "it is empty")
    with contextlib.closing(connect(path, read_only=True)) as connection:
        version = _version(connection)
        if version > len(STEPS):
            raise BullpenError(
                f"{path} has version {version}; this Bullpen knows up to {len(STEPS)}",
                hint="a later Bullpen has used it: upgrade, or use another home",
                kind=Kind.UNSUPPORTED,
            )
        if version == 0:
            raise _damaged(path, "it is a database, but not one of Bullpen's")
        connection.execute("SELECT * FROM events ORDER BY id DESC LIMIT 1").fetchall()
        connection.execute("SELECT * FROM latest LIMIT 1").fetchall()


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    """All the steps that are missing, in one transaction with the version that they give."""
    if _version(connection) == len(STEPS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in STEPS[_version(connection) :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(STEPS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _log_of(path: Path) -> Path:
    return Path(f"{path}-wal")
