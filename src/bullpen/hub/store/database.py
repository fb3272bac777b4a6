"""The file `state.db`: making it, opening it, bringing an older one up to date, refusing others.

Called by `store` alone. Looks before it touches: a damaged file, or one of a later
version, is left exactly as it was found.
"""

import contextlib
import os
import sqlite3
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.files import flush_directory
from bullpen.hub.store.tables import STEPS

BUSY_SECONDS = 5.0
CACHE_KIB = 16_384
# The log is checkpointed in the writer's thread, during a commit: rarely, but not so rarely
# that everybody waits for a big one.
CHECKPOINT_PAGES = 2_000
LOG_BYTES = 64 << 20  # what is left of the write-ahead log after a burst

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
    """Write it to another file and link that in when it is whole: a file at `path` is always a
    database."""
    if _log_of(path).exists():
        if path.exists():
            return  # another made it in the meantime: a log comes after its database
        # SQLite would delete the log of a database that it finds missing.
        raise _damaged(path, f"it is missing, and its log {path.name}-wal is there")
    new_file = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    os.close(os.open(new_file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with contextlib.closing(connect(new_file)) as connection:
            # Before there is a table: later only a copy of the whole file could change it.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            _bring_up_to_date(connection)
        with contextlib.suppress(FileExistsError):  # two at once: the first one's counts
            path.hardlink_to(new_file)
    finally:
        for name in (new_file, _log_of(new_file), Path(f"{new_file}-shm")):
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
