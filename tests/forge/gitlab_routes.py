"""What the fake answers as GitLab: its routes on a `World`. Merge requests have numbers of their
own there: those of the world and `MERGE_REQUESTS`."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from tests.forge.routes import ForgeReply, ForgeRequest, Refused
from tests.forge.world import Comment, Issue, Reaction, World

MERGE_REQUESTS = 1000
API = "/api/v4"
PROJECT = rf"{API}/projects/(?P<repo>[^/]+)"
ISSUE = rf"{PROJECT}/(?P<kind>issues)/(?P<number>\d+)"
MERGE = rf"{PROJECT}/(?P<kind>merge_requests)/(?P<number>\d+)"
LEVELS = {"admin": 40, "write": 30, "read": 20}
EMOJI = {"+1": "thumbsup"}
COMMAND = re.compile(r"(?m)^\s*/(close|merge|assign|label|approve)\b")


class GitLabRoutes:
    """The routes of one world. `branches` says which branches its git has, with their commits."""

    def __init__(self, world: World, base: str, branches: Callable[[], dict[str, str]]) -> None:
        self.world = world
        self.base = base
        self.branches = branches
        self.commands: list[str] = []  # that somebody's text gave
        self.is_conflicting: Callable[[str, str], bool] = lambda base, branch: False
        self._table: tuple[tuple[str, str, Callable[[ForgeRequest], ForgeReply]], ...] = (
            ("GET", rf"{API}/user", lambda asked: ForgeReply(self._person(asked.login))),
            ("GET", rf"{API}/users", self._users),
            ("GET", PROJECT, self._project),
            ("GET", rf"{PROJECT}/members/all", self._members),
            ("GET", rf"{PROJECT}/issues", self._issues),
            ("POST", rf"{PROJECT}/issues", self._open_issue),
            ("GET", ISSUE, self._get),
            ("PUT", ISSUE, self._edit),
            ("GET", rf"{PROJECT}/merge_requests", self._merge_requests),
            ("POST", rf"{PROJECT}/merge_requests", self._open_merge_request),
            ("GET", MERGE, self._get),
            ("PUT", MERGE, self._edit),
            ("GET", rf"{PROJECT}/repository/commits/(?P<sha>[0-9a-f]+)/statuses", self._statuses),
            ("GET", rf"{PROJECT}/jobs/(?P<number>\d+)/trace", self._trace),
            *(
                row
                for one in (ISSUE, MERGE)
                for row in (
                    ("GET", rf"{one}/notes", self._notes),
                    ("POST", rf"{one}/notes", self._note),
                    ("GET", rf"{one}/award_emoji", self._emojis),
                    ("POST", rf"{one}/award_emoji", self._award),
                )
            ),
        )

    def answer(self, login: str, method: str, target: str, body: bytes) -> ForgeReply:
        parts = urlsplit(target)
        for verb, pattern, route in self._table:
            found = re.fullmatch(pattern, parts.path)
            if verb == method and found:
                wanted = quote(self.world.repository, safe="")
                if found.groupdict().get("repo", wanted) != wanted:
                    raise Refused(404, "404 Project Not Found")
                query = dict(parse_qsl(parts.query))
                with self.world.lock:
                    parsed = json.loads(body) if body else {}
                    return route(ForgeRequest(login, query, parsed, found.groupdict()))
        raise Refused(404, "404 Not Found")

    # ── people and the project ──

    def _person(self, login: str) -> dict[str, Any]:
        return {
            "id": self.world.id_of(login),
            "username": login,
            "name": login.title(),
            "state": "active",
            "avatar_url": None,
            "web_url": f"{self.base}/{login}",
        }

    def _users(self, asked: ForgeRequest) -> ForgeReply:
        wanted = asked.query.get("username")
        return ForgeReply([self._person(who) for who in self.world.people if who == wanted])

    def _project(self, asked: ForgeRequest) -> ForgeReply:
        name = self.world.repository
        url = f"{self.base}/{name}"
        return ForgeReply(
            {
                "id": 1,
                "path_with_namespace": name,
                "default_branch": "main",
                "http_url_to_repo": f"{url}.git",
                "web_url": url,
            }
        )

    def _members(self, asked: ForgeRequest) -> ForgeReply:
        part = asked.query.get("query", "")
        people = [(who, LEVELS.get(right)) for who, right in self.world.people.items()]
        return ForgeReply(
            [
                {**self._person(who), "access_level": level, "membership_state": "active"}
                for who, level in people
                if level is not None and part in who
            ]
        )

    def _need(self, asked: ForgeRequest) -> None:
        if not self.world.can_write(asked.login):
            raise Refused(403, "403 Forbidden")

    # ── issues and merge requests ──

    def _find(self, asked: ForgeRequest) -> Issue:
        is_merge = asked.path["kind"] == "merge_requests"
        number = asked.number - (MERGE_REQUESTS if is_merge else 0)
        issue = self.world.issues.get(number)
        if issue is None or (issue.pull is not None) != is_merge:
            raise Refused(404, "404 Not found")
        return issue

    def _shape(self, issue: Issue) -> dict[str, Any]:
        merge = issue.pull
        iid = issue.number + (MERGE_REQUESTS if merge else 0)
        state = "opened" if issue.state == "open" else "closed"
        kind = "merge_requests" if merge else "issues"
        shape = {
            "id": 5000 + issue.number,
            "iid": iid,
            "project_id": 1,
            "title": issue.title,
            "description": issue.body,
            "state": state,
            "author": self._person(issue.author),
            "assignees": [self._person(who) for who in issue.assignees],
            "labels": issue.labels,
            "web_url": f"{self.base}/{self.world.repository}/-/{kind}/{iid}",
            "created_at": issue.when,
            "updated_at": issue.updated,
        }
        if merge:
            shape |= {
                "state": "merged" if merge.merged else state,
                "draft": merge.draft,
                "source_branch": merge.branch,
                "target_branch": merge.base,
                "source_project_id": 1,
                "target_project_id": 1,
                "sha": self.branches().get(merge.branch),
                "has_conflicts": self.is_conflicting(merge.base, merge.branch),
                "detailed_merge_status": "not_approved",
            }
        return shape

    def _get(self, asked: ForgeRequest) -> ForgeReply:
        return ForgeReply(self._shape(self._find(asked)))

    def _issues(self, asked: ForgeRequest) -> ForgeReply:
        state, labels = asked.query.get("state", "all"), asked.query.get("labels", "")
        wanted = set(filter(None, labels.split(",")))
        found = [
            self._shape(issue)
            for issue in sorted(self.world.issues.values(), key=lambda each: -each.number)
            if issue.pull is None and wanted <= set(issue.labels)
            if state in ("all", "opened" if issue.state == "open" else "closed")
        ]
        return ForgeReply(found)

    def _open_issue(self, asked: ForgeRequest) -> ForgeReply:
        text = asked.body.get("description", "")
        number = self.world.open_issue(asked.login, asked.body["title"], text)
        return ForgeReply(self._shape(self.world.issues[number]), 201)

    def _edit(self, asked: ForgeRequest) -> ForgeReply:
        issue, body = self._find(asked), asked.body
        self._need(asked)
        if "description" in body:
            issue.body = body["description"]
        if "assignee_ids" in body:
            ids = {self.world.id_of(who): who for who in self.world.people}
            issue.assignees = [ids[id] for id in body["assignee_ids"]]
        if event := body.get("state_event"):
            issue.state = "closed" if event == "close" else "open"
        for name in filter(None, body.get("add_labels", "").split(",")):
            if name not in issue.labels:
                issue.labels.append(name)
        self.world.touch(issue.number)
        return ForgeReply(self._shape(issue))

    def _merge_requests(self, asked: ForgeRequest) -> ForgeReply:
        wanted = asked.query.get("source_branch")
        found = [issue for issue in self.world.pulls if issue.pull and issue.pull.branch == wanted]
        return ForgeReply([self._shape(issue) for issue in reversed(found)])

    def _open_merge_request(self, asked: ForgeRequest) -> ForgeReply:
        body, branches = asked.body, self.branches()
        self._need(asked)
        source, target = body["source_branch"], body["target_branch"]
        if source not in branches or target not in branches:
            raise Refused(400, "source_branch or target_branch does not exist")
        if any(p.state == "open" and p.pull and p.pull.branch == source for p in self.world.pulls):
            raise Refused(409, "Another open merge request already exists for this source branch")
        title, text = body["title"], body.get("description", "")
        self._obey(text)
        draft = title.startswith("Draft: ")
        number = self.world.open_pull(asked.login, title, text, source, target, draft)
        return ForgeReply(self._shape(self.world.issues[number]), 201)

    def _statuses(self, asked: ForgeRequest) -> ForgeReply:
        sha = asked.path["sha"]
        return ForgeReply(
            [
                {
                    "id": each.id,
                    "sha": sha,
                    "name": each.name,
                    "status": "failed" if each.state == "failure" else each.state,
                    "allow_failure": False,
                    "description": f"{each.name} says",
                    "target_url": f"https://gitlab.example.com/jobs/{each.id}",
                }
                for each in self.world.checks.get(sha, [])
            ]
        )

    def _trace(self, asked: ForgeRequest) -> ForgeReply:
        log = self.world.find_log(asked.number)
        if log is None:
            raise Refused(404, "404 Not Found")
        return ForgeReply(log)

    # ── notes and emoji ──

    def _notes(self, asked: ForgeRequest) -> ForgeReply:
        issue = self._find(asked)
        at_lines = [each for review in issue.reviews for each in review.lines]
        said = sorted([*issue.comments, *at_lines], key=lambda each: each.id)
        notes = [self._note_shape(each) for each in said]
        # GitLab writes some itself.
        system = [
            {**self._note_shape(Comment(1, who, f"assigned to @{who}", issue.when)), "system": True}
            for who in issue.assignees
        ]
        return ForgeReply([*system, *notes])

    def _note(self, asked: ForgeRequest) -> ForgeReply:
        issue, text = self._find(asked), asked.body["body"]
        self._obey(text)
        return ForgeReply(
            self._note_shape(self.world.comment(issue.number, asked.login, text)), 201
        )

    def _obey(self, text: str) -> None:
        """GitLab deletes carriage returns before it looks for commands."""
        self.commands += COMMAND.findall(text.replace("\r", ""))

    def _note_shape(self, comment: Comment) -> dict[str, Any]:
        return {
            "id": comment.id,
            "type": "DiffNote" if comment.path else None,
            **({"position": _position(comment)} if comment.path else {}),
            "noteable_id": 5000,
            "noteable_type": "Issue",
            "noteable_iid": None,
            "project_id": 1,
            "resolvable": False,
            "confidential": False,
            "internal": False,
            "body": comment.body,
            "author": self._person(comment.author),
            "system": False,
            "created_at": comment.when,
            "updated_at": comment.when,
        }

    def _emojis(self, asked: ForgeRequest) -> ForgeReply:
        return ForgeReply([self._emoji(each) for each in self._find(asked).reactions])

    def _award(self, asked: ForgeRequest) -> ForgeReply:
        issue = self._find(asked)
        made, is_new = self.world.react(issue.number, asked.login, asked.body["name"])
        if not is_new:
            raise Refused(404, "404 Award Emoji Name has already been taken Not Found")
        return ForgeReply(self._emoji(made), 201)

    def _emoji(self, reaction: Reaction) -> dict[str, Any]:
        return {
            "id": reaction.id,
            "name": EMOJI.get(reaction.content, reaction.content),
            "user": self._person(reaction.author),
            "created_at": reaction.when,
        }


def _position(comment: Comment) -> dict[str, Any]:
    return {
        "position_type": "text",
        "new_path": comment.path,
        "old_path": comment.path,
        "new_line": comment.line,
        "old_line": None,
    }
