from pathlib import Path

import pytest

from bullpen.errors import BullpenError, Kind
from bullpen.home.roles import (
    check_role,
    find_role,
    list_roles,
    load_role,
    resolve_root_dir,
    summaries,
)
from bullpen.model.role import Role


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("roles", "pods/roles"):
        (tmp_path / "home" / name).mkdir(parents=True)
    return tmp_path / "home"


def write(directory: Path, name: str, text: str = "") -> Path:
    path = directory / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text or f"name: {path.stem}\ndescription: from {directory.name}\n")
    return path


def write_directory_role(directory: Path, name: str) -> Path:
    (directory / name).mkdir()
    (directory / name / "role.yaml").write_text(f"name: {name}\n")
    (directory / name / "CLAUDE.md").write_text("# Persona\n")
    return directory / name / "role.yaml"


def test_r1_a_role_is_a_file(home: Path) -> None:
    path = write(home / "roles", "coder")
    file = find_role("coder", home / "roles")
    assert (file.path, file.persona) == (path, None)
    assert load_role(file).description == "from roles"


def test_r9_a_role_may_be_a_directory_with_a_persona(home: Path) -> None:
    path = write_directory_role(home / "roles", "boss")
    file = find_role("boss", home / "roles")
    assert (file.path, file.persona) == (path, path.with_name("CLAUDE.md"))
    assert load_role(file).name == "boss"


def test_r9_a_persona_without_a_role_says_what_is_missing(home: Path) -> None:
    write_directory_role(home / "roles", "boss").unlink()
    with pytest.raises(BullpenError, match="a persona needs a role · write there `name: boss`"):
        load_role(find_role("boss", home / "roles"))


def test_r1_file_and_directory_of_one_name_are_an_error(home: Path) -> None:
    write(home / "roles", "boss")
    write_directory_role(home / "roles", "boss")
    with pytest.raises(BullpenError, match="boss is there twice") as caught:
        find_role("boss", home / "roles")
    assert caught.value.kind is Kind.CONFLICT
    (file,) = list_roles(home / "roles")
    (problem,) = check_role(file)[1]
    assert "there is also boss/role.yaml" in problem.message
    assert summaries(home / "roles")[0].is_broken


def test_r2_the_name_must_be_the_files(home: Path) -> None:
    write(home / "roles", "coder", "modle: x\nname: codr\n")
    (file,) = list_roles(home / "roles")
    role, problems = check_role(file)
    assert role is None
    assert [(p.line, p.key) for p in problems] == [(1, "modle"), (2, "name")]
    assert '"codr" is not the name of the file · name: coder' in problems[1].message


def test_r2_loading_a_broken_role_lists_everything_wrong(home: Path) -> None:
    path = write(home / "roles", "coder", "name: coder\nmodle: x\nbudget: {tokens: 0}\n")
    with pytest.raises(BullpenError, match="role coder has 2 errors") as caught:
        load_role(find_role("coder", home / "roles"))
    assert f"{path}:2  modle" in caught.value.message
    assert f"{path}:3  budget.tokens" in caught.value.message
    details = caught.value.details["problems"]
    assert isinstance(details, list)
    assert len(details) == 2


def test_r4_an_unknown_role_names_the_nearest(home: Path) -> None:
    write(home / "roles", "coder")
    with pytest.raises(BullpenError, match="no role called codr · did you mean coder") as caught:
        find_role("codr", home / "roles")
    assert caught.value.kind is Kind.NOT_FOUND
    with pytest.raises(BullpenError, match="there are coder"):
        find_role("zzzzzz", home / "roles")


@pytest.mark.parametrize("name", ["../coder", "/etc/passwd", "a/b", "", "all", "Coder"])
def test_h9_a_name_never_leads_out_of_the_directory(home: Path, name: str) -> None:
    write(home / "roles", "coder")
    write(home, "coder")
    with pytest.raises(BullpenError, match="role name"):
        find_role(name, home / "roles")


def test_p3_with_a_pod_its_roles_come_first(home: Path) -> None:
    for directory in (home / "roles", home / "pods" / "roles"):
        write(directory, "coder")
    write(home / "roles", "plain")
    roles, pod_roles = home / "roles", home / "pods" / "roles"
    assert find_role("coder", roles, pod_roles).path == pod_roles / "coder.yaml"
    assert find_role("plain", roles, pod_roles).path == roles / "plain.yaml"
    assert find_role("coder", roles).path == roles / "coder.yaml"


def test_p3_without_a_pod_its_roles_are_not_seen(home: Path) -> None:
    write(home / "pods" / "roles", "coder")
    with pytest.raises(BullpenError, match="no role called coder"):
        find_role("coder", home / "roles")


def test_r4_a_list_has_everything_in_order_and_marks_what_is_broken(home: Path) -> None:
    roles, pod_roles = home / "roles", home / "pods" / "roles"
    write(roles, "b")
    write(pod_roles, "b")
    write_directory_role(roles, "a")
    write(roles, "c", "name: c\n\tx")
    write(roles, "d", "- 1\n")
    write(roles, "e", "name: other\n")
    (roles / "empty").mkdir()
    for ignored in ("notes.txt", ".hidden.yaml", "b.yaml~"):
        (roles / ignored).write_text("x")
    found = [(s.file.name, s.file.is_pod_role, s.is_broken) for s in summaries(roles, pod_roles)]
    assert found == [
        ("a", False, False),
        ("b", True, False),
        ("b", False, False),
        ("c", False, True),
        ("d", False, True),
        ("e", False, True),
        ("empty", False, True),
    ]


def test_r4_no_directory_means_no_roles(tmp_path: Path) -> None:
    assert list_roles(tmp_path / "gone", tmp_path / "gone too") == []


def test_m8_a_role_may_grant_only_what_exists(home: Path) -> None:
    write(home / "roles", "boss", "name: boss\nmay_grant: codr\n")
    (file,) = list_roles(home / "roles")
    (problem,) = check_role(file, {"boss", "coder"})[1]
    assert (problem.line, problem.key) == (2, "may_grant")
    assert problem.message == "no role called codr · did you mean coder?"


@pytest.mark.parametrize(
    ("root_dir", "expected"),
    [
        (".", "invoked"),
        ("./", "invoked"),
        ("projects/x", "home/projects/x"),
        ("..", "."),
        ("~/code", "person/code"),
        ("~", "person"),
    ],
)
def test_r3_where_an_agent_works(tmp_path: Path, root_dir: str, expected: str) -> None:
    for name in ("invoked", "home/projects/x", "person/code"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    role = Role(name="coder", root_dir=root_dir)
    found = resolve_root_dir(role, tmp_path / "invoked", tmp_path / "home")
    assert found == (tmp_path / expected).resolve()


def test_r3_an_absolute_path_stands_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    role = Role(name="coder", root_dir=str(tmp_path / "link"))
    assert resolve_root_dir(role, Path("/"), Path("/")) == tmp_path.resolve()


def test_r3_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for root_dir in ("gone", "file", "loop"):
        role = Role(name="coder", root_dir=root_dir)
        with pytest.raises(BullpenError, match=f"no directory .*{root_dir}") as caught:
            resolve_root_dir(role, tmp_path, tmp_path)
        assert caught.value.kind is Kind.NOT_FOUND
    assert not (tmp_path / "gone").exists()
