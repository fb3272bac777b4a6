"""A director of GitHub without its process: real rules, loop, git and HTTP; the fake of GitHub; and
agents that answer at once as a script says.

office = Office(tmp_path, forge)
office.script(1, Answer("I greeted", commit="greet"), Answer("LGTM"))    # tasks about issue 1
office.run()                                                              # until nothing is to do
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bullpen.directors.failures import ActionError, Trouble, Verdict
from bullpen.directors.forge.checkouts import Checkouts
from bullpen.directors.forge.config import ForgeConfig
from bullpen.directors.forge.github import GitHubForge
from bullpen.directors.forge.plan import Planner
from bullpen.directors.forge.remember import Given
from bullpen.directors.forge.rules import ForgeRules
from bullpen.directors.forge.tasks import TaskSeen
from bullpen.directors.forge.texts import Publisher
from bullpen.directors.forge.work import ForgeMemory
from bullpen.directors.loop import Loop, checkpoint_type
from bullpen.directors.memory import MemoryFile
from bullpen.model.value import Value
from tests.forge.server import Forge, git

NAME = "robo"
MOST_ROUNDS = 100
BEGINNING = 1_800_000_000.0  # of every office's time


class Answer(Value):
    """What an agent does with one task. `commit` is also the name of the file that it adds."""

    output: str = "done"
    commit: str = ""
    content: str = "text\n"
    failure: str = ""
    failure_kind: str = ""
    is_untaken: bool = False  # nobody has it
    is_unbegun: bool = False  # there was no directory for it
    is_uncommitted: bool = False  # it leaves changes that are not
    refused: str = ""  # why commits of it are not in the clone
    is_coming: bool = False  # its commit is there when `come` was called
    is_open: bool = False  # it goes on, until somebody cancels it
    onto: str = ""  # "merge" or "rebase": its commit brings the default branch in


LGTM = Answer(output="It is good.\nLGTM")


class ScriptedTasks:
    """Agents whose tasks lie in a directory: one file per request, so that nothing is done twice
    for the same one, whichever process asks."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prompts(self, branch: str) -> list[str]:
        """Of all tasks about that branch, in order."""
        return [task["prompt"] for task in self._all() if task["branch"] == branch]

    def _all(self) -> list[dict[str, Any]]:
        found = [json.loads(path.read_text()) for path in self.directory.glob("*.task")]
        return sorted(found, key=lambda task: int(task["order"]))

    async def give(
        self, request: str, prompt: str, *, session_id: str, repo: str, branch: str
    ) -> Given:
        assert len(request) == 32
        file = self.directory / f"{request}.task"
        if not file.exists():
            order = len(self._all())
            before = [task for task in self._all() if task["branch"] == branch]
            answers = json.loads((self.directory / "script").read_text()).get(branch, [])
            answer = Answer(**answers[len(before)]) if len(before) < len(answers) else LGTM
            if answer.commit and not answer.is_coming:
                _commit(Path(repo), branch, answer)
            begun = [task for task in before if not task["answer"]["is_unbegun"]]
            assert session_id == (f"session {branch}" if begun else "")
            task = {
                "prompt": prompt,
                "branch": branch,
                "order": order,
                "answer": answer.model_dump(),
            }
            file.write_text(json.dumps(task))
        return Given(task_id=request, session_id=f"session {branch}")

    async def look(self, task_id: str) -> TaskSeen:
        answer = Answer(**json.loads((self.directory / f"{task_id}.task").read_text())["answer"])
        if (self.directory / f"{task_id}.cancelled").exists():
            return TaskSeen(is_over=True, failure="somebody cancelled it", is_cancelled=True)
        return TaskSeen(
            is_over=not answer.is_open,
            output=answer.output,
            failure=answer.failure,
            failure_kind=answer.failure_kind,
            agent="" if answer.is_untaken else "amy",
            created_at=BEGINNING,
            is_unbegun=answer.is_unbegun,
        )

    async def find_refused(self, task_id: str) -> str:
        task = json.loads((self.directory / f"{task_id}.task").read_text())
        answer = Answer(**task["answer"])
        if answer.is_coming and not (self.directory / "come").exists():
            raise ActionError("its commits are still being brought over", Verdict.LATER)
        return answer.refused

    async def has_uncommitted(self, task_id: str) -> bool:
        task = json.loads((self.directory / f"{task_id}.task").read_text())
        return Answer(**task["answer"]).is_uncommitted

    def come(self, repo: Path) -> None:
        """What was on its way is in the clone now."""
        for task in self._all():
            answer = Answer(**task["answer"])
            if answer.is_coming:
                _commit(repo, task["branch"], answer)
        (self.directory / "come").touch()

    async def cancel(self, task_id: str) -> None:
        (self.directory / f"{task_id}.cancelled").touch()

    @property
    def cancelled(self) -> int:
        return len(list(self.directory.glob("*.cancelled")))


class ScriptedInbox:
    """A person's inbox in a directory: a file for each question, so that one is asked once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    async def open(self, name: str, what: str, about: Mapping[str, str]) -> None:
        assert len(name) == 32
        file = self.directory / name
        if not file.exists():
            asked = {"order": len(list(self.directory.iterdir())), "state": "waiting"}
            file.write_text(json.dumps({**asked, "what": what, "about": dict(about)}))

    async def look(self, name: str) -> Any:
        state = json.loads((self.directory / name).read_text())["state"]
        return "gone" if state == "withdrawn" else state

    async def withdraw(self, name: str) -> None:
        self.answer("withdrawn", name)

    def answer(self, state: str, name: str = "") -> None:
        """As a person: "again" or "leave"; without a name the one that waits."""
        waiting = [path.name for path in self.directory.iterdir() if self._of(path) == "waiting"]
        [wanted] = [name] if name else waiting
        fields = json.loads((self.directory / wanted).read_text())
        if fields["state"] == "waiting":
            (self.directory / wanted).write_text(json.dumps({**fields, "state": state}))

    def _of(self, path: Path) -> str:
        return str(json.loads(path.read_text())["state"])

    @property
    def all(self) -> list[dict[str, Any]]:
        """In the order in which they were asked."""
        found = [json.loads(path.read_text()) for path in self.directory.iterdir()]
        return sorted(found, key=lambda each: int(each["order"]))

    @property
    def states(self) -> list[str]:
        return [each["state"] for each in self.all]


def _commit(repo: Path, branch: str, answer: Answer) -> None:
    """On top of the branch, which begins at HEAD."""
    tips = git(repo, "for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")
    base = git(repo, "rev-parse", "HEAD")
    tip = tips or base
    file = repo / "content"
    file.write_text(answer.content)
    blob = git(repo, "hash-object", "-w", str(file))
    index = {"GIT_INDEX_FILE": str(repo / "index.scratch")}
    git(repo, "read-tree", tip, **index)
    git(repo, "update-index", "--add", "--cacheinfo", f"100644,{blob},{answer.commit}.txt", **index)
    tree = git(repo, "write-tree", **index)
    parents = {"merge": [tip, base], "rebase": [base]}.get(answer.onto, [tip])
    words = [word for parent in parents for word in ("-p", parent)]
    made = git(repo, "commit-tree", tree, *words, "-m", answer.commit)
    git(repo, "update-ref", f"refs/heads/{branch}", made)


class Office:
    """See the module. `directory` holds all that outlives a process of the director."""

    def __init__(
        self,
        directory: Path,
        forge: Forge,
        secrets: tuple[str, ...] = (),
        adapter: Any = GitHubForge,
        **config: Any,
    ) -> None:
        self.adapter = adapter
        self.directory = directory
        self.forge = forge
        self.secrets = secrets
        self.config = ForgeConfig(
            type="github", repo="acme/shop", server=forge.url, role="coder", **config
        )
        (directory / "tasks").mkdir(parents=True, exist_ok=True)
        self.tasks = ScriptedTasks(directory / "tasks")
        self.inbox = ScriptedInbox(directory / "inbox")
        self.token_file = directory / "github-token"
        self.token_file.write_text(forge.token("bot") + "\n")
        self.told: list[tuple[str, str, dict[str, object]]] = []
        self.seconds = 0.0  # that the director's clock is ahead
        self._script: dict[str, list[Any]] = {}
        self.script(0)

    def branch(self, number: int) -> str:
        return f"{self.config.settings.branch_prefix}{number}"

    def script(self, number: int, *answers: Answer) -> None:
        """What the tasks about that issue are answered with; then LGTM."""
        self._script[self.branch(number)] = [answer.model_dump() for answer in answers]
        (self.tasks.directory / "script").write_text(json.dumps(self._script))

    def rules(self) -> ForgeRules:
        """As a new process has them."""
        publisher = Publisher(lambda: dict.fromkeys(["github-token"], "".join(self.secrets)))
        planner = Planner(NAME, self.config, publisher)
        adapter = self.adapter(
            self.config.repo, lambda: self.token_file.read_text().strip(), self.config.server
        )
        checkouts = Checkouts(
            self.directory / "projects" / "acme" / "shop",
            self.token_file,
            "x-access-token",
            "github-token",
        )
        return ForgeRules(planner, adapter, self.tasks, checkouts, self.inbox, "here", now=self.now)

    def now(self) -> float:
        return BEGINNING + self.seconds

    def pass_seconds(self, seconds: float) -> None:
        self.seconds += seconds

    def loop(self) -> Loop[Any, Any, Any, Any]:
        rules = self.rules()
        file: MemoryFile[Any, Any] = MemoryFile(
            self.directory / "memory.json", checkpoint_type(rules)
        )
        return Loop(rules, file, lambda *words: self.told.append(words), now=self.now)

    def run(self) -> ForgeMemory:
        """A new process, until it has nothing to do; what it remembers then."""

        async def work() -> ForgeMemory:
            loop = self.loop()
            for _ in range(MOST_ROUNDS):
                if await loop.step() == 0:
                    return loop.memory
            raise AssertionError(f"it does not come to rest: {loop.memory}")

        return asyncio.run(work())

    def troubles(self) -> dict[str, Trouble]:
        return self.loop().troubles

    # ── what the world has of it ──

    def messages(self, branch: str) -> list[str]:
        """Of the commits of a branch on the forge, oldest first."""
        return git(self.forge.bare, "log", "--reverse", "--format=%s", f"main..{branch}").split(
            "\n"
        )

    def picture(self) -> object:
        """All that counts, without what differs from run to run."""
        world = self.forge.world
        with world.lock:
            issues = {
                issue.number: {
                    "title": issue.title,
                    "body": issue.body,
                    "state": issue.state,
                    "by": issue.author,
                    "assignees": issue.assignees,
                    "labels": issue.labels,
                    "comments": [(each.author, each.body) for each in issue.comments],
                    "reactions": [(each.author, each.content) for each in issue.reactions],
                    "draft": issue.pull.draft if issue.pull else None,
                }
                for issue in world.issues.values()
            }
        branches = {name: self.messages(name) for name in self.forge.branches() if name != "main"}
        prompts = [
            hashlib.sha256(task["prompt"].encode()).hexdigest() for task in self.tasks._all()
        ]
        return {"issues": issues, "branches": branches, "tasks": prompts, "inbox": self.inbox.all}
