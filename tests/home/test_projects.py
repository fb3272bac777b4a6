"""Project files: what they may say, and names that never become paths."""

from pathlib import Path

import pytest

from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.home.projects import check_project_document, list_projects, load_project
from bullpen.home.yamlfile import read
from bullpen.model.project import check_repository
from tests.hostile_names import HOSTILE


@pytest.fixture
def pen(tmp_path: Path) -> Home:
    (tmp_path / "home" / "projects").mkdir(parents=True)
    return Home(tmp_path / "home")


def write(pen: Home, name: str, text: str) -> Path:
    path = pen.projects / f"{name}.yaml"
    path.write_text(text)
    return path


def test_t1_project_is_loaded(pen: Home) -> None:
    write(pen, "shop", "name: shop\nprompt: A shop.\nrepo: https://example.com/shop.git\n")
    project = load_project(pen, "shop")
    assert (project.name, project.prompt) == ("shop", "A shop.")
    assert (project.repo, project.workdir) == ("https://example.com/shop.git", None)
    write(pen, "blog", "name: blog\nprompt: A blog.\nworkdir: ~/blog\n")
    assert load_project(pen, "blog").workdir == "~/blog"
    (pen.projects / "clone").mkdir()
    (pen.projects / "clone.yaml").mkdir()
    assert list_projects(pen) == ["blog", "shop"]


@pytest.mark.parametrize(
    ("text", "line", "key", "message"),
    [
        ("name: shop\n", 1, "prompt", "is required"),
        ("name: shop\nprompt: ' '\n", 2, "prompt", "is empty"),
        ("prompt: a\n", 1, "name", "is required"),
        ("name: blog\nprompt: a\n", 1, "name", '"blog" is not the name of the file · name: shop'),
        (
            "name: shop\nprompt: a\nrepo: /a\nworkdir: /b\n",
            *(4, "workdir", "only one of repo and workdir"),
        ),
        ("name: shop\nprompt: a\nworkdir: b\n", 3, "workdir", "is no path from / or ~/"),
        ("name: shop\nprompt: a\nworkdir: /b/../..\n", 3, "workdir", "is no path from / or ~/"),
        ("name: shop\nprompt: a\nrep: /b\n", 3, "rep", "unknown key · did you mean repo?"),
        ("", 1, "", "the file is empty"),
    ],
)
def test_mistakes_are_told_with_line_and_key(
    pen: Home, text: str, line: int, key: str, message: str
) -> None:
    document = read(write(pen, "shop", text))
    found = check_project_document(document)[1]
    assert [(p.line, p.key, p.message) for p in found] == [(line, key, message)]
    with pytest.raises(BullpenError, match="project shop has 1 error"):
        load_project(pen, "shop")


@pytest.mark.parametrize("name", HOSTILE)
def test_t1_name_that_is_none_never_becomes_a_path(pen: Home, name: str) -> None:
    (pen.root / "amy.yaml").write_text("name: amy\nprompt: a\n")
    with pytest.raises(BullpenError) as caught:
        load_project(pen, name)
    assert caught.value.kind is Kind.INVALID


def test_unknown_project_is_not_found(pen: Home) -> None:
    write(pen, "shop", "name: shop\nprompt: a\n")
    with pytest.raises(
        BullpenError, match=r"no project called shp · did you mean shop\?"
    ) as caught:
        load_project(pen, "shp")
    assert caught.value.kind is Kind.NOT_FOUND


@pytest.mark.parametrize(
    "repo",
    [
        *("/srv/shop.git", "~/code/shop", "https://example.com/a/shop.git", "git@example.com:a/b"),
        *("ssh://git@example.com:22/a/b", "example.com:a/b.git", "file:///srv/shop.git"),
    ],
)
def test_repositories_that_git_may_be_given(repo: str) -> None:
    assert check_repository(repo) == repo


@pytest.mark.parametrize(
    "repo",
    [
        *("ext::sh -c evil", "ext::sh", "fd::17/foo", "--upload-pack=evil", "shop", "./shop"),
        *("../shop", "/a/../b", "https://", "javascript://x/y", "ext://x/y", "a b:c", "host:-x"),
        *(
            "-oProxyCommand=x:y",
            "ssh://-oProxyCommand=x/y",
            "ssh://a@-x/y",
            "/a\nb",
            "transport::/x",
        ),
    ],
)
def test_repositories_that_git_must_not_be_given(repo: str) -> None:
    with pytest.raises(ValueError, match="is no repository"):
        check_repository(repo)


@pytest.mark.parametrize(
    "repo", ["https://me:secret@example.com/a", "https://secret@example.com/a", "ssh://a:b@c/d"]
)
def test_credential_in_an_address_is_refused_and_not_repeated(pen: Home, repo: str) -> None:
    write(pen, "shop", f"name: shop\nprompt: a\nrepo: {repo}\n")
    with pytest.raises(BullpenError, match="holds a credential") as caught:
        load_project(pen, "shop")
    assert "secret" not in caught.value.message
