"""How Gemini CLI is started: its command line, and the files of its home."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path

from bullpen.engines import parse
from bullpen.engines.base import Start
from bullpen.engines.first_prompt import FirstPrompt, make_first_prompt
from bullpen.engines.gemini.home import (
    CODE,
    HOME,
    MEMORY,
    RULES,
    SETTINGS,
    is_accepted,
    make_memory,
    read_settings,
    refuse_code,
    trusted_folders,
)
from bullpen.engines.gemini.login import api, login
from bullpen.engines.gemini.rules import make_rules
from bullpen.engines.gemini.settings import make_settings
from bullpen.engines.home_prepare import HomePrepare
from bullpen.engines.transcripts import read_lines
from bullpen.model.role import Role

# Without a model it asks a model which one to take, for every prompt.
MODEL = "gemini-2.5-pro"
# It (0.61.0) starts itself once more, with the command line as it got it.
IN_ITS_CHILD = "process.env.GEMINI_CLI_NO_RELAUNCH || process.env.SANDBOX"


class GeminiPrepare(HomePrepare):
    """`Prepare` of Gemini CLI."""

    variables: tuple[str, ...] = ("GEMINI_", "GOOGLE_")
    code: tuple[str, ...] = CODE
    home = HOME

    def new_conversation(self) -> str:
        return str(uuid.uuid4())

    def terminal_argv(self, start: Start, role: Role, conversation: str) -> tuple[str, ...]:
        first = self.first_prompt(start)
        mode = role.permission_mode or "default"
        return (
            *first.before,
            *self._argv(start, role, conversation, mode),
            *start.words,
            *first.word,
        )

    def first_prompt(self, start: Start) -> FirstPrompt:
        # In one word with its flag: the prompt may begin with a dash.
        return make_first_prompt(start, "--prompt-interactive=", IN_ITS_CHILD)

    def run_argv(self, start: Start, role: Role, conversation: str) -> tuple[str, ...]:
        mode = "yolo" if start.is_sandboxed else role.permission_mode or "default"
        return (*self._argv(start, role, conversation, mode), "-o", "stream-json", *start.words)

    def _argv(self, start: Start, role: Role, conversation: str, mode: str) -> tuple[str, ...]:
        which = "--resume" if start.conversation else "--session-id"
        model = ("-m", role.model or MODEL)
        return (self.program(start), *model, "--approval-mode", mode, which, conversation)

    def session_files(self, start: Start, role: Role, origin: Path) -> dict[str, str]:
        person = read_settings(origin)
        settings = make_settings(start, role, person, login(start, origin))
        return {
            SETTINGS: json.dumps(settings, indent=1),
            RULES: make_rules(role),
            MEMORY: role.instructions or "",
        }

    def system_env(self, start: Start) -> dict[str, str]:
        return {"GEMINI_SYSTEM_MD": str(start.session / self.home.system)}

    def home_files(self, start: Start, files: Mapping[str, str], origin: Path) -> dict[str, str]:
        return {
            "settings.json": files[SETTINGS],
            "policies/bullpen.toml": files[RULES],
            "trustedFolders.json": trusted_folders(start),
            "GEMINI.md": make_memory(origin, files[MEMORY]),
        }

    def refuse_code(self, start: Start, origin: Path) -> None:
        refuse_code(start, origin)

    def trusts(self, start: Start) -> bool:
        return is_accepted(start, self.home.origin(start))

    def require_login(self, start: Start) -> None:
        login(start, self.home.origin(start))

    def has_conversation(self, start: Start) -> bool:
        """One that was killed in its first turn left a file without an answer in it."""
        id = parse.conversation_id(start.conversation)
        files = self.home.transcripts(start).glob(f"*/chats/session-*-{id[:8]}.jsonl")
        return any(b'"type":"gemini"' in line for file in files for line in read_lines(file))

    def api(self, start: Start) -> str:
        return api(start.env)
