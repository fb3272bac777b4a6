"""Starts a program that has a home of its own per agent: Codex and Gemini CLI.

The base of their `Prepare`. Says in which order things are made; the engine says what they are.
The home itself is `own_home`'s.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bullpen.engines import parse
from bullpen.engines.base import Prepared, Start, fed, role_of, run_file
from bullpen.engines.first_prompt import FirstPrompt
from bullpen.engines.own_home import OwnHome
from bullpen.engines.parts import ModelPrepare
from bullpen.engines.telemetry import telemetry
from bullpen.errors import BullpenError, Kind
from bullpen.model.role import Role

PROMPT = "prompt.txt"  # in the directory of a run


class HomePrepare(ModelPrepare):
    """See the module. The engine gives `home` and the methods that raise here."""

    home: OwnHome

    def terminal_argv(self, start: Start, role: Role, conversation: str) -> tuple[str, ...]:
        """The command line in a terminal."""
        raise NotImplementedError

    def run_argv(self, start: Start, role: Role, conversation: str) -> tuple[str, ...]:
        """The command line of a headless run; the prompt is its standard input."""
        raise NotImplementedError

    def session_files(self, start: Start, role: Role, origin: Path) -> dict[str, str]:
        """What is written into the session directory; refuses what nobody is logged in for."""
        raise NotImplementedError

    def home_files(self, start: Start, files: Mapping[str, str], origin: Path) -> dict[str, str]:
        """What is written into the agent's home, from those of the session directory."""
        raise NotImplementedError

    def first_prompt(self, start: Start) -> FirstPrompt:
        """How a first prompt is given by a file; of a program that cannot: nothing."""
        return FirstPrompt()

    def refuse_code(self, start: Start, origin: Path) -> None:
        """Refuses what a repository that nobody trusts brings, if the program cannot leave it
        out."""

    def new_conversation(self) -> str:
        """Its id; empty where the program chooses it, and its first hook names it."""
        return ""

    def system_env(self, start: Start) -> dict[str, str]:
        """The variables by which it finds the role's system prompt."""
        return {}

    def prepare(self, start: Start) -> Prepared:
        if start.role is None:  # started as it is
            return Prepared(start.words)
        conversation = start.conversation or self.new_conversation()
        prepared = self._prepared(start, start.role, conversation)
        return replace(
            prepared,
            argv=self.terminal_argv(start, start.role, conversation),
            files={**prepared.files, **self.first_prompt(start).files},
        )

    def prepare_run(self, start: Start) -> Prepared:
        role, conversation = role_of(start), start.conversation or self.new_conversation()
        prepared = self._prepared(start, role, conversation)
        return replace(
            prepared,
            argv=fed(run_file(start, PROMPT), self.run_argv(start, role, conversation)),
            run_files={PROMPT: parse.sound(start.prompt)},
        )

    def _prepared(self, start: Start, role: Role, conversation: str) -> Prepared:
        """What both ways of running it share: everything but the command line."""
        home = self.home
        if home.variable in role.env:
            raise BullpenError(
                f"role {role.name} sets {home.variable}, which every {home.people_say} agent has of"
                " its own",
                hint=f"leave it out; the login is that of {home.variable} in your shell",
                kind=Kind.UNSUPPORTED,
            )
        self.check_login(start)
        files = self.session_files(start, role, home.origin(start))
        env = {home.variable: str(home.own(start)), **telemetry(start)}
        if role.system_prompt:
            files[home.system] = role.system_prompt
            env |= self.system_env(start)
        return Prepared((), env, files, conversation=conversation)

    def make_ready(self, start: Start, prepared: Prepared) -> None:
        if start.role is None:
            return
        origin = self.home.origin(start)
        if not start.is_trusted:
            self.refuse_code(start, origin)
        self.home.take_over(start)
        self.home.write(start, self.home_files(start, prepared.files, origin))

    def state_files(self, start: Start) -> str:
        # It holds no state files, but `find_shown` has to know where to look.
        return str(self.home.transcripts(start)) if start.role is not None else ""

    def writable(self, start: Start) -> tuple[Path, ...]:
        is_own = start.role is not None and start.is_sandboxed
        return (self.home.own(start),) if is_own else ()
