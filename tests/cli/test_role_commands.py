import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen.home.check import check
from bullpen.home.role_template import new_role, renamed
from bullpen.home.yamlfile import parse
from bullpen.model.role import Role
from tests.commands import Ran
from tests.setting_keys import data_keys, model_keys, uncommented

pytestmark = pytest.mark.slow

Run = Callable[..., Ran]


def write_role(home: Path, name: str, text: str) -> None:
    (home / f"{name}.yaml").write_text(text)


def test_r4_list_shows_every_role_and_what_it_is_for(home: Path, bullpen: Run) -> None:
    done = bullpen("role", "list")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["ROLE", "DESCRIPTION"]
    assert [line.split()[0] for line in lines[1:]] == sorted(
        [
            *("architect", "codex", "coder", "developer", "gemini", "manager", "ops"),
            *("researcher", "reviewer"),
        ]
    )
    assert "Reviews changes for errors" in lines[-1]


def test_r4_list_marks_pod_roles_and_broken_files(home: Path, bullpen: Run) -> None:
    write_role(home, "pods/roles/coder", "name: coder\ndescription: the pod's\n")
    write_role(home, "roles/bad", "name: [\n")
    done = bullpen("role", "list")
    assert re.search(r"^coder +pod +the pod's$", done.out, re.MULTILINE)
    assert re.search(r"^coder +Takes one task", done.out, re.MULTILINE)
    assert re.search(r"^bad +broken · bullpen role check bad$", done.out, re.MULTILINE)
    found = {
        (role["name"], role["pod"]): role
        for role in bullpen("role", "list", "--json").json["roles"]
    }
    assert found["coder", True]["description"] == "the pod's"
    assert found["bad", False]["broken"]
    assert found["manager", False]["file"] == str(home / "roles" / "manager" / "role.yaml")


def test_r4_text_from_files_cannot_drive_the_terminal(home: Path, bullpen: Run) -> None:
    write_role(home, "roles/evil", 'name: evil\ndescription: "\\e[31mred\\e]0;t\\a"\n')
    write_role(home, "roles/worse", 'name: worse\n"\\e[2Jkey": x\nmodel: "\\e[2J x"\n')
    for words in (["list"], ["show", "evil"], ["check"], ["show", "worse"], ["check", "worse"]):
        done = bullpen("role", *words)
        assert "\x1b" not in done.out + done.err
        assert "\\x1b[" in done.out + done.err


def test_r4_show_has_all_fields_and_marks_defaults(home: Path, bullpen: Run) -> None:
    done = bullpen("role", "show", "coder")
    assert done.code == 0
    shown = {line.split()[0]: line for line in done.out.splitlines() if line.strip()}
    for key in model_keys(Role):
        assert key.rpartition(".")[2] in shown, key
    assert shown["file"].endswith("/roles/coder.yaml")
    assert shown["agent_type"].endswith("claude   (default)")
    assert shown["permission_mode"].endswith("acceptEdits")
    assert "Bash(git stash:*)" in done.out
    assert re.search(r"^  enabled +true$", done.out, re.MULTILINE)
    assert re.search(r"^  enabled +on for tasks", bullpen_show_plain(home, bullpen), re.MULTILINE)


def bullpen_show_plain(home: Path, bullpen: Run) -> str:
    write_role(home, "roles/plain", "name: plain\n")
    return bullpen("role", "show", "plain").out


def test_r4_show_as_json(home: Path, bullpen: Run) -> None:
    write_role(
        home,
        "roles/x",
        "name: x\nheartbeat: {idle_timeout: 90m}\nenv: {TOKEN: hunter2}\n",
    )
    found = bullpen("role", "show", "x", "--json").json
    assert found["role"]["heartbeat"]["idle_timeout"] == "1h30m"
    assert found["set"] == ["env", "env.TOKEN", "heartbeat", "heartbeat.idle_timeout", "name"]
    assert found["pod"] is False
    assert bullpen("role", "show", "manager", "--json").json["persona"].endswith("CLAUDE.md")


def test_r4_show_names_variables_but_not_their_values(home: Path, bullpen: Run) -> None:
    write_role(home, "roles/x", "name: x\nenv: {TOKEN: hunter2}\n")
    for words in (["role", "show", "x"], ["role", "show", "x", "--json"]):
        done = bullpen(*words)
        assert "TOKEN" in done.out
        assert "hunter2" not in done.out


def test_p3_show_looks_in_pod_roles_only_with_a_pod(home: Path, bullpen: Run) -> None:
    write_role(home, "pods/roles/coder", "name: coder\ndescription: the pod's\n")
    write_role(home, "pods/roles/only", "name: only\n")
    assert "the pod's" in bullpen("role", "show", "coder", "--pod").out
    assert "the pod's" in bullpen("role", "show", "coder", BULLPEN_POD="team").out
    assert "the pod's" not in bullpen("role", "show", "coder").out
    assert bullpen("role", "show", "only").code == 4


def test_r4_an_unknown_role_names_the_nearest(home: Path, bullpen: Run) -> None:
    for verb in ("show", "check"):
        done = bullpen("role", verb, "codr")
        assert done.code == 4
        assert "error: no role called codr · did you mean coder?" in done.err
    assert bullpen("role", "show", "../../etc/passwd").code == 2


def test_r4_init_writes_a_role_that_is_in_order(home: Path, bullpen: Run) -> None:
    done = bullpen("role", "init", "tester")
    assert done.code == 0
    assert "bullpen role check tester" in done.out
    assert bullpen("role", "check", "tester").code == 0
    assert (home / "roles" / "tester.yaml").read_text() == new_role("tester")


def test_r4_a_new_role_explains_every_field_and_nothing_else() -> None:
    document = parse(Path("x.yaml"), uncommented(new_role("x")))
    assert document.problems == ()
    free = ("hooks.", "settings.", "env.", "labels.")
    found = {key for key in data_keys(document.data) if not key.startswith(free)}
    assert found == set(model_keys(Role))
    # The fields of another engine are the only ones that cannot be used together.
    data = {k: v for k, v in document.data.items() if k not in ("command", "deliver")}
    assert Role.model_validate(data).worktree.enabled


@pytest.mark.parametrize("taken", ["coder", "manager"])
def test_r4_init_refuses_to_overwrite(home: Path, bullpen: Run, taken: str) -> None:
    before = sorted((path, path.read_bytes()) for path in home.rglob("*") if path.is_file())
    for more in ([], ["--from", "reviewer"]):
        done = bullpen("role", "init", taken, *more)
        assert done.code == 5
        assert "there is already" in done.err
    after = sorted((path, path.read_bytes()) for path in home.rglob("*") if path.is_file())
    assert [entry for entry in after if entry in before] == before


def test_r4_init_from_a_role_changes_only_the_name(home: Path, bullpen: Run) -> None:
    assert bullpen("role", "init", "coder-2", "--from", "coder").code == 0
    old = (home / "roles" / "coder.yaml").read_text().splitlines()
    new = (home / "roles" / "coder-2.yaml").read_text().splitlines()
    assert [(a, b) for a, b in zip(old, new, strict=True) if a != b] == [
        ("name: coder", "name: coder-2")
    ]
    assert bullpen("role", "check", "coder-2").code == 0


def test_r4_show_of_a_pods_role_says_how_to_see_it(home: Path, bullpen: Run) -> None:
    (home / "pods/roles/lead.yaml").write_text("name: lead\n")
    ran = bullpen("role", "show", "lead")
    assert "lead is a role of pods alone" in ran.err
    assert "bullpen role show lead --pod" in ran.err
    assert bullpen("role", "show", "lead", "--pod").code == 0


def test_r4_init_from_a_directory_copies_the_persona(home: Path, bullpen: Run) -> None:
    done = bullpen("role", "init", "boss", "--from", "manager", "--json")
    assert done.json == {"name": "boss", "file": str(home / "roles" / "boss" / "role.yaml")}
    persona = (home / "roles" / "boss" / "CLAUDE.md").read_text()
    assert persona == (home / "roles" / "manager" / "CLAUDE.md").read_text()
    assert bullpen("role", "check", "boss").code == 0


def test_r4_init_refuses_bad_names_and_unknown_sources(home: Path, bullpen: Run) -> None:
    assert bullpen("role", "init", "../x").code == 2
    assert bullpen("role", "init", "all").code == 2
    assert bullpen("role", "init", "x", "--from", "codr").code == 4
    assert not (home / "roles" / "x.yaml").exists()


@pytest.mark.parametrize(
    "line", ["name: old", "name:   old  # mine", "name: 'old'", 'name : "old"', "name: old\r"]
)
def test_r4_the_name_line_is_found_however_it_is_written(line: str) -> None:
    text = f"# name: old\ndescription: old\n{line}\n"
    found = renamed(text, "old", "new")
    assert check(Role, parse(Path("new.yaml"), found))[0] is not None
    assert re.search("^name ?: +new\\b", found, re.MULTILINE)
    assert found.startswith("# name: old\ndescription: old\n")
    assert "# mine" in found or "# mine" not in line


def test_r2_check_shows_every_roles_errors(home: Path, bullpen: Run) -> None:
    write_role(home, "roles/one", "name: one\nmodle: x\n\nheartbeat:\n  idle_timeout: tomorrow\n")
    write_role(home, "pods/roles/two", "name: three\n")
    done = bullpen("role", "check")
    assert done.code == 1
    assert re.search(r"^roles/coder.yaml +ok$", done.out, re.MULTILINE)
    assert re.search(r"^roles/one.yaml +2 errors$", done.out, re.MULTILINE)
    assert re.search(
        r"^  one.yaml:2  modle +unknown key · did you mean model\?$", done.out, re.MULTILINE
    )
    assert re.search(
        r'^  one.yaml:5  heartbeat.idle_timeout  "tomorrow" is no duration · e.g. 90s, 10m, 1h30m',
        done.out,
        re.MULTILINE,
    )
    assert re.search(r"^pods/roles/two.yaml +1 error$", done.out, re.MULTILINE)
    assert done.out.endswith("2 of 11 roles have errors\n")


def test_r2_check_of_some_and_as_json(home: Path, bullpen: Run) -> None:
    write_role(home, "roles/bad", "name: bad\nmodle: x\n")
    assert bullpen("role", "check", "coder", "manager").out.endswith("2 roles ok\n")
    done = bullpen("role", "check", "bad", "coder", "--json")
    assert done.code == 1
    assert [entry["ok"] for entry in done.json["files"]] == [False, True]
    assert done.json["files"][0]["problems"] == [
        {
            "file": str(home / "roles" / "bad.yaml"),
            "line": 2,
            "key": "modle",
            "message": "unknown key · did you mean model?",
        }
    ]


def test_r2_check_of_a_starter_home_is_all_ok(home: Path, bullpen: Run) -> None:
    done = bullpen("role", "check")
    assert (done.code, done.out.splitlines()[-1]) == (0, "9 roles ok")


def test_m8_check_misses_the_role_that_may_be_granted(home: Path, bullpen: Run) -> None:
    (home / "roles" / "coder.yaml").unlink()
    done = bullpen("role", "check", "manager")
    assert done.code == 1
    assert "no role called coder" in done.out


def test_p6_templates_are_listed(home: Path, bullpen: Run) -> None:
    (home / "pods" / "templates" / "bad.yaml").write_text("agents: []\n")
    (home / "pods" / "templates" / "many.yaml").write_text(
        "pod_name: crowd\nagents: [{role: coder, name: c, count: 2}]\n"
    )
    done = bullpen("pod", "templates")
    assert done.code == 0
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in done.out.splitlines()}
    assert lines["feature"] == "feature parallel researcher, developer, reviewer"
    assert lines["many"] == "crowd parallel c-1 (coder), c-2 (coder)"
    assert lines["bad"].startswith("broken · bullpen validate")
    found = {
        entry["name"]: entry for entry in bullpen("pod", "templates", "--json").json["templates"]
    }
    assert found["many"]["members"] == ["c-1", "c-2"]
    assert found["bad"]["broken"]
    assert found["bugfix"]["template"]["workflow"] == "sequence"


def completions(bullpen: Run, *words: str) -> list[str]:
    done = bullpen(
        COMP_WORDS=" ".join(["bullpen", *words]),
        COMP_CWORD=str(len(words)),
        _BULLPEN_COMPLETE="bash_complete",
    )
    assert "Traceback" not in done.err
    return [line.partition(",")[2] for line in done.out.splitlines() if line]


def test_u2_the_shell_completes_role_names(
    home: Path, bullpen: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert completions(bullpen, "role", "show", "re") == ["researcher", "reviewer"]
    assert completions(bullpen, "role", "check", "coder", "op") == ["ops"]
    monkeypatch.setenv("BULLPEN_DIR", str(tmp_path / "nowhere"))
    assert completions(bullpen, "role", "show", "re") == []


def test_r4_list_imports_nothing_heavy(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bullpen", "role", "list"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "bullpen.home.roles" in imported
    assert not imported & {"pydantic", "pydantic_core", "rich", "asyncio"}
