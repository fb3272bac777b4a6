"""GitLab: its REST API, as an adapter of `nouns.Forge`. Its merge requests are our pulls."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote

from bullpen.directors.failures import ActionError, Verdict
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

SERVER = "https://gitlab.com"
CREDENTIAL = "gitlab-token"
GIT_USER = "oauth2"  # that it wants beside a token
DEVELOPER = 30  # the least level of access that may push
EMOJI = {APPROVAL: "thumbsup"}  # where its names differ
GONE = (404, 410)
RUNNING = ("created", "waiting_for_resource", "preparing", "pending", "running")  # jobs
UNSURE = ("checking", "unchecked", "preparing")  # whether a merge request conflicts
LOG_BYTES = 64_000


class GitLabForge:
    """One project on GitLab. `token` is asked each time."""

    def __init__(self, repo: str, token: Callable[[], str], server: str | None = None) -> None:
        self._repo = repo
        self._path = f"/projects/{quote(repo, safe='')}"
        self._token = token
        base = f"{(server or SERVER).rstrip('/')}/api/v4"
        self._http = ForgeHttp("GitLab", base, self._headers, CREDENTIAL)

    def _headers(self) -> dict[str, str]:
        return {"PRIVATE-TOKEN": self._token()}

    # ── people and the project ──

    async def login(self) -> str:
        return str((await self._http.get("/user")).json["username"])

    async def rights(self) -> Rights | None:
        """By its scopes. Some servers do not tell them; then calls do."""
        try:
            token = await self._http.get("/personal_access_tokens/self", accept=(401, 404))
        except ActionError as error:
            if error.verdict is not Verdict.PERSON:
                raise
            return Rights(lacks=("the scope api",))  # with none of those that may ask
        if token.status == 401:
            return None
        scopes = tuple(map(str, token.json["scopes"])) if token.status == 200 else None
        if scopes is not None and "api" not in scopes:
            # It may not even be asked whose it is.
            return Rights(scopes=scopes, lacks=("the scope api",))
        user = await self._http.get("/user", accept=(401,))
        if user.status == 401:
            return None
        lacks = await self._lacks_here() if self._repo else []
        return Rights(login=user.json["username"], scopes=scopes, lacks=tuple(lacks))

    async def _lacks_here(self) -> list[str]:
        project = await self._http.get(self._path, accept=(404,))
        if project.status == 404:
            return [f"{self._repo}: it cannot see it, or there is none"]
        permissions = project.json.get("permissions")
        if permissions is None:
            return []
        of_both = (permissions.get(f"{each}_access") for each in ("project", "group"))
        level = max((each["access_level"] for each in of_both if each), default=0)
        return [] if level >= DEVELOPER else [f"the role Developer in {self._repo}"]

    async def repository(self) -> Repository:
        fields = (await self._http.get(self._path)).json
        return Repository(
            default_branch=fields["default_branch"], clone_url=str(fields["http_url_to_repo"])
        )

    async def may_write(self, person: str) -> bool:
        rows = await self._http.get_all(f"{self._path}/members/all", {"query": person})
        return any(
            each["username"] == person
            and each["access_level"] >= DEVELOPER
            and each.get("state", "active") == "active"
            for each in rows
        )

    # ── issues ──

    async def open_issues(self, label: str) -> list[Issue]:
        query = {"state": "opened", "scope": "all", **({"labels": label} if label else {})}
        return [_issue(each) for each in await self._http.get_all(f"{self._path}/issues", query)]

    async def issue(self, number: int) -> Issue:
        answer = await self._http.get(self._at(number), accept=GONE)
        if answer.status in GONE:  # deleted, or moved
            return Issue(number=number, title="", body="", author="", is_open=False)
        return _issue(answer.json)

    async def comments(self, number: int, *, of_pull: bool = False) -> list[Comment]:
        query = {"sort": "asc", "order_by": "created_at"}
        rows = await self._http.get_all(f"{self._at(number, of_pull)}/notes", query)
        return [
            _note(each)
            for each in rows
            if not each.get("system")  # what GitLab itself notes: "assigned to …"
        ]

    async def comment(self, number: int, text: str, *, of_pull: bool = False) -> int:
        target = f"{self._at(number, of_pull)}/notes"
        return int((await self._http.send("POST", target, {"body": text})).json["id"])

    async def assign(self, number: int, person: str) -> None:
        rows = await self._http.get_all("/users", {"username": person})
        ids = [each["id"] for each in rows if each["username"] == person]
        await self._http.send("PUT", self._at(number), {"assignee_ids": ids})

    async def react(self, number: int, content: str) -> None:
        """A second one of the same person is an error there."""
        name, me = EMOJI.get(content, content), await self.login()
        rows = await self._http.get_all(f"{self._at(number)}/award_emoji")
        if not any(each["name"] == name and _name(each["user"]) == me for each in rows):
            await self._http.send("POST", f"{self._at(number)}/award_emoji", {"name": name})

    async def open_issue(self, title: str, body: str) -> int:
        fields = {"title": title, "description": body}
        return int((await self._http.send("POST", f"{self._path}/issues", fields)).json["iid"])

    async def edit_issue(self, number: int, body: str, *, is_open: bool) -> bool:
        fields = {"description": body}
        if (await self.issue(number)).is_open != is_open:
            fields["state_event"] = "reopen" if is_open else "close"
        answer = await self._http.send("PUT", self._at(number), fields, accept=GONE)
        return answer.status not in GONE

    # ── merge requests ──

    async def approvals(self, pull: int) -> list[Approval]:
        rows = await self._http.get_all(f"{self._at(pull, of_pull=True)}/award_emoji")
        return [
            Approval(id=each["id"], person=_name(each["user"]))
            for each in rows
            if each["name"] == EMOJI[APPROVAL]
        ]

    async def label(self, pull: int, name: str) -> None:
        await self._http.send("PUT", self._at(pull, of_pull=True), {"add_labels": name})

    async def find_pull(self, branch: str) -> Pull | None:
        query = {"source_branch": branch, "state": "all", "scope": "all"}
        rows = await self._http.get_all(f"{self._path}/merge_requests", query)
        own = (each for each in rows if each["source_project_id"] == each["target_project_id"])
        return max(map(_pull, own), key=lambda pull: pull.number, default=None)

    async def open_pull(
        self, branch: str, base: str, title: str, body: str, *, is_draft: bool
    ) -> Pull:
        fields = {
            "title": f"Draft: {title}" if is_draft else title,
            "description": body,
            "source_branch": branch,
            "target_branch": base,
        }
        return _pull((await self._http.send("POST", f"{self._path}/merge_requests", fields)).json)

    async def reviews(self, pull: int) -> Reviews:
        return Reviews()

    async def health(self, pull: int) -> Health:
        fields = (await self._http.get(self._at(pull, of_pull=True))).json
        is_unsure = fields.get("detailed_merge_status") in UNSURE
        return Health(
            head=fields["sha"] or "",
            base=fields["target_branch"],
            is_conflicting=None if is_unsure else bool(fields["has_conflicts"]),
            updated=datetime.fromisoformat(fields["updated_at"]).timestamp(),
        )

    async def checks(self, commit: str) -> list[Check]:
        rows = await self._http.get_all(f"{self._path}/repository/commits/{commit}/statuses")
        return [self._check(each) for each in rows]

    def _check(self, fields: Any) -> Check:
        status = fields["status"]
        is_failed = status == "failed" and not fields.get("allow_failure")
        return Check.model_validate(
            {
                "id": str(fields["id"]),
                "name": fields["name"],
                "state": "running" if status in RUNNING else "failed" if is_failed else "passed",
                "summary": "\n".join(
                    filter(None, (fields.get("description"), fields.get("target_url")))
                ),
                "log": f"{self._path}/jobs/{fields['id']}/trace",
            }
        )

    async def log_tail(self, check: Check) -> str:
        return await self._http.get_tail(check.log, LOG_BYTES)

    def _at(self, number: int, of_pull: bool = False) -> str:
        return f"{self._path}/{'merge_requests' if of_pull else 'issues'}/{number}"


def _name(user: Any) -> str:
    return str(user["username"]) if user else "ghost"


def _note(fields: Any) -> Comment:
    """Also one at a line of the code: of the new one, or of one that is gone."""
    at = fields.get("position") or {}
    return Comment(
        id=fields["id"],
        author=_name(fields["author"]),
        body=fields.get("body") or "",
        path=at.get("new_path") or at.get("old_path") or "",
        line=at.get("new_line") or at.get("old_line") or 0,
    )


def _issue(fields: Any) -> Issue:
    return Issue(
        number=fields["iid"],
        title=fields["title"],
        body=fields.get("description") or "",
        author=_name(fields["author"]),
        is_open=fields["state"] == "opened",
        assignees=tuple(_name(each) for each in fields.get("assignees") or ()),
        labels=tuple(str(each) for each in fields.get("labels") or ()),
    )


def _pull(fields: Any) -> Pull:
    return Pull(
        number=fields["iid"],
        url=fields["web_url"],
        is_open=fields["state"] in ("opened", "locked"),
        is_merged=fields["state"] == "merged",
        head=fields.get("sha") or "",
    )
