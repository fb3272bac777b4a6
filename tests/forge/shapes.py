"""The JSON of GitHub's objects: what its description requires, from what the fake knows."""

from typing import Any

REPOSITORY_URLS = [
    "archive",
    "assignees",
    "blobs",
    "branches",
    "collaborators",
    "comments",
    "commits",
    "compare",
    "contents",
    "contributors",
    "deployments",
    "downloads",
    "events",
    "forks",
    "git_commits",
    "git_refs",
    "git_tags",
    "hooks",
    "issue_comment",
    "issue_events",
    "issues",
    "keys",
    "labels",
    "languages",
    "merges",
    "milestones",
    "notifications",
    "pulls",
    "releases",
    "stargazers",
    "statuses",
    "subscribers",
    "subscription",
    "tags",
    "teams",
    "trees",
]
USER_URLS = [
    "avatar",
    "events",
    "followers",
    "following",
    "gists",
    "html",
    "organizations",
    "received_events",
    "repos",
    "starred",
    "subscriptions",
]
LINKS = [
    "comments",
    "commits",
    "statuses",
    "html",
    "issue",
    "review_comments",
    "review_comment",
    "self",
]


def user(base: str, login: str, id: int) -> dict[str, Any]:
    return {
        "login": login,
        "id": id,
        "node_id": f"U_{id}",
        "gravatar_id": "",
        "site_admin": False,
        "type": "User",
        "url": f"{base}/users/{login}",
        **{f"{name}_url": f"{base}/users/{login}/{name}" for name in USER_URLS},
    }


def whole_user(short: dict[str, Any], when: str) -> dict[str, Any]:
    """As `GET /user` shows the owner of a token of little scope."""
    names = ["bio", "blog", "company", "email", "hireable", "location", "name"]
    numbers = ["followers", "following", "public_gists", "public_repos"]
    return {
        **short,
        **dict.fromkeys(names),
        **dict.fromkeys(numbers, 0),
        "user_view_type": "public",
        "created_at": when,
        "updated_at": when,
    }


def repository(base: str, owner: dict[str, Any], name: str, when: str) -> dict[str, Any]:
    full = f"{owner['login']}/{name}"
    url = f"{base}/repos/{full}"
    numbers = [
        "forks",
        "forks_count",
        "open_issues",
        "open_issues_count",
        "size",
        "stargazers_count",
        "watchers",
        "watchers_count",
        "network_count",
        "subscribers_count",
    ]
    flags = [
        "fork",
        "private",
        "has_issues",
        "has_projects",
        "has_wiki",
        "has_pages",
        "has_discussions",
        "has_downloads",
        "archived",
        "disabled",
    ]
    return {
        "id": 1,
        "node_id": "R_1",
        "name": name,
        "full_name": full,
        "owner": owner,
        "url": url,
        "html_url": f"{base}/{full}",
        "clone_url": f"{base}/{full}.git",
        "git_url": f"{base}/{full}.git",
        "ssh_url": f"git@localhost:{full}.git",
        "svn_url": f"{base}/{full}",
        "default_branch": "main",
        **{f"{each}_url": f"{url}/{each}" for each in REPOSITORY_URLS},
        **dict.fromkeys(numbers, 0),
        **dict.fromkeys(flags, False),
        **dict.fromkeys(["description", "homepage", "language", "mirror_url", "license"]),
        **dict.fromkeys(["pushed_at", "created_at", "updated_at"], when),
    }


def label(url: str, name: str) -> dict[str, Any]:
    return {
        "id": 1 + sum(name.encode()),
        "node_id": f"L_{name}",
        "url": f"{url}/labels/{name}",
        "name": name,
        "description": "",
        "color": "ededed",
        "default": False,
    }


def pull_links(url: str) -> dict[str, Any]:
    return {name: {"href": f"{url}/{name}"} for name in LINKS}
