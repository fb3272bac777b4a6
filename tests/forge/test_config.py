"""The file of a director of GitHub: what is refused, and with which words (D2)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bullpen.directors.config import check_director_document, load_director
from bullpen.directors.forge import texts
from bullpen.directors.forge.config import (
    EXAMPLE,
    ForgeConfig,
    ForgeSettings,
    GitLabConfig,
    Prompts,
    Reactions,
)
from bullpen.directors.forge.director import ForgeDirector, GitHubDirector, GitLabDirector
from bullpen.directors.loop import Loop
from bullpen.errors import BullpenError
from bullpen.home import credentials
from bullpen.home.paths import Home
from bullpen.home.yamlfile import read
from tests.directors.sample import CopyRules, memory_file

HOSTS = {GitHubDirector: "api.github.com", GitLabDirector: "gitlab.com"}
RIGHT = "type: github\nrepo: acme/shop\nrole: coder\n"


def problems(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "robo.yaml"
    path.write_text(text)
    _, found = check_director_document(read(path), None)
    return [f"{each.line}: {each.key}: {each.message}" for each in found]


def test_d2_a_small_file_is_enough(tmp_path: Path) -> None:
    assert problems(tmp_path, RIGHT) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("repo: shop\n", "owner/name"),
        ("repo: ../..\n", "owner/name"),
        ("repo: acme/..\n", "owner/name"),
        ("prompts: {work: 'Do {{.Titel}}'}\n", "no placeholder {{.Titel}}"),
        ("prompts: {review: 'Do {{ Body }} {{.Secrets}}'}\n", "no placeholder {{.Secrets}}"),
        ("settings: {max_review: 3}\n", "max_review"),
        ("settings: {max_reviews: -1}\n", "max_reviews"),
        ("settings: {branch_prefix: '../x'}\n", "no name that git allows"),
        ("server: http://example.com\n", "no address that a token may be sent to"),
        ("server: https://user@example.com\n", "no address that a token may be sent to"),
        ("reactions: {ci_red: {}}\n", "ci_red"),
        ("reactions: {ci_failed: {retry: 1}}\n", "reactions.ci_failed.retry"),
        ("reactions: {conflict: {retries: 21}}\n", "reactions.conflict.retries"),
        ("reactions: {conflict: {after: 1d}}\n", "reactions.conflict.after"),
        ("reactions: {stale: {after: 7}}\n", "no duration"),
        ("reactions: {changes_requested: {escalate: mail}}\n", "inbox, comment"),
        (
            "reactions: {stale: {}}\nsettings: {require_approval: false}\n",
            "reactions need settings.require_approval",
        ),
        ("poll_interval: 30\n", "no duration"),
        ("webhook: true\n", "webhook needs port"),
        ("webhook: secret\nport: 9151\n", "webhook"),
        ("polling: 30s\n", "polling"),
    ],
)
def test_d2_mistakes_are_named_with_their_key(tmp_path: Path, more: str, said: str) -> None:
    key = more.partition(":")[0]
    kept = "".join(line for line in RIGHT.splitlines(True) if not line.startswith(f"{key}:"))
    [problem] = problems(tmp_path, kept + more)
    assert said in problem


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_d2_a_webhook_needs_a_secret_that_nobody_else_may_read(kind: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    config = ForgeConfig(type=kind, repo="acme/shop", role="coder", webhook=True, port=9151)
    name = f"{kind}-webhook-secret"
    [(key, message)] = config.problems(home, "robo")
    assert key == "webhook" and f"bullpen auth set {name} < FILE" in message
    credentials.store(home, name, b"not-a-real-secret")
    assert list(config.problems(home, "robo")) == []
    (home.credentials / name).chmod(0o644)
    [(key, message)] = config.problems(home, "robo")
    assert key == "webhook" and "open to others" in message
    closed = config.model_copy(update={"webhook": False})
    assert list(closed.problems(home, "robo")) == []


def test_d2_somebody_has_to_work(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, "type: github\nrepo: acme/shop\n")
    assert "role: NAME, or agent: NAME" in problem


@pytest.mark.parametrize("more", ["role: coder", "labels: {team: web}"])
def test_d2_an_agent_is_named_alone(tmp_path: Path, more: str) -> None:
    """The hub would refuse each of its tasks."""
    named = "type: github\nrepo: acme/shop\nagent: amy\n"
    assert problems(tmp_path, named) == []
    [problem] = problems(tmp_path, f"{named}{more}\n")
    assert "no role and no labels beside it" in problem


@pytest.mark.parametrize("kind", [GitHubDirector, GitLabDirector])
def test_d2_the_starter_is_right_but_for_its_repository_and_names_every_key(
    kind: type[ForgeDirector], tmp_path: Path
) -> None:
    [problem] = problems(tmp_path, kind.starter)
    line = kind.starter.splitlines().index(f"repo: {EXAMPLE}        # yours, on {HOSTS[kind]}") + 1
    assert problem.startswith(f"{line}: repo: {EXAMPLE} is the example · ")
    assert problems(tmp_path, kind.starter.replace(EXAMPLE, "acme/shop")) == []
    lines = [line.removeprefix("# ") for line in kind.starter.splitlines()[2:]]
    data: dict[str, Any] = YAML(typ="safe").load("\n".join(lines))
    common = {"name", "port", "log_level", "discovery"}
    assert {*data, *common, "agent"} == set(ForgeConfig.model_fields)
    assert set(data["settings"]) == set(ForgeSettings.model_fields)
    assert set(data["prompts"]) == set(Prompts.model_fields)
    assert set(data["reactions"]) == set(Reactions.model_fields)


def test_d2_a_director_of_the_example_is_not_started(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.directors.mkdir()
    (home.directors / "robo.yaml").write_text(GitHubDirector.starter)
    with pytest.raises(BullpenError, match=r"robo\.yaml:4 +repo +owner/name is the example"):
        load_director(home, "robo")


def test_d2_a_director_notices_that_its_file_has_changed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.directors.mkdir()
    file = home.directors / "robo.yaml"
    file.write_text(RIGHT)
    kind, config = load_director(home, "robo")
    director = kind(home, "robo", config)
    assert isinstance(director, ForgeDirector)
    for text, is_changed in (
        (f"# why\n{RIGHT}log_level: debug\n", False),  # that counts at once
        (f"{RIGHT}poll_interval: 5s\n", True),
        (f"{RIGHT}poll_interval: [\n", True),
        (RIGHT, False),
    ):
        file.write_text(text)
        assert director._is_file_changed() == is_changed, text


def test_d1_prompts_speak_as_the_forge_does() -> None:
    github, gitlab = (
        (kind(type="x", repo="acme/shop", role="coder"), noun, other)
        for kind, noun, other in (
            (ForgeConfig, "pull request", "merge request"),
            (GitLabConfig, "merge request", "pull request"),
        )
    )
    for config, noun, other in (github, gitlab):
        for text in (config.prompts.work, texts.decisions(config.noun)["deny"]):
            assert noun in text and other not in text
    assert (
        "merge request"
        in GitLabConfig(
            type="gitlab", repo="a/b", role="coder", prompts={"review": "Look"}
        ).prompts.work
    )


@pytest.mark.slow
def test_d2_a_new_token_makes_the_director_look_at_once(tmp_path: Path) -> None:
    home = Home(tmp_path)
    config = ForgeConfig(type="github", repo="acme/shop", role="coder")
    director = GitHubDirector(home, "robo", config)
    rules = CopyRules(tmp_path)
    director.loop = Loop(rules, memory_file(tmp_path, rules), tell=print)  # type: ignore[assignment]

    async def set_token() -> None:
        watching = asyncio.create_task(director._watch_token())
        await asyncio.sleep(0)  # it has looked once
        credentials.store(home, "github-token", b"not-a-real-token")
        async with asyncio.timeout(30):
            await director.loop._woken.wait()
        watching.cancel()

    asyncio.run(set_token())
