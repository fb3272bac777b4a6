"""Directors of GitHub and GitLab as processes: their rules with real parts, and what they show.

Started as every director (`directors/process`). Refuses agents without a sandbox: what they work on
is written by strangers, and the forge's token lies in this home.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from starlette.routing import BaseRoute

from bullpen.component.config import ComponentConfig, load_config
from bullpen.directors.config import config_file
from bullpen.directors.director import Director, Shown
from bullpen.directors.failures import ActionError, Verdict
from bullpen.directors.forge import github, gitlab
from bullpen.directors.forge.checkouts import Checkouts
from bullpen.directors.forge.config import EXAMPLE, ForgeConfig, GitLabConfig
from bullpen.directors.forge.deliveries import Deliveries, Delivery, plan_look
from bullpen.directors.forge.github_deliveries import GITHUB
from bullpen.directors.forge.gitlab_deliveries import GITLAB
from bullpen.directors.forge.inbox import HubInbox, UnreadInbox
from bullpen.directors.forge.nouns import Forge
from bullpen.directors.forge.origin import Origin
from bullpen.directors.forge.plan import Planner
from bullpen.directors.forge.remember import Outcome
from bullpen.directors.forge.rules import ForgeRules
from bullpen.directors.forge.seen import Seen
from bullpen.directors.forge.tasks import HubTasks
from bullpen.directors.forge.texts import Publisher
from bullpen.directors.forge.webhook import PATH, Webhook
from bullpen.directors.forge.work import ForgeMemory
from bullpen.directors.history import HistoryRow
from bullpen.directors.loop import Ahead
from bullpen.directors.memory import FILE, Action
from bullpen.errors import BullpenError, Kind
from bullpen.home import credentials
from bullpen.home.agent_files import list_agent_files, load_agent_file
from bullpen.home.paths import Home
from bullpen.home.roles import find_role, load_role

TOKEN_SECONDS = 1.0
log = logging.getLogger("bullpen.director")

STARTER = """\
# A director of FORGE: issues titled "[NAME] …" become PULLS; NAME is that of this file.
# It needs a token that may write to the repository: bullpen auth set TOKEN < FILE
type: TYPE
repo: EXAMPLE        # yours, on HOST
role: coder             # whose agents work on the issues; or agent: NAME
# labels: {team: web}   # and which of them
# label: help wanted    # only issues with this label
# model: sonnet         # without: the agent's
# timeout: 1h           # of one task
# poll_interval: 30s
# webhook: false        # true: HOOKS at /webhook of this port make it look at once
# port: 9151            # which needs a fixed one, and: bullpen auth set TYPE-webhook-secret < FILE
# server: SERVER   # without: HOST
# autostart: false      # with bullpen up
# prompts:              # with {{.Number}} {{.Title}} {{.Body}} {{.Comments}}, where these go
#   work: |
#     Do what issue {{.Number}} asks for, and commit it.
#   review: |
#     Review it. If it is good, let LGTM be the last line.
# settings:
#   max_reviews: 3      # rounds in which the agent looks at its own work; then a draft
#   branch_prefix: claude/issue-
#   require_approval: true       # wait for 👍 and comments once the branch is proposed
#   allowed_authors: [ann, bob]  # whose word counts; without: who may write to the repository
#   give_up_after: 5    # tasks that fail, one after the other
#   at_once: 5          # issues that are worked on at the same time
#   status_issue: true  # one that says what it is at
# reactions:            # to faults of what is proposed; none without it
#   ci_failed: {retries: 3}          # red checks go to the agent, with their logs
#   changes_requested: {retries: 3}  # and what reviewers write at the code
#   conflict: {retries: 3}           # the agent merges or rebases
#   stale: {after: 7d, retries: 1}   # nothing for so long: a comment
#     # and in each, what comes then: escalate: inbox (a question for you), or comment
"""


def starter_for(**words: str) -> str:
    """The file for one forge."""
    text = STARTER.replace("EXAMPLE", EXAMPLE)
    for word, value in words.items():
        text = text.replace(word, value)
    return text


class Adapter(Protocol):
    """How an adapter is made."""

    def __call__(self, repo: str, token: Callable[[], str], server: str | None) -> Forge: ...


class ForgeDirector(Director[Seen, ForgeMemory, Action, Outcome]):
    """One repository's."""

    adapter: ClassVar[Adapter]
    deliveries: ClassVar[Deliveries]
    credential: ClassVar[str]
    git_user: ClassVar[str]
    server: ClassVar[str]  # where the file names none
    config_type: ClassVar[type[ComponentConfig]] = ForgeConfig
    config: ForgeConfig

    def listen(self) -> None:
        super().listen()
        self._bound(self.loop.memory)

    async def look_ahead(self) -> list[Ahead[Action]]:
        actions = await super().look_ahead()
        self._bound(self.loop.memory)  # raises where a start would
        return actions

    async def run(self) -> None:
        await self.loop.change(self._bound)
        watching = asyncio.create_task(self._watch_token(), name="watch the token")
        try:
            await super().run()
        finally:
            watching.cancel()

    async def _watch_token(self) -> None:
        """Have the loop look as soon as a person has set another token: it may wait for that."""
        last = credentials.set_at(self.home, self.credential)
        while True:
            await asyncio.sleep(TOKEN_SECONDS)
            if (now := credentials.set_at(self.home, self.credential)) != last:
                last = now
                self.loop.wake()

    def _bound(self, memory: ForgeMemory) -> ForgeMemory:
        return self._origin.bind(memory, self.directory / FILE)

    @property
    def _origin(self) -> Origin:
        config = self.config
        return Origin(config.type, config.server or self.server, config.repo, self.server)

    def make_rules(self) -> ForgeRules:
        config = self.config
        check_sandboxed(self.home, config)
        self._rules = ForgeRules(
            Planner(self.name, config, Publisher(self._secrets)),
            type(self).adapter(config.repo, self._token, config.server),
            HubTasks(self.hub, config),
            Checkouts(
                self._origin.clone(self.home.projects),
                self.home.credentials / self.credential,
                self.git_user,
                self.credential,
            ),
            HubInbox(self.hub) if self.hub_token else UnreadInbox(),
            str(self._origin),
            is_file_changed=self._is_file_changed,
        )
        return self._rules

    def _is_file_changed(self) -> bool:
        """Whether another process would do otherwise, or could not read it."""
        try:
            config, _ = load_config(self.config_type, config_file(self.home, self.name))
        except BullpenError:
            return True
        live = set(self.live)
        return config.model_dump(exclude=live) != self.config.model_dump(exclude=live)

    def tasks(self, memory: ForgeMemory) -> Sequence[Shown]:
        return [
            {
                "id": f"#{work.number}",  # as in its history
                "state": work.stage.stage,
                "issue": work.number,
                "title": work.title,
                "task_id": work.last_task,
                "pull": work.pull_url,
                "since": work.since,
            }
            for work in memory.works.values()
        ]

    # ── the webhook ──

    @property
    def open_paths(self) -> frozenset[str]:
        return frozenset({PATH}) if self.config.webhook else frozenset()

    def more_routes(self) -> Sequence[BaseRoute]:
        if not self.config.webhook:
            return ()
        secret, wake = self._webhook_secret, self.loop.wake
        return [Webhook(self.deliveries, secret, self._heed, wake, log.warning).route]

    def _heed(self, delivery: Delivery) -> bool:
        return self._rules.want(plan_look(delivery, self.config.repo, self.loop.memory))

    def _webhook_secret(self) -> str:
        """As it is now; one that is forgotten, or that others may read, lets nobody in."""
        try:
            return credentials.load(self.home, self.config.webhook_credential) or ""
        except BullpenError as error:
            log.error("the webhook is closed", extra={"reason": error.message})
            return ""

    # ── what is shown, and leaving ──

    def history(self, memory: ForgeMemory) -> tuple[HistoryRow, ...]:
        return memory.history

    def agents(self, memory: ForgeMemory) -> Sequence[Shown]:
        """Those that had its tasks at the last look."""
        working = self._rules.agents
        return [{"name": name, "state": "working", "task_id": id} for name, id in working.items()]

    async def leave(self) -> None:
        """Close the status issue, if the forge answers."""
        if not self.config.settings.status_issue:
            return
        try:
            await self._rules.close_status(self.loop.memory)
        except BullpenError as error:
            self.life.note("warn", "the status issue stays open", reason=error.message)

    def _token(self) -> str:
        token = credentials.load(self.home, self.credential)
        if token is None:
            raise ActionError(
                f"there is no {self.credential}",
                Verdict.PERSON,
                hint=f"bullpen auth set {self.credential} < FILE",
            )
        return token

    def _secrets(self) -> dict[str, str]:
        """All that must never be posted or pushed, as far as this home knows it."""
        own = {f"{self.name}'s token": self.hub_token} if self.hub_token else {}
        return {**own, **credentials.load_secrets(self.home)}


class GitHubDirector(ForgeDirector):
    """On GitHub."""

    adapter = github.GitHubForge
    deliveries = GITHUB
    credential = github.CREDENTIAL
    git_user = github.GIT_USER
    server = github.SERVER
    starter = starter_for(
        FORGE="GitHub",
        PULLS="pull requests",
        TOKEN=github.CREDENTIAL,
        TYPE="github",
        HOOKS="GitHub's webhooks",
        HOST="api.github.com",
        SERVER="https://github.example.com/api/v3",
    )


class GitLabDirector(ForgeDirector):
    """On GitLab."""

    adapter = gitlab.GitLabForge
    deliveries = GITLAB
    credential = gitlab.CREDENTIAL
    git_user = gitlab.GIT_USER
    server = gitlab.SERVER
    config_type: ClassVar[type[ComponentConfig]] = GitLabConfig
    starter = starter_for(
        FORGE="GitLab",
        PULLS="merge requests",
        TOKEN=gitlab.CREDENTIAL,
        TYPE="gitlab",
        HOOKS="GitLab's webhooks",
        HOST="gitlab.com",
        SERVER="https://gitlab.example.com",
    )


def check_sandboxed(home: Home, config: ForgeConfig) -> None:
    """Refuse when an agent that may get the tasks has no sandbox. Reads the files of the home."""
    names = [config.agent] if config.agent else list_agent_files(home)
    for name in filter(None, names):
        if name not in list_agent_files(home):
            continue
        file = load_agent_file(home, name)
        if config.role in (None, file.role):
            role = load_role(find_role(file.role, home.roles, home.pod_roles))
            _refuse_open(f"agent {name}", file.sandbox.enabled, role.sandbox.enabled)
    if config.role:
        role = load_role(find_role(config.role, home.roles, home.pod_roles))
        _refuse_open(f"role {config.role}", role.sandbox.enabled)


def _refuse_open(who: str, *enabled: bool | None) -> None:
    """The first that says anything decides."""
    if next((each for each in enabled if each is not None), True):
        return
    raise BullpenError(
        f"{who} works without a sandbox, and issues are written by strangers",
        hint="sandbox: {enabled: true}",
        kind=Kind.DENIED,
    )
