import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen.cli.commands.validate import kind_of
from bullpen.home.yamlfile import parse
from tests.commands import Ran

pytestmark = pytest.mark.slow

Run = Callable[..., Ran]


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("/h/config.yaml", "", "config"),
        ("/h/roles/coder.yaml", "x: [", "role"),
        ("/h/pods/roles/coder.yaml", "pod_name: a", "role"),
        ("/h/roles/boss/role.yaml", "", "role"),
        ("/h/pods/templates/a.yaml", "name: a", "template"),
        ("/x/a.yaml", "pod_name: a", "template"),
        ("/x/a.yaml", "agents: []", "template"),
        ("/x/a.yaml", "name: a\ninstructions: b", "role"),
        ("/x/a.yaml", "worktrees: {}", "config"),
        ("/x/a.yaml", "name: a", ""),
        ("/x/a.yaml", "role: a\nport: 9001", "agent"),
        ("/x/a.yaml", "role: a", ""),
        ("/x/agents/a.yaml", "role: a", "agent"),
        ("/x/agents/a.yaml", "", "agent"),
        ("/x/agents/a.yaml", "name: a\ninstructions: b", "role"),
        ("/x/a.yaml", "name: a\nprompt: b", "project"),
        ("/x/projects/a.yaml", "x: [", "project"),
        ("/x/projects/a.yaml", "name: a\ninstructions: b", "role"),
        ("/x/projects/config.yaml", "", "config"),
        ("/x/directors/a.yaml", "port: 9002", "director"),
        ("/x/a.yaml", "services: {}", ""),
        ("/x/a.yaml", "- 1", ""),
        ("/x/a.yaml", "", ""),
    ],
)
def test_f3_what_a_file_is_shows_in_its_place_or_its_keys(path: str, text: str, kind: str) -> None:
    assert kind_of(parse(Path(path), text)) == kind


def test_f3_a_directors_file_is_no_agents(home: Path, bullpen: Run) -> None:
    (home / "directors").mkdir(exist_ok=True)
    path = home / "directors" / "nightly.yaml"
    path.write_text("role: coder\nport: 9003\n")  # else it would be an agent's
    for words in (("--all",), (str(path),)):
        done = bullpen("validate", *words)
        assert done.code == 1
        assert "nightly.yaml:1  type  is required · one of " in done.out


def test_f3_a_file_is_found_by_the_name_that_validate_prints(home: Path, bullpen: Run) -> None:
    (home / "directors").mkdir(exist_ok=True)
    (home / "directors" / "nightly.yaml").write_text("type: scheduler\n")
    for words in (("--all",), ("directors/nightly.yaml",)):
        done = bullpen("validate", *words)
        assert done.code == 0, done
        assert "directors/nightly.yaml" in done.out


def test_f3_everything_in_the_home(home: Path, bullpen: Run) -> None:
    done = bullpen("validate", "--all")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "12 files ok"
    (home / "config.yaml").write_text("prot: 1\n")
    (home / "roles" / "coder.yaml").rename(home / "roles" / "codr.yaml")
    (home / "pods" / "templates" / "bad.yaml").write_text("agents: []\n")
    done = bullpen("validate", "--all", "--json")
    assert done.code == 1
    wrong = {
        str(Path(entry["file"]).relative_to(home)): [
            (problem["line"], problem["key"]) for problem in entry["problems"]
        ]
        for entry in done.json["files"]
        if not entry["ok"]
    }
    lines = (home / "roles" / "manager" / "role.yaml").read_text().splitlines()
    grant = lines.index("may_grant: coder") + 1
    assert wrong == {
        "config.yaml": [(1, "prot")],
        "roles/codr.yaml": [(4, "name")],
        "roles/manager/role.yaml": [(grant, "may_grant")],
        "pods/templates/bad.yaml": [(1, "pod_name"), (1, "agents")],
        "pods/templates/bugfix.yaml": [(14, "agents.1.role")],
    }


def test_f3_named_files_need_no_home(tmp_path: Path, bullpen: Run) -> None:
    (tmp_path / "coder.yaml").write_text("name: coder\ninstructions: x\nmodle: y\n")
    (tmp_path / "ok.yaml").write_text("pod_name: a\nagents: [{role: whoever}]\n")
    (tmp_path / "other.yaml").write_text("services: {}\n")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    done = bullpen("validate", "coder.yaml", "ok.yaml", "other.yaml", "broken.yaml", "gone.yaml")
    assert done.code == 1
    assert "coder.yaml:3  modle  unknown key · did you mean model?" in done.out
    assert "ok.yaml      ok" in done.out
    assert "neither a config.yaml nor a role, a pod template, an agent or a project" in done.out
    assert "a [ or { is not closed" in done.out
    assert "No such file" in done.out
    assert done.out.endswith("4 of 5 files have errors\n")


def test_f3_a_directory_role_has_the_directorys_name(home: Path, bullpen: Run) -> None:
    directory = home / "roles" / "manager"
    assert bullpen("validate", "role.yaml", cwd=directory).code == 0
    directory.rename(home / "roles" / "boss")
    done = bullpen("validate", "role.yaml", cwd=home / "roles" / "boss")
    assert '"manager" is not the name of the file · name: boss' in done.out


def test_f3_a_template_in_a_home_has_roles_that_exist(home: Path, bullpen: Run) -> None:
    path = home / "pods" / "templates" / "feature.yaml"
    path.write_text("pod_name: a\nagents: [{role: codr}]\n")
    done = bullpen("validate", path)
    assert done.code == 1
    assert "no role called codr · did you mean coder?" in done.out


def test_f3_without_files_it_is_the_whole_home(home: Path, bullpen: Run) -> None:
    (home / "roles" / "coder.yaml").write_text("nme: coder\n")
    everything = bullpen("validate", "--all")
    assert (everything.code, "coder.yaml:1" in everything.out) == (1, True)
    assert bullpen("validate") == everything


def test_f3_files_or_all_but_not_both(home: Path, bullpen: Run) -> None:
    done = bullpen("validate", "--all", "x.yaml")
    assert done.code == 2
    assert "--all goes without FILE" in done.err


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("agents/role.yaml", "name: a\ninstructions: b\n", "role.yaml:1  role"),
        ("agents/config.yaml", "worktrees: {}\n", "config.yaml:1  worktrees"),
        ("projects/shop.yaml", "name: shop\ninstructions: b\n", "instructions  unknown key"),
    ],
)
def test_f3_in_a_home_the_directory_alone_decides(
    home: Path, bullpen: Run, file: str, text: str, told: str
) -> None:
    (home / file).parent.mkdir()
    (home / file).write_text(text)
    for words in (["validate", file], ["validate", "--all"]):
        done = bullpen(*words, cwd=home)
        assert done.code == 1
        assert told in done.out


def test_f3_what_only_several_files_together_can_tell(home: Path, bullpen: Run) -> None:
    (home / "agents").mkdir()
    (home / "projects").mkdir()
    (home / "config.yaml").write_text("port: 9100\n")
    (home / "projects" / "shop.yaml").write_text("name: shop\nprompt: A shop.\n")
    files = {
        "amy": "role: coder\nport: 9001\n",
        "bob": "role: coder\nport: 9001\n",
        "carl": "role: codr\n",
        "dora": "role: coder\nport: 9100\n",
        "eve": "role: coder\nport: 4000\n",  # outside of what is searched: fine
    }
    for name, text in files.items():
        (home / "agents" / f"{name}.yaml").write_text(text)
    done = bullpen("validate", "--all")
    assert done.code == 1
    assert done.out.endswith("4 of 18 files have errors\n")
    for told in (
        "amy.yaml:2  port  9001 is the port of agents/bob.yaml already",
        "bob.yaml:2  port  9001 is the port of agents/amy.yaml already",
        "carl.yaml:1  role  no role called codr · did you mean coder?",
        "dora.yaml:2  port  9100 is the port of config.yaml already",
    ):
        assert told in done.out
    done = bullpen("validate", home / "agents" / "amy.yaml")
    assert (done.code, "agents/bob.yaml" in done.out) == (1, True)
    (home / "agents" / "bob.yaml").unlink()
    assert bullpen("validate", home / "agents" / "amy.yaml").code == 0


def test_f3_agent_outside_of_a_home_has_nothing_to_compare_with(
    tmp_path: Path, bullpen: Run
) -> None:
    (tmp_path / "amy.yaml").write_text("role: whoever\nport: 9001\n")
    assert bullpen("validate", "amy.yaml").code == 0
    (tmp_path / "amy.yaml").write_text("role: whoever\nport: 90011\n")
    assert "amy.yaml:2  port  90011 is too large" in bullpen("validate", "amy.yaml").out


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_f3_a_file_that_may_not_be_read_is_a_problem(tmp_path: Path, bullpen: Run) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("")
    path.chmod(0)
    assert "Permission denied" in bullpen("validate", path).out


def test_h10_settings_of_an_earlier_version_are_no_error_and_are_named(
    home: Path, bullpen: Run
) -> None:
    (home / "config.yaml").write_text("notifications: {to: []}\nstop_grace: 1s\n")
    ran = bullpen("validate", "--all")
    assert ran.code == 0, ran.out
    assert ran.err == f"{home / 'config.yaml'}: notifications: not used by this version\n"
