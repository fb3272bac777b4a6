"""The keys of a forge director's file."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, Strict, model_validator

from bullpen.directors.config import DirectorConfig
from bullpen.directors.forge.texts import MERGE, PLACEHOLDER, PLACEHOLDERS, PULL, REVIEW, WORK
from bullpen.errors import BullpenError
from bullpen.home import credentials
from bullpen.home.paths import Home
from bullpen.model.fields import (
    AgentName,
    Block,
    Branch,
    Labels,
    ModelName,
    PositiveDuration,
    RoleName,
    Text,
    Word,
)

EXAMPLE = "owner/name"  # what the file that `director init` writes has for the repository
PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def _repository(most_parts: int, form: str) -> AfterValidator:
    def validate(text: str) -> str:
        if text == EXAMPLE:
            raise ValueError(f"{EXAMPLE} is the example · {form} of your repository")
        parts = text.split("/")
        is_right = 2 <= len(parts) <= most_parts and all(PART.fullmatch(each) for each in parts)
        if not is_right or text.endswith((".git", ".")):
            raise ValueError(f'"{text[:60]}" is no repository · {form}')
        return text

    return AfterValidator(validate)


def _check_placeholders(text: str) -> str:
    unknown = [match[0] for match in PLACEHOLDER.finditer(text) if match[1] not in PLACEHOLDERS]
    if unknown:
        allowed = " ".join(f"{{{{.{name}}}}}" for name in PLACEHOLDERS)
        raise ValueError(f"no placeholder {unknown[0][:40]} · {allowed}")
    return text


def _check_server(text: str) -> str:
    if re.fullmatch(r"https://[^\s@?#]+|http://(?:127\.0\.0\.1|localhost)(?::\d+)?(?:/\S*)?", text):
        return text.rstrip("/")
    raise ValueError("is no address that a token may be sent to · https://host, without a user")


Prompt = Annotated[Text, AfterValidator(_check_placeholders)]


class Prompts(Block):
    """What agents are told; issue text comes in where the placeholders are."""

    work: Prompt = WORK
    review: Prompt = REVIEW


class GitLabPrompts(Prompts):
    """The same in GitLab's words."""

    work: Prompt = WORK.replace(PULL, MERGE)


class Reacts(Block):
    """What a fault of a pull leads to: so many tries, then a person is asked."""

    retries: Annotated[int, Field(ge=0, le=20)] = 3
    escalate: Literal["inbox", "comment"] = "inbox"


class ReactsToSilence(Reacts):
    """After so long a time without anything."""

    retries: Annotated[int, Field(ge=0, le=20)] = 1
    after: PositiveDuration = timedelta(days=7)


class Reactions(Block):
    """Which faults of a pull are reacted to: those that are named."""

    ci_failed: Reacts | None = None
    changes_requested: Reacts | None = None
    conflict: Reacts | None = None
    stale: ReactsToSilence | None = None


class ForgeSettings(Block):
    """How issues are worked on."""

    max_reviews: Annotated[int, Field(ge=0, le=20)] = 3
    branch_prefix: Branch = "claude/issue-"
    require_approval: bool = True
    allowed_authors: Annotated[tuple[Word, ...], Strict(False)] | None = None
    give_up_after: Annotated[int, Field(ge=1, le=100)] = 5
    at_once: Annotated[int, Field(ge=1, le=1000)] = 5
    status_issue: bool = True


class ForgeConfig(DirectorConfig):
    """The file of a director of a forge."""

    noun: ClassVar[str] = PULL  # what the forge calls a proposal
    repo: Annotated[str, _repository(2, "owner/name")]
    server: Annotated[str, AfterValidator(_check_server)] | None = None
    label: Text | None = None
    agent: AgentName | None = None
    role: RoleName | None = None
    labels: Labels = Field(default_factory=dict)
    model: ModelName = None
    timeout: PositiveDuration | None = None
    poll_interval: PositiveDuration = timedelta(seconds=30)
    webhook: bool = False
    prompts: Prompts = Prompts()
    settings: ForgeSettings = ForgeSettings()
    reactions: Reactions = Reactions()

    @property
    def webhook_credential(self) -> str:
        """What a sender of deliveries has to know."""
        return f"{self.type}-webhook-secret"

    def problems(self, home: Home, name: str) -> Iterator[tuple[str, str]]:
        yield from super().problems(home, name)
        if not self.webhook:
            return
        hint = f"bullpen auth set {self.webhook_credential} < FILE"
        try:
            if credentials.load(home, self.webhook_credential) is None:
                yield "webhook", f"needs the secret that deliveries are checked with · {hint}"
        except BullpenError as error:
            yield "webhook", f"{error.message} · {error.hint}"

    @model_validator(mode="after")
    def _webhook_is_found(self) -> "ForgeConfig":
        if self.webhook and self.port is None:
            raise ValueError("webhook needs port: whatever leads to it has to know where it is")
        return self

    @model_validator(mode="after")
    def _somebody_waits(self) -> "ForgeConfig":
        if self.reactions != Reactions() and not self.settings.require_approval:
            raise ValueError("reactions need settings.require_approval: nobody waits without it")
        return self

    @model_validator(mode="after")
    def _somebody_works(self) -> "ForgeConfig":
        if self.agent is None and self.role is None:
            raise ValueError("who works on the issues? · role: NAME, or agent: NAME")
        if self.agent is not None and (self.role is not None or self.labels):
            raise ValueError("agent says who works on them: no role and no labels beside it")
        return self


class GitLabConfig(ForgeConfig):
    """The same for GitLab, where groups lie in groups."""

    noun: ClassVar[str] = MERGE
    repo: Annotated[str, _repository(20, "group/name, or group/subgroup/name")]
    prompts: GitLabPrompts = GitLabPrompts()
