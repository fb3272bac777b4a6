"""Hubs that die, stand still or fail between two steps: for tests that say where.

Every hub of such a home is started as always, but with a `sitecustomize` on its path that wraps
the functions that a test named. Nothing happens until a test arms one of them:

    with windows.death(after(TaskQueue._assign)):
        desk.give(…)          # the hub kills itself; whoever asks next starts another

The steps are those of `tests.steps`; calls are counted from the moment when one was armed. Of all
hubs that come that way, one dies; the block fails if none did.
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.waiting import wait_until

SITE = '''
import sys

if "bullpen.hub.main" in sys.orig_argv:
    import asyncio, errno, functools, importlib, inspect, os, signal, time
    from pathlib import Path

    PLACE = Path(__file__).parent
    counts = {}

    def reached(name, moment, call):
        """What to do here, now."""
        try:
            what, wanted, number, when = (PLACE / "armed").read_text().split(" ")
        except (OSError, ValueError):
            return ""
        if (wanted, when) != (name, moment) or call != int(number):
            return ""
        try:
            os.close(os.open(PLACE / "hit", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return ""  # another one did
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "fail":
            raise OSError(errno.EMFILE, "made up")
        return what

    def counted(name):
        try:
            armed = (PLACE / "armed").stat()
        except OSError:
            return 0
        key = (name, armed.st_mtime_ns, armed.st_ino)
        counts[key] = counts.get(key, 0) + 1
        return counts[key]

    def is_over():
        return (PLACE / "go").exists()

    def wrap(name, real):
        if inspect.iscoroutinefunction(real):
            async def around(moment, call):
                if reached(name, moment, call):
                    while not is_over():
                        await asyncio.sleep(0.005)

            @functools.wraps(real)
            async def wrapped(*args, **kwargs):
                call = counted(name)
                await around("before", call)
                result = await real(*args, **kwargs)
                await around("after", call)
                return result
        else:
            def around(moment, call):
                if reached(name, moment, call):
                    while not is_over():
                        time.sleep(0.005)

            @functools.wraps(real)
            def wrapped(*args, **kwargs):
                call = counted(name)
                around("before", call)
                result = real(*args, **kwargs)
                around("after", call)
                return result
        return wrapped

    import bullpen.hub.main

    for line in (PLACE / "functions").read_text().split():
        module, _, path = line.partition(":")
        owner = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        real = getattr(owner, name)
        new = wrap(line, real)
        # Whoever imported it by name has it under that name, too.
        for found in list(sys.modules.values()):
            if getattr(found, name, None) is real:
                setattr(found, name, new)
        setattr(owner, name, new)
'''


class Windows:
    """The functions of one home's hubs that can be armed."""

    def __init__(self, place: Path, specs: Iterable[str]) -> None:
        self.place = place
        place.mkdir()
        (place / "sitecustomize.py").write_text(SITE)
        names = sorted({spec.rsplit(":", 2)[0] for spec in specs})
        (place / "functions").write_text("\n".join(names))

    @contextlib.contextmanager
    def death(self, spec: str, seconds: float = 60.0) -> Iterator[None]:
        """A hub dies there."""
        with self._armed("die", spec):
            yield
            self.wait_hit(spec, seconds)

    @contextlib.contextmanager
    def failure(self, spec: str) -> Iterator[None]:
        """The system refuses a hub something there, once."""
        with self._armed("fail", spec):
            yield
            self.wait_hit(spec)

    @contextlib.contextmanager
    def pause(self, spec: str) -> Iterator[None]:
        """A hub that comes there waits until the end of the block."""
        with self._armed("wait", spec):
            yield

    def wait_hit(self, spec: str, seconds: float = 60.0) -> None:
        try:
            wait_until((self.place / "hit").exists, seconds)
        except AssertionError as error:
            raise AssertionError(f"{spec} was not reached") from error

    @contextlib.contextmanager
    def _armed(self, what: str, spec: str) -> Iterator[None]:
        function, number, moment = spec.rsplit(":", 2)
        assert function in (self.place / "functions").read_text().split()
        for name in ("hit", "go"):
            (self.place / name).unlink(missing_ok=True)
        aside = self.place / "armed.new"
        aside.write_text(f"{what} {function} {number} {moment}")
        aside.rename(self.place / "armed")
        try:
            yield
        finally:
            (self.place / "armed").unlink()
            (self.place / "go").touch()
