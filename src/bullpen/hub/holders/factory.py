"""The process that holders are forked from: started by the hub, lost and replaced at any time.

A factory that an earlier hub left is told to leave first: it may run older code. Whatever
it forked before it left is found by adoption. Each new one is handed the hub's listeners over a
line; a line that ends says at once that the factory is gone.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import resource
import socket
import subprocess
from pathlib import Path

from bullpen import holder, proc
from bullpen.errors import BullpenError, Kind
from bullpen.hub.holders import link as holder_link
from bullpen.hub.kept_ports import KeptPorts

log = logging.getLogger("bullpen.hub")

START_SECONDS = (5.0, 10.0, 20.0)  # for one that nothing comes in the way of, the first is plenty
LEAVE_SECONDS = 5.0
TRIES = 5
LOOK_AGAIN_SECONDS = 0.005
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # after each that could not be started
LONGEST_PAUSE = 60.0

KINDS = {
    "invalid": Kind.INVALID,
    "not_found": Kind.NOT_FOUND,
    "denied": Kind.DENIED,
    "exists": Kind.CONFLICT,
    "failed": Kind.COMMAND_FAILED,
}


class Factory:
    """The one factory of this hub."""

    def __init__(self, socket: Path, files_limit: int, ports: KeptPorts | None = None) -> None:
        self.socket = socket
        self.files_limit = files_limit  # the person's own; the hub raised its own
        self.ports = ports or KeptPorts()
        self._line = -1
        self._replacing: asyncio.Task[None] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Tell an old one to leave, start ours, wait until it answers."""
        async with self._starting:
            if not await self._answers():
                await self._replace()

    async def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return False
        return await self._who_answers() == self._process.pid

    async def _who_answers(self) -> int | None:
        try:
            answer = await holder_link.request(self.socket, {"do": "ping"})
        except (OSError, TimeoutError):
            return None
        return int(str(answer["pid"]))

    async def _replace(self) -> None:
        """One of a hub that was killed may be slower than ours, and take the socket's place after
        it, or away with it: then once more."""
        for seconds in START_SECONDS:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await holder_link.request(self.socket, {"do": "leave"})
            self._end()  # ours does not answer; its holders do not need it
            line = self._open_line()
            try:
                process = self._process = await asyncio.to_thread(self._spawn, line.fileno())
            finally:
                line.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    if await self._is_reached(process):
                        return
        raise BullpenError(
            f"the factory of holders did not answer within {sum(START_SECONDS):g} s",
            hint="bullpen hub restart",
            kind=Kind.UNAVAILABLE,
        )

    async def _is_reached(self, process: "subprocess.Popen[bytes]") -> bool:
        """Whether it is the one that answers, as soon as anybody does."""
        while (pid := await self._who_answers()) is None:
            if process.poll() is not None:
                raise _ended(process.returncode)
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        return pid == process.pid

    def _open_line(self) -> socket.socket:
        """The factory's end of a new line, on which it is told of all listeners already."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        self._forget_line()
        self.ports.hand_to(ours)
        self._line = ours.fileno()
        asyncio.get_running_loop().add_reader(self._line, self._lost)
        return theirs

    def _forget_line(self) -> None:
        if self._line >= 0:
            asyncio.get_running_loop().remove_reader(self._line)
            self._line = -1

    def _lost(self) -> None:
        """It says nothing on the line: that is its end. The next one keeps the listeners."""
        self._forget_line()
        if self._replacing is None or self._replacing.done():
            self._replacing = asyncio.get_running_loop().create_task(self._replace_lost())

    async def _replace_lost(self) -> None:
        for pause in itertools.chain(PAUSES, itertools.repeat(LONGEST_PAUSE)):
            try:
                await self.start()
                if self._line >= 0:  # not lost again meanwhile
                    return
            except (BullpenError, OSError) as error:  # who starts an agent is told so
                log.warning("no factory of holders", extra={"reason": str(error)})
            await asyncio.sleep(pause)

    def _spawn(self, line: int) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            holder.command(str(self.socket), line),
            pass_fds=(line,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": os.defpath},
            cwd="/",
        )
        # Programs get the limit that they would have had in the person's shell.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (self.files_limit, hard))
        return process

    async def hold(self, fields: holder_link.Record) -> holder_link.Record:
        """Start one holder; what it says of itself. A lost factory is replaced, a few times."""
        env = proc.with_absolute_path(fields["env"])  # also of a session of before
        request = {"do": "hold", **fields, "env": env}
        for left in reversed(range(TRIES)):
            try:
                answer = await holder_link.request(self.socket, request)
                break
            except (OSError, TimeoutError) as error:
                if not left:
                    raise BullpenError(
                        f"the factory of holders does not answer: {error}",
                        hint="bullpen hub restart",
                        kind=Kind.UNAVAILABLE,
                    ) from error
                await self.start()
        if not answer["ok"]:
            kind = KINDS.get(answer["error"], Kind.COMMAND_FAILED)
            raise BullpenError(answer["message"], kind=kind)
        return answer

    def leave(self, *, stays: bool = False) -> None:
        """End the process, or leave it to the next hub; holders stay."""
        if self._replacing is not None and not self._replacing.done():
            self._replacing.cancel()
        self._end(stays=stays)

    def _end(self, *, stays: bool = False) -> None:
        self._forget_line()
        if self._process is not None and self._process.poll() is None and not stays:
            self._process.kill()
            self._process.wait()


def _ended(code: int) -> BullpenError:
    source = Path(holder.__file__)
    if not source.exists():
        return BullpenError(
            f"no agent can be started: {source.parent} is gone, Bullpen was removed or upgraded"
            " under the running hub",
            hint="those that run go on · bullpen hub restart",
            kind=Kind.UNAVAILABLE,
        )
    return BullpenError(
        f"the factory of holders ended at once ({code})",
        hint="bullpen hub logs",
        kind=Kind.UNAVAILABLE,
    )
