"""What the fake answers: GitHub's routes on a `World`. Knows nothing of HTTP's headers."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.forge import shapes
from tests.forge.world import Check, Comment, Issue, Reaction, Review, World

REPO = r"/repos/(?P<repo>[^/]+/[^/]+)"
ISSUE = rf"{REPO}/issues/(?P<number>\d+)"
PULL = rf"{REPO}/pulls/(?P<number>\d+)"
PERMISSIONS = {"admin": "admin", "write": "write", "read": "read"}


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class ForgeRequest:
    """One request, taken apart. `login`: whose token it has."""

    login: str
    query: dict[str, str]
    body: dict[str, Any]
    path: dict[str, str] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return int(self.path["number"])


@dataclass(frozen=True)
class ForgeReply:
    """One answer; a list is cut into pages by the server."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Routes:
    """The routes of one world. `branches` says which branches its git has, with their commits."""

    def __init__(self, world: World, base: str, branches: Callable[[], dict[str, str]]) -> None:
        self.world = world
        self.base = base
        self.branches = branches
        self.is_conflicting: Callable[[str, str], bool] = lambda base, branch: False
        self._table: tuple[tuple[str, str, Callable[[ForgeRequest], ForgeReply]], ...] = (
            ("GET", r"/user", self._user),
            ("GET", REPO, self._repository),
            ("GET", rf"{REPO}/collaborators/(?P<who>[^/]+)/permission", self._permission),
            ("GET", rf"{REPO}/issues", self._issues),
            ("POST", rf"{REPO}/issues", self._open_issue),
            ("GET", ISSUE, self._get_issue),
            ("PATCH", ISSUE, self._edit_issue),
            ("POST", rf"{ISSUE}/assignees", self._assign),
            ("GET", rf"{ISSUE}/comments", self._comments),
            ("POST", rf"{ISSUE}/comments", self._comment),
            ("POST", rf"{ISSUE}/labels", self._label),
            ("GET", rf"{ISSUE}/reactions", self._reactions),
            ("POST", rf"{ISSUE}/reactions", self._react),
            ("GET", rf"{REPO}/pulls", self._pulls),
            ("POST", rf"{REPO}/pulls", self._open_pull),
            ("GET", PULL, self._get_pull),
            ("GET", rf"{PULL}/reviews", self._reviews),
            ("GET", rf"{PULL}/comments", self._line_comments),
            ("GET", rf"{REPO}/commits/(?P<sha>[0-9a-f]+)/check-runs", self._check_runs),
            ("GET", rf"{REPO}/commits/(?P<sha>[0-9a-f]+)/status", self._statuses),
            ("GET", rf"{REPO}/actions/jobs/(?P<number>\d+)/logs", self._log),
        )

    def answer(self, login: str, method: str, target: str, body: bytes) -> ForgeReply:
        parts = urlsplit(target)
        for verb, pattern, route in self._table:
            found = re.fullmatch(pattern, parts.path)
            if verb == method and found:
                if found.groupdict().get("repo", self.world.repository) != self.world.repository:
                    raise Refused(404, "Not Found")
                query = dict(parse_qsl(parts.query))
                with self.world.lock:
                    parsed = json.loads(body) if body else {}
                    return route(ForgeRequest(login, query, parsed, found.groupdict()))
        raise Refused(404, "Not Found")

    # ── people and the repository ──

    def _user(self, asked: ForgeRequest) -> ForgeReply:
        return ForgeReply(shapes.whole_user(self._person(asked.login), "2026-01-01T00:00:00Z"))

    def _repository(self, asked: ForgeRequest) -> ForgeReply:
        return ForgeReply(self._repo())

    def _permission(self, asked: ForgeRequest) -> ForgeReply:
        self._need_write(asked)  # of others only who may push is told
        who = asked.path["who"]
        if who not in self.world.people:
            raise Refused(404, f"{who} is not a user")
        permission = PERMISSIONS.get(self.world.people[who], "none")
        return ForgeReply(
            {"permission": permission, "role_name": permission, "user": self._collaborator(who)}
        )

    def _need_write(self, asked: ForgeRequest) -> None:
        if not self.world.can_write(asked.login):
            raise Refused(403, "Must have push access to view collaborator permission.")

    def _person(self, login: str) -> dict[str, Any]:
        return shapes.user(self.base, login, self.world.id_of(login))

    def _collaborator(self, login: str) -> dict[str, Any]:
        return {**self._person(login), "role_name": self.world.people[login]}

    def _repo(self) -> dict[str, Any]:
        owner, _, name = self.world.repository.partition("/")
        person = shapes.user(self.base, owner, 9000)
        return shapes.repository(self.base, person, name, "2026-01-01T00:00:00Z")

    @property
    def _url(self) -> str:
        return f"{self.base}/repos/{self.world.repository}"

    # ── issues ──

    def _issues(self, asked: ForgeRequest) -> ForgeReply:
        state, labels = asked.query.get("state", "open"), asked.query.get("labels", "")
        wanted = set(filter(None, labels.split(",")))
        issues = [
            self._issue(issue)
            for issue in sorted(self.world.issues.values(), key=lambda each: -each.number)
            if state in (issue.state, "all") and wanted <= set(issue.labels)
            if asked.query.get("creator", issue.author) == issue.author
        ]
        return ForgeReply(issues)

    def _find(self, asked: ForgeRequest) -> Issue:
        issue = self.world.issues.get(asked.number)
        if issue is None:
            raise Refused(404, "Not Found")
        return issue

    def _get_issue(self, asked: ForgeRequest) -> ForgeReply:
        return ForgeReply(self._issue(self._find(asked)))

    def _open_issue(self, asked: ForgeRequest) -> ForgeReply:
        title = asked.body.get("title")
        if not title:
            raise Refused(422, "Validation Failed")
        number = self.world.open_issue(asked.login, str(title), asked.body.get("body") or "")
        if self.world.can_write(asked.login):
            self.world.issues[number].labels = list(asked.body.get("labels", []))
        return ForgeReply(self._issue(self.world.issues[number]), 201)

    def _edit_issue(self, asked: ForgeRequest) -> ForgeReply:
        issue = self._find(asked)
        if asked.login != issue.author:
            self._need_write(asked)
        kept = {name: asked.body[name] for name in ("title", "body", "state") if name in asked.body}
        self.world.edit(issue.number, **kept)
        return ForgeReply(self._issue(issue))

    def _assign(self, asked: ForgeRequest) -> ForgeReply:
        issue = self._find(asked)
        if self.world.can_write(asked.login):  # else GitHub ignores it without a word
            issue.assignees.extend(
                who
                for who in asked.body.get("assignees", [])
                if self.world.can_write(who) and who not in issue.assignees
            )
            self.world.touch(issue.number)
        return ForgeReply(self._issue(issue), 201)

    def _label(self, asked: ForgeRequest) -> ForgeReply:
        issue = self._find(asked)
        self._need_write(asked)
        issue.labels.extend(name for name in asked.body["labels"] if name not in issue.labels)
        self.world.touch(issue.number)
        return ForgeReply([shapes.label(self._url, name) for name in issue.labels])

    def _comments(self, asked: ForgeRequest) -> ForgeReply:
        issue = self._find(asked)
        return ForgeReply([self._comment_shape(issue, each) for each in issue.comments])

    def _comment(self, asked: ForgeRequest) -> ForgeReply:
        issue, text = self._find(asked), asked.body.get("body", "")
        if not text or len(text) > 65536:
            raise Refused(422, "body is too long (maximum is 65536 characters)")
        return ForgeReply(
            self._comment_shape(issue, self.world.comment(issue.number, asked.login, text)), 201
        )

    def _reactions(self, asked: ForgeRequest) -> ForgeReply:
        issue = self._find(asked)
        wanted = asked.query.get("content")
        return ForgeReply(
            [self._reaction(e) for e in issue.reactions if wanted is None or e.content == wanted]
        )

    def _react(self, asked: ForgeRequest) -> ForgeReply:
        issue = self._find(asked)
        made, is_new = self.world.react(issue.number, asked.login, asked.body["content"])
        return ForgeReply(self._reaction(made), 201 if is_new else 200)

    def _issue(self, issue: Issue) -> dict[str, Any]:
        url = f"{self._url}/issues/{issue.number}"
        assignees = [self._person(who) for who in issue.assignees]
        shape = {
            "id": 5000 + issue.number,
            "node_id": f"I_{issue.number}",
            "number": issue.number,
            "url": url,
            "repository_url": self._url,
            "html_url": f"{self.base}/{self.world.repository}/issues/{issue.number}",
            **{f"{name}_url": f"{url}/{name}" for name in ("comments", "events", "labels")},
            "labels_url": f"{url}/labels{{/name}}",
            "state": issue.state,
            "state_reason": None,
            "title": issue.title,
            "body": issue.body,
            "user": self._person(issue.author),
            "labels": [shapes.label(self._url, name) for name in issue.labels],
            "assignee": assignees[0] if assignees else None,
            "assignees": assignees,
            "milestone": None,
            "locked": False,
            "comments": len(issue.comments),
            "created_at": issue.when,
            "updated_at": issue.updated,
            "closed_at": None if issue.state == "open" else issue.updated,
            "author_association": "NONE",
        }
        if issue.pull:
            link = f"{self._url}/pulls/{issue.number}"
            shape["pull_request"] = dict.fromkeys(
                ("url", "html_url", "diff_url", "patch_url"), link
            )
        return shape

    def _comment_shape(self, issue: Issue, comment: Comment) -> dict[str, Any]:
        url = f"{self._url}/issues/comments/{comment.id}"
        return {
            "id": comment.id,
            "node_id": f"C_{comment.id}",
            "url": url,
            "html_url": url,
            "issue_url": f"{self._url}/issues/{issue.number}",
            "user": self._person(comment.author),
            "body": comment.body,
            "created_at": comment.when,
            "updated_at": comment.when,
            "author_association": "NONE",
        }

    def _reaction(self, reaction: Reaction) -> dict[str, Any]:
        return {
            "id": reaction.id,
            "node_id": f"X_{reaction.id}",
            "user": self._person(reaction.author),
            "content": reaction.content,
            "created_at": reaction.when,
        }

    # ── pulls ──

    def _pulls(self, asked: ForgeRequest) -> ForgeReply:
        state, head = asked.query.get("state", "open"), asked.query.get("head")
        owner = self.world.repository.partition("/")[0]
        pulls = [
            self._pull(issue)
            for issue in sorted(self.world.issues.values(), key=lambda each: -each.number)
            if issue.pull and state in (issue.state, "all")
            if head is None or head == f"{owner}:{issue.pull.branch}"
        ]
        return ForgeReply(pulls)

    def _get_pull(self, asked: ForgeRequest) -> ForgeReply:
        issue = self._find(asked)
        if issue.pull is None:
            raise Refused(404, "Not Found")
        numbers = [
            "additions",
            "changed_files",
            "comments",
            "commits",
            "deletions",
            "review_comments",
        ]
        more = {
            **dict.fromkeys(numbers, 0),
            "mergeable": not self.is_conflicting(issue.pull.base, issue.pull.branch),
            "mergeable_state": "unknown",
            "merged": issue.pull.merged,
            "maintainer_can_modify": False,
            "merged_by": None,
        }
        return ForgeReply({**self._pull(issue), **more})

    def _reviews(self, asked: ForgeRequest) -> ForgeReply:
        issue = self._find(asked)
        return ForgeReply([self._review(issue, each) for each in issue.reviews])

    def _review(self, issue: Issue, review: Review) -> dict[str, Any]:
        return {
            **self._said(issue, review.id, review.author, review.body),
            "state": review.state,
            "commit_id": "0" * 40,
            "submitted_at": review.when,
        }

    def _said(self, issue: Issue, id: int, author: str, body: str) -> dict[str, Any]:
        url = f"{self._url}/pulls/{issue.number}"
        return {
            "id": id,
            "node_id": f"R_{id}",
            "user": self._person(author),
            "body": body,
            "html_url": f"{url}#{id}",
            "pull_request_url": url,
            "_links": {name: {"href": url} for name in ("self", "html", "pull_request")},
            "author_association": "NONE",
        }

    def _line_comments(self, asked: ForgeRequest) -> ForgeReply:
        issue = self._find(asked)
        return ForgeReply(
            [
                {
                    **self._said(issue, each.id, each.author, each.body),
                    "url": f"{self._url}/pulls/comments/{each.id}",
                    "pull_request_review_id": review.id,
                    "diff_hunk": "@@",
                    "path": each.path,
                    "line": each.line,
                    "commit_id": "0" * 40,
                    "original_commit_id": "0" * 40,
                    "created_at": each.when,
                    "updated_at": each.when,
                }
                for review in issue.reviews
                for each in review.lines
            ]
        )

    # ── checks ──

    def _check_runs(self, asked: ForgeRequest) -> ForgeReply:
        sha = asked.path["sha"]
        runs = [
            self._check_run(sha, each)
            for each in self.world.checks.get(sha, [])
            if not each.is_status
        ]
        return ForgeReply({"total_count": len(runs), "check_runs": runs})

    def _check_run(self, sha: str, check: Check) -> dict[str, Any]:
        url = f"{self._url}/check-runs/{check.id}"
        is_over = check.state != "running"
        owner = self._repo()["owner"]
        app = {
            "id": 1,
            "node_id": "A_1",
            "slug": "github-actions",
            "owner": owner,
            "name": "GitHub Actions",
            "description": "",
            "external_url": url,
            "html_url": url,
            "created_at": check.when,
            "updated_at": check.when,
            "permissions": {},
            "events": [],
        }
        output = {"title": f"{check.name} says", "summary": None, "text": None}
        return {
            "id": check.id,
            "node_id": f"K_{check.id}",
            "head_sha": sha,
            "name": check.name,
            "url": url,
            "html_url": url,
            "details_url": url,
            "external_id": "",
            "status": "completed" if is_over else "in_progress",
            "conclusion": check.state if is_over else None,
            "started_at": check.when,
            "completed_at": check.when if is_over else None,
            "check_suite": {"id": 1},
            "output": {**output, "annotations_count": 0, "annotations_url": url},
            "app": app,
            "pull_requests": [],
        }

    def _statuses(self, asked: ForgeRequest) -> ForgeReply:
        sha = asked.path["sha"]
        url = f"{self._url}/commits/{sha}"
        statuses = [
            {
                "id": each.id,
                "node_id": f"S_{each.id}",
                "state": "pending" if each.state == "running" else each.state,
                "context": each.name,
                "description": f"{each.name} says",
                "target_url": url,
                "avatar_url": url,
                "url": url,
                "created_at": each.when,
                "updated_at": each.when,
            }
            for each in self.world.checks.get(sha, [])
            if each.is_status
        ]
        return ForgeReply(
            {
                "state": "pending",
                "sha": sha,
                "total_count": len(statuses),
                "statuses": statuses,
                "repository": self._repo(),
                "commit_url": url,
                "url": f"{url}/status",
            }
        )

    def _log(self, asked: ForgeRequest) -> ForgeReply:
        """As on GitHub: kept elsewhere."""
        if self.world.find_log(asked.number) is None:
            raise Refused(404, "Not Found")
        return ForgeReply(None, 302, {"Location": f"{self.base}/elsewhere/{asked.number}"})

    def _open_pull(self, asked: ForgeRequest) -> ForgeReply:
        body, branches = asked.body, self.branches()
        if not self.world.can_write(asked.login):
            raise Refused(404, "Not Found")
        head, base = body["head"], body["base"]
        if head not in branches or base not in branches or branches[head] == branches[base]:
            raise Refused(422, "Validation Failed: no such head, or no commits between")
        if any(p.state == "open" and p.pull and p.pull.branch == head for p in self.world.pulls):
            raise Refused(422, f"A pull request already exists for {head}.")
        number = self.world.open_pull(
            asked.login, body["title"], body.get("body") or "", head, base, body.get("draft", False)
        )
        created = self._get_pull(ForgeRequest(asked.login, {}, {}, {"number": str(number)}))
        return ForgeReply(created.body, 201)

    def _pull(self, issue: Issue) -> dict[str, Any]:
        assert issue.pull is not None
        url = f"{self._url}/pulls/{issue.number}"
        branches = self.branches()

        def side(branch: str) -> dict[str, Any]:
            repo = self._repo()
            owner = repo["owner"]["login"]
            return {
                "label": f"{owner}:{branch}",
                "ref": branch,
                "repo": repo,
                "sha": branches.get(branch, "0" * 40),
                "user": repo["owner"],
            }

        urls = [
            "comments",
            "commits",
            "review_comment",
            "review_comments",
            "statuses",
            "diff",
            "patch",
        ]
        return {
            **{name: value for name, value in self._issue(issue).items() if name != "pull_request"},
            "url": url,
            "issue_url": f"{self._url}/issues/{issue.number}",
            "html_url": f"{self.base}/{self.world.repository}/pull/{issue.number}",
            **{f"{name}_url": f"{url}/{name}" for name in urls},
            "_links": shapes.pull_links(url),
            "head": side(issue.pull.branch),
            "base": side(issue.pull.base),
            "draft": issue.pull.draft,
            "merge_commit_sha": None,
            "merged_at": issue.updated if issue.pull.merged else None,
            "auto_merge": None,
        }
