"""How Codex is started: its command line, and the files of its home."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from bullpen.engines import parse
from bullpen.engines.base import Prepared, Start, role_of
from bullpen.engines.codex.config import make_config, without_trust
from bullpen.engines.codex.first_prompt import make_first_prompt, write_skill
from bullpen.engines.codex.home import (
    CODE,
    CONFIG,
    HOME,
    RULES,
    has_code,
    is_accepted,
    make_texts,
    read_config,
    refuse_code,
)
from bullpen.engines.codex.login import api, login
from bullpen.engines.codex.rules import make_rules
from bullpen.engines.codex.toml import to_toml
from bullpen.engines.first_prompt import FirstPrompt
from bullpen.engines.home_prepare import HomePrepare
from bullpen.engines.own_home import merged
from bullpen.engines.repository import find_top
from bullpen.model.role import Role


class CodexPrepare(HomePrepare):
    """`Prepare` of Codex. A conversation is Codex's to begin: its first hook names it."""

    variables: tuple[str, ...] = ("CODEX_", "OPENAI_")
    code: tuple[str, ...] = CODE
    home = HOME

    def terminal_argv(self, start: Start, role: Role, conversation: str) -> tuple[str, ...]:
        resume = ("resume",) if conversation else ()
        tail = (*((conversation,) if conversation else ()), *self.first_prompt(start).word)
        # The shared server that it would start else outlives the agent.
        argv = (self.program(start), *resume, "--no-daemon", *start.words)
        return (*argv, "--", *tail) if tail else argv

    def first_prompt(self, start: Start) -> FirstPrompt:
        return make_first_prompt(start)

    def run_argv(self, start: Start, role: Role, conversation: str) -> tuple[str, ...]:
        resume = ("resume", conversation) if conversation else ()
        form = ("exec", "--json", "--skip-git-repo-check")
        return (self.program(start), *form, *start.words, *resume, "-")

    def session_files(self, start: Start, role: Role, origin: Path) -> dict[str, str]:
        config = make_config(start, role, read_config(origin))
        config = merged(config, login(start, origin, config))
        return {CONFIG: to_toml(config), RULES: make_rules(role)}

    def home_files(self, start: Start, files: Mapping[str, str], origin: Path) -> dict[str, str]:
        config = files[CONFIG]
        is_refused = not start.is_trusted and has_code(start, origin)
        if is_refused:
            top = str(find_top(Path(start.cwd)))
            config = to_toml(without_trust(tomllib.loads(config), start.cwd, top))
        return {
            "rules/bullpen.rules": files[RULES],
            "config.toml": config,
            "AGENTS.md": make_texts(start, origin, of_repository=is_refused),
        }

    def make_ready(self, start: Start, prepared: Prepared) -> None:
        super().make_ready(start, prepared)
        if start.role is not None and not start.run.is_absolute():  # in a terminal
            write_skill(start, prepared.files)

    def refuse_code(self, start: Start, origin: Path) -> None:
        if not start.run.is_absolute():  # in a terminal
            refuse_code(start, origin)

    def trusts(self, start: Start) -> bool:
        return is_accepted(start, self.home.origin(start))

    def require_login(self, start: Start) -> None:
        origin, role = self.home.origin(start), role_of(start)
        login(start, origin, merged(read_config(origin), role.settings))

    def has_conversation(self, start: Start) -> bool:
        id = parse.conversation_id(start.conversation)
        return any(self.home.transcripts(start).glob(f"*/*/*/rollout-*-{id}.jsonl"))

    def api(self, start: Start) -> str:
        settings = start.role.settings if start.role else {}
        return api(merged(read_config(self.home.origin(start)), settings))
