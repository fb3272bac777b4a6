"""What a director remembers, in one file that a crash leaves old or new, never half.

Called by `loop`. A checkpoint is the director's own memory, what it was about to do (intents) and
what troubles it. One process at a time has it: `locked` does that. Knows nothing of what is in a
memory.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from pydantic import Field, ValidationError

from bullpen.directors.failures import Trouble
from bullpen.errors import BullpenError, Kind
from bullpen.files import make_directory, write_atomically
from bullpen.home.paths import Home
from bullpen.model import names
from bullpen.model.value import Value

FILE = "memory.json"


class Action(Value):
    """One thing that a director does to the world. `key` names it for ever: the same key is the
    same deed, however often it is tried. `subject` is what it is about (an issue, a schedule's
    entry): of one subject one action at a time, and what fails there holds up nothing else."""

    key: str
    subject: str
    is_deed: ClassVar[bool] = True  # False: it changes nothing, so there is nothing to find out

    @property
    def words(self) -> str:
        """What it does, for a person who is asked beforehand. The subject stands before it."""
        return self.key


M = TypeVar("M", bound=Value)
A = TypeVar("A", bound=Action)


class Checkpoint(Value, Generic[M, A]):
    """Everything that the next process has to know."""

    memory: M
    intents: dict[str, A] = Field(default_factory=dict)  # by subject: what may have been done
    troubles: dict[str, Trouble] = Field(default_factory=dict)  # by subject; "": of the whole


class MemoryFile(Generic[M, A]):
    """The file of one director. `kind` is its type of checkpoint."""

    def __init__(self, path: Path, kind: type[Checkpoint[M, A]]) -> None:
        self.path = path
        self._kind = kind

    def load(self) -> Checkpoint[M, A] | None:
        """What was saved last; None: nothing yet. One that cannot be read is an error: who forgets
        what he did does it twice."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return self._kind.model_validate_json(text)
        except ValidationError as error:
            raise BullpenError(
                f"{self.path} cannot be read: {error.errors()[0]['msg']}",
                hint="move it away to begin anew: what was done before may then be done again",
            ) from error

    def save(self, checkpoint: Checkpoint[M, A]) -> None:
        """On disk when this returns. OSError, which names it: the file is as it was."""
        try:
            write_atomically(self.path, checkpoint.model_dump_json(), mode=0o600)
        except OSError as error:
            error.filename = str(self.path)  # not that of the one beside, which is new each time
            raise


def directory_of(home: Home, name: str) -> Path:
    """Where a director's memory and token are: `directors/<name>/`."""
    return home.directors / names.check_worktree_name(name)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Be the only process with that memory, until it ends."""
    make_directory(directory, 0o700)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise BullpenError(
            f"{directory.name} runs already", hint="bullpen director list", kind=Kind.CONFLICT
        ) from error
    finally:
        os.close(descriptor)
