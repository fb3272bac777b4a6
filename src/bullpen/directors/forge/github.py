"""GitHub: its REST API, as an adapter of `nouns.Forge`."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote

from bullpen.directors.failures import ActionError, LimitError, Verdict
from bullpen.directors.forge.http import ForgeHttp
from bullpen.directors.forge.nouns import (
    APPROVAL,
    Approval,
    Check,
    Comment,
    Health,
    Issue,
    Pull,
    Repository,
    Reviews,
    Rights,
)

SERVER = "https://api.github.com"
CREDENTIAL = "github-token"
GIT_USER = "x-access-token"  # that it wants beside a token
GONE = (301, 404, 410)  # transferred, or deleted
FAILED = ("failure", "timed_out", "startup_failure")  # conclusions; the others are nobody's fault
ACTIONS = "github-actions"  # the one that keeps logs; a check of it has the number of its job
STATES = {"pending": "running", "success": "passed"}  # of statuses; error, failure: failed
ASKS = ("CHANGES_REQUESTED", "COMMENTED")  # states of reviews whose text asks for something
LOG_BYTES = 64_000


class GitHubForge:
    """One repository on GitHub. `token` is asked each time."""

    def __init__(self, repo: str, token: Callable[[], str], server: str | None = None) -> None:
        self._repo = repo
        self._path = f"/repos/{repo}"
        self._token = token
        self._http = ForgeHttp("GitHub", server or SERVER, self._headers, CREDENTIAL)

    def _headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self._token()}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }

    # ── people and the repository ──

    async def login(self) -> str:
        return str((await self._http.get("/user")).json["login"])

    async def rights(self) -> Rights | None:
        """Classic tokens have scopes; of a fine-grained one only calls tell what it may read, and
        nothing what it may write."""
        user = await self._http.get("/user", accept=(401,))
        if user.status == 401:
            return None
        header = user.headers.get("x-oauth-scopes")
        scopes = None if header is None else _words(header)
        lacks = []
        if scopes is not None and not {"repo", "public_repo"} & {*scopes}:
            lacks.append("the scope repo (for public repositories alone: public_repo)")
        if self._repo:
            lacks += await self._lacks_here(scopes)
        return Rights(login=user.json["login"], scopes=scopes, lacks=tuple(lacks))

    async def _lacks_here(self, scopes: tuple[str, ...] | None) -> list[str]:
        repository = await self._http.get(self._path, accept=(404,))
        if repository.status == 404:
            return [f"{self._repo}: it cannot see it, or there is none"]
        lacks = []
        if scopes is not None and repository.json.get("private") and "repo" not in scopes:
            lacks.append(f"the scope repo: {self._repo} is private")
        if not repository.json.get("permissions", {}).get("push", True):
            lacks.append(f"the right to push to {self._repo}")
        for what, name in (("issues", "Issues"), ("pulls", "Pull requests")):
            try:
                answer = await self._http.get(
                    f"{self._path}/{what}", {"per_page": "1"}, accept=(404, 410)
                )
            except LimitError:
                raise
            except ActionError as error:
                if error.verdict is not Verdict.PERSON:
                    raise
                lacks.append(f"the permission {name} (read and write) for {self._repo}")
                continue
            if answer.status != 200:
                lacks.append(f"{self._repo} has no {name.lower()}, or it may not see them")
        return lacks

    async def repository(self) -> Repository:
        fields = (await self._http.get(self._path)).json
        return Repository(
            default_branch=fields["default_branch"], clone_url=str(fields["clone_url"])
        )

    async def may_write(self, person: str) -> bool:
        target = f"{self._path}/collaborators/{quote(person, safe='')}/permission"
        answer = await self._http.get(target, accept=(404,))
        return answer.status == 200 and answer.json.get("permission") in ("admin", "write")

    # ── issues ──

    async def open_issues(self, label: str) -> list[Issue]:
        query = {"state": "open", **({"labels": label} if label else {})}
        rows = await self._http.get_all(f"{self._path}/issues", query)
        return [_issue(each) for each in rows if "pull_request" not in each]

    async def issue(self, number: int) -> Issue:
        answer = await self._http.get(f"{self._path}/issues/{number}", accept=GONE)
        if answer.status in GONE:
            return Issue(number=number, title="", body="", author="", is_open=False)
        return _issue(answer.json)

    async def comments(self, number: int, *, of_pull: bool = False) -> list[Comment]:
        rows = await self._http.get_all(f"{self._path}/issues/{number}/comments", {})
        return [_comment(each) for each in rows]

    async def comment(self, number: int, text: str, *, of_pull: bool = False) -> int:
        body = {"body": text}
        answer = await self._http.send("POST", f"{self._path}/issues/{number}/comments", body)
        return int(answer.json["id"])

    async def assign(self, number: int, person: str) -> None:
        await self._http.send(
            "POST", f"{self._path}/issues/{number}/assignees", {"assignees": [person]}
        )

    async def react(self, number: int, content: str) -> None:
        await self._http.send(
            "POST", f"{self._path}/issues/{number}/reactions", {"content": content}
        )

    async def open_issue(self, title: str, body: str) -> int:
        answer = await self._http.send(
            "POST", f"{self._path}/issues", {"title": title, "body": body}
        )
        return int(answer.json["number"])

    async def edit_issue(self, number: int, body: str, *, is_open: bool) -> bool:
        target = f"{self._path}/issues/{number}"
        fields = {"body": body, "state": "open" if is_open else "closed"}
        return (await self._http.send("PATCH", target, fields, accept=GONE)).status not in GONE

    # ── pulls ──

    async def approvals(self, pull: int) -> list[Approval]:
        rows = await self._http.get_all(
            f"{self._path}/issues/{pull}/reactions", {"content": APPROVAL}
        )
        return [Approval(id=each["id"], person=_name(each["user"])) for each in rows]

    async def label(self, pull: int, name: str) -> None:
        await self._http.send("POST", f"{self._path}/issues/{pull}/labels", {"labels": [name]})

    async def find_pull(self, branch: str) -> Pull | None:
        owner = self._repo.partition("/")[0]  # no fork's branch of the same name
        query = {"head": f"{owner}:{branch}", "state": "all"}
        rows = await self._http.get_all(f"{self._path}/pulls", query)
        return max(map(_pull, rows), key=lambda pull: pull.number, default=None)

    async def open_pull(
        self, branch: str, base: str, title: str, body: str, *, is_draft: bool
    ) -> Pull:
        fields = {"title": title, "body": body, "head": branch, "base": base, "draft": is_draft}
        return _pull((await self._http.send("POST", f"{self._path}/pulls", fields)).json)

    async def reviews(self, pull: int) -> Reviews:
        target = f"{self._path}/pulls/{pull}"
        # In this order: of a review that is there, all comments are there. Others come next time.
        rows = await self._http.get_all(f"{target}/reviews")
        known = {each["id"] for each in rows}
        texts = tuple(_comment(each) for each in rows if each["state"] in ASKS and each["body"])
        lines = await self._http.get_all(f"{target}/comments")
        at_lines = tuple(
            _comment(each) for each in lines if each["pull_request_review_id"] in {*known, None}
        )
        return Reviews(texts=texts, at_lines=at_lines)

    async def health(self, pull: int) -> Health:
        fields = (await self._http.get(f"{self._path}/pulls/{pull}")).json
        mergeable = fields["mergeable"]
        return Health(
            head=fields["head"]["sha"],
            base=fields["base"]["ref"],
            is_conflicting=None if mergeable is None else not mergeable,
            updated=datetime.fromisoformat(fields["updated_at"]).timestamp(),
        )

    async def checks(self, commit: str) -> list[Check]:
        """Those of applications, and those of before, which are called statuses."""
        target = f"{self._path}/commits/{commit}"
        runs = await self._http.get_all(f"{target}/check-runs", within="check_runs")
        statuses = await self._http.get_all(f"{target}/status", within="statuses")
        return [*map(self._check, runs), *map(_status, statuses)]

    def _check(self, fields: Any) -> Check:
        output, app = fields["output"], fields["app"] or {}
        is_over = fields["status"] == "completed"
        failed = "failed" if fields["conclusion"] in FAILED else "passed"
        has_log = app.get("slug") == ACTIONS
        return Check.model_validate(
            {
                "id": str(fields["id"]),
                "name": fields["name"],
                "state": failed if is_over else "running",
                "summary": "\n".join(
                    filter(None, (output["title"], output["summary"], output["text"]))
                ),
                "log": f"{self._path}/actions/jobs/{fields['id']}/logs" if has_log else "",
            }
        )

    async def log_tail(self, check: Check) -> str:
        return await self._http.get_tail(check.log, LOG_BYTES) if check.log else ""


def _name(user: Any) -> str:
    """A deleted account is null."""
    return str(user["login"]) if user else "ghost"


def _issue(fields: Any) -> Issue:
    return Issue(
        number=fields["number"],
        title=fields["title"],
        body=fields.get("body") or "",
        author=_name(fields["user"]),
        is_open=fields["state"] == "open",
        assignees=tuple(_name(each) for each in fields.get("assignees") or ()),
        labels=tuple(
            each if isinstance(each, str) else str(each.get("name", ""))
            for each in fields["labels"]
        ),
    )


def _comment(fields: Any) -> Comment:
    """Also one at a line, which the code may have lost meanwhile."""
    return Comment(
        id=fields["id"],
        author=_name(fields["user"]),
        body=fields.get("body") or "",
        path=fields.get("path") or "",
        line=fields.get("line") or fields.get("original_line") or 0,
    )


def _status(fields: Any) -> Check:
    return Check.model_validate(
        {
            "id": f"status {fields['id']}",
            "name": fields["context"],
            "state": STATES.get(fields["state"], "failed"),
            "summary": "\n".join(filter(None, (fields["description"], fields["target_url"]))),
        }
    )


def _pull(fields: Any) -> Pull:
    return Pull(
        number=fields["number"],
        url=fields["html_url"],
        is_open=fields["state"] == "open",
        is_merged=bool(fields.get("merged_at")),
        head=fields["head"]["sha"],
    )


def _words(header: str) -> tuple[str, ...]:
    return tuple(word for each in header.split(",") if (word := each.strip()))
