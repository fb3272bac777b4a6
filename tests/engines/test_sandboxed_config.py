"""The configuration of an engine in a sandbox: its own, without links, and nobody else's after; and
what of the machine it needs to run at all. Whatever the agent left there, its next start is as if
it had not, and shows it nothing of the person's."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines import ENGINES, Engine, Prepared, Start
from bullpen.engines.programs import install_roots
from bullpen.engines.transcripts import read_lines
from bullpen.errors import BullpenError, Kind
from bullpen.model.agent import Agent
from bullpen.model.role import Role
from tests.engines.cli import SECONDS, program

pytestmark = pytest.mark.slow

SECRET = "the person's secret"
TALKING = ("claude", "codex", "gemini")
talking = pytest.mark.parametrize("name", TALKING)
GONE = "01a1e29b-4f8e-7c21-82ad-fdfff48671aa"


@pytest.fixture
def given_start(tmp_path: Path) -> Start:
    for name in ("bin", "session", "session/run", "work", "person"):
        (tmp_path / name).mkdir(exist_ok=True)
    for name in TALKING:
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    keys = dict.fromkeys(("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "CODEX_API_KEY"), "k" * 30)
    return Start(
        role=None,
        words=(),
        prompt="do it",
        agent="amy",
        cwd=str(tmp_path / "work"),
        session=tmp_path / "session",
        run=tmp_path / "session/run",
        home=tmp_path / "home",
        person=tmp_path / "person",
        env={"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "person"), **keys},
        url="http://127.0.0.1:7",
        hook=("/bin/true",),
        ask=("/bin/true",),
        is_sandboxed=True,
    )


def started(start: Start, name: str, **fields: Any) -> tuple[Engine, Start]:
    return ENGINES[name], replace(start, role=Role(name="worker", agent_type=name, **fields))


def ready(engine: Engine, start: Start) -> Prepared:
    prepared = engine.prepare_run(start)
    engine.make_ready(start, prepared)
    return prepared


def contents(directory: Path) -> str:
    files = [path for path in directory.rglob("*") if path.is_file() or path.is_symlink()]
    return "".join(path.read_text(errors="replace") for path in files)


# -- what an agent leaves for its next start -----------------------------------------------------

# The file that each reads at every start, in its own directory.
READ = {"claude": ".claude.json", "codex": "config.toml", "gemini": ".gemini/settings.json"}
Plant = Callable[[Path, Path], object]
PLANTS: dict[str, Plant] = {
    "link": lambda place, secret: place.symlink_to(secret),
    "pipe": lambda place, _: os.mkfifo(place),
    "directory": lambda place, _: (place / "in it").mkdir(parents=True),
    "junk": lambda place, _: place.write_bytes(b"\xff{"),
    "list": lambda place, _: place.write_text("[]"),
    "odd": lambda place, _: place.write_text('{"projects": 3, "customApiKeyResponses": []}'),
}


@talking
@pytest.mark.parametrize("plant", PLANTS)
def test_x5_what_is_planted_in_place_of_a_file_neither_shows_nor_stops_anything(
    name: str, plant: str, given_start: Start, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"theirs": SECRET}))
    engine, start = started(given_start, name)
    ready(engine, start)
    [own] = engine.writable(start)
    place = own / READ[name]
    before = place.read_text()
    place.unlink()
    PLANTS[plant](place, secret)
    in_time(lambda: ready(engine, start))
    assert not place.is_symlink()
    assert place.read_text() == before
    assert SECRET not in contents(own)
    assert secret.read_text() == json.dumps({"theirs": SECRET})


DIRECTORIES = {"claude": "sessions", "codex": "rules", "gemini": ".gemini"}


@talking
def test_x5_a_link_in_place_of_a_directory_is_not_written_through(
    name: str, given_start: Start, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    engine, start = started(given_start, name)
    ready(engine, start)
    [own] = engine.writable(start)
    shutil.rmtree(own / DIRECTORIES[name])
    (own / DIRECTORIES[name]).symlink_to(elsewhere)
    ready(engine, start)
    assert list(elsewhere.iterdir()) == []
    assert (own / DIRECTORIES[name]).is_dir()
    assert not (own / DIRECTORIES[name]).is_symlink()


def test_x5_a_lock_that_an_agent_left_does_not_hold_up_its_next_start(given_start: Start) -> None:
    engine, start = started(given_start, "claude")
    ready(engine, start)
    [own] = engine.writable(start)
    (own / ".claude.json.lock").write_text("held")
    in_time(lambda: ready(engine, start))


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("claude", "settings.json"),
        ("claude", "remote-settings.json"),
        ("claude", "plugins/x/hooks/hooks.json"),
        ("claude", "skills/x/SKILL.md"),
        ("codex", "rules/open.rules"),
        ("codex", "hooks.json"),
        ("codex", "prompts/planted.md"),
        ("gemini", ".gemini/policies/open.toml"),
        ("gemini", ".gemini/extensions/x/gemini-extension.json"),
        ("gemini", ".gemini/commands/x.toml"),
    ],
)
def test_x5_rules_that_an_agent_wrote_itself_are_gone_at_its_next_start(
    name: str, planted: str, given_start: Start
) -> None:
    engine, start = started(given_start, name)
    ready(engine, start)
    [own] = engine.writable(start)
    (own / planted).parent.mkdir(parents=True, exist_ok=True)
    (own / planted).write_text("planted")
    ready(engine, start)
    assert not (own / planted).exists()


@pytest.mark.parametrize("name", ["codex", "gemini"])
def test_x5_a_program_without_walls_reads_nothing_that_one_in_a_sandbox_wrote(
    name: str, given_start: Start
) -> None:
    engine, start = started(given_start, name)
    prepared = ready(engine, start)
    [own] = engine.writable(start)
    for file in ("hooks.json", "rules/x.rules", ".gemini/policies/x.toml", ".env"):
        (own / file).parent.mkdir(parents=True, exist_ok=True)
        (own / file).write_text("planted")
    # Also when all that is known of the person's directory is the agent's own.
    outside = replace(start, is_sandboxed=False, env={**start.env, **prepared.env})
    made = ready(engine, outside)
    assert str(own) not in json.dumps([made.argv, dict(made.env), dict(made.files)])
    others = [path for path in start.session.iterdir() if path.is_dir() and path != own]
    assert "planted" not in "".join(map(contents, others))


def test_x5_claudes_own_directory_is_not_used_without_walls_afterwards(given_start: Start) -> None:
    engine, start = started(given_start, "claude", claude_config_dir="session")
    outside = replace(start, is_sandboxed=False)
    ready(engine, outside)
    ready(engine, start)
    [own] = engine.writable(start)
    (own / "settings.json").write_text('{"hooks": {"Stop": "planted"}}')
    with pytest.raises(BullpenError, match="was written to in a sandbox") as raised:
        engine.prepare(outside)
    assert raised.value.kind is Kind.DENIED
    ready(engine, start)


def test_x5_where_settings_come_from_is_not_the_agents_to_say(
    given_start: Start, tmp_path: Path
) -> None:
    """With a link that it wrote, the next start would copy out whatever that leads to."""
    (given_start.person / ".codex").mkdir()
    (given_start.person / ".codex/AGENTS.md").write_text("the person's words")
    engine, start = started(given_start, "codex")
    prepared = ready(engine, start)
    [own] = engine.writable(start)
    bait = tmp_path / "work/bait"
    bait.mkdir()
    (tmp_path / "secret").write_text(SECRET)
    (bait / "AGENTS.md").symlink_to(tmp_path / "secret")
    for name in (".bullpen-origin", ".origin", "origin"):
        (own / name).symlink_to(bait)
    ready(engine, replace(start, env={**start.env, **prepared.env}))
    assert (own / "AGENTS.md").read_text() == "the person's words"


# -- which directory -----------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [None, "session", "~/.mine", "claude-config/other"])
def test_x2_claude_in_a_sandbox_has_its_own_directory_whatever_the_role_says(
    wanted: str | None, given_start: Start
) -> None:
    shared = given_start.home / "claude-config/default"
    shared.mkdir(parents=True)
    (shared / ".credentials.json").write_text(SECRET)
    env = {**given_start.env, "CLAUDE_CONFIG_DIR": str(given_start.person / "named")}
    engine, start = started(replace(given_start, env=env), "claude", claude_config_dir=wanted)
    prepared = ready(engine, start)
    own = start.session / "claude-config"
    assert engine.writable(start) == (own,)
    assert prepared.env["CLAUDE_CONFIG_DIR"] == str(own)
    found = json.loads((own / ".claude.json").read_text())
    assert found["hasCompletedOnboarding"] is True
    assert found["projects"][start.cwd]["hasTrustDialogAccepted"] is True
    assert list(given_start.person.iterdir()) == []
    assert SECRET not in contents(own)


@pytest.mark.parametrize(
    "variable",
    ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"],
)
def test_f4_any_credential_of_the_environment_will_do(variable: str, given_start: Start) -> None:
    bare = {"PATH": given_start.env["PATH"]}
    engine, start = started(replace(given_start, env=bare), "claude")
    with pytest.raises(BullpenError, match="nobody is logged in") as raised:
        engine.prepare_run(start)
    assert raised.value.hint.startswith("bullpen auth claude")
    engine.prepare_run(replace(start, env={**bare, variable: "x"}))
    engine.prepare_run(
        replace(start, role=Role(name="w", settings={"apiKeyHelper": "/bin/helper"}))
    )


def test_f4_a_login_of_the_agents_own_will_do(given_start: Start) -> None:
    bare = {"PATH": given_start.env["PATH"]}
    engine, start = started(replace(given_start, env=bare), "claude")
    (start.session / "claude-config").mkdir()
    (start.session / "claude-config/.credentials.json").write_text("{}")
    engine.prepare_run(start)


def test_x4_root_may_do_without_questions_inside_walls_only(given_start: Start) -> None:
    engine, start = started(given_start, "claude", permission_mode="bypassPermissions")
    assert engine.prepare(start).env["IS_SANDBOX"] == "1"
    outside = replace(start, is_sandboxed=False)
    if os.geteuid() == 0:
        with pytest.raises(BullpenError, match="as root"):
            engine.prepare(outside)


# -- what the hub reads there --------------------------------------------------------------------


def test_x5_a_pipe_among_transcripts_is_not_waited_for(given_start: Start) -> None:
    places = {
        "claude": f"projects/x/{GONE}.jsonl",
        "codex": f"sessions/1/2/3/rollout-x-{GONE}.jsonl",
        "gemini": f".gemini/tmp/x/chats/session-1-{GONE[:8]}.jsonl",
    }
    for name, place in places.items():
        engine, start = started(given_start, name)
        ready(engine, start)
        [own] = engine.writable(start)
        (own / place).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(own / place)
        files = engine.state_files(start)
        known = {"name": "amy", "run": "r", "command": ("x",), "cwd": "/"}
        amy = Agent(**known, engine=name, state_files=files, created="2026-11-16T00:00:00Z")
        found = in_time(lambda e=engine, a=amy: e.find_shown(a, {"m-1"}, 0.0))
        assert found == set()
        in_time(lambda e=engine, s=start: e.has_conversation(replace(s, conversation=GONE)))


def test_x5_a_file_without_an_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse one costs who wrote it nothing."""
    file = tmp_path / "sparse"
    file.write_bytes(b"first\n")
    os.truncate(file, 1 << 40)
    monkeypatch.setattr("bullpen.engines.transcripts.LINE_BYTES", 1 << 10)
    monkeypatch.setattr("bullpen.engines.transcripts.FILE_BYTES", 1 << 16)
    lines = in_time(lambda: list(read_lines(file)))
    assert lines[0] == b"first\n"
    assert sum(map(len, lines)) <= (1 << 16) + (1 << 10)
    assert max(map(len, lines)) <= 1 << 10


# -- what it needs of the machine ----------------------------------------------------------------


def executable(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def person(tmp_path: Path) -> Path:
    return tmp_path / "me"


def roots(person: Path, argv0: str, *path: Path) -> set[str]:
    """Relative to the person's home."""
    env = {"HOME": str(person), "PATH": ":".join(map(str, path))}
    return {str(root.relative_to(person)) for root in install_roots(argv0, env)}


def test_x2_a_package_of_npm_with_its_node(person: Path) -> None:
    prefix = person / ".nvm/versions/node/v20"
    executable(prefix / "lib/node_modules/@x/cli/run.js", "#!/usr/bin/env node\n")
    executable(prefix / "bin/node")
    (prefix / "bin/cli").symlink_to("../lib/node_modules/@x/cli/run.js")
    node = ".nvm/versions/node/v20"
    assert roots(person, "cli", prefix / "bin") == {f"{node}/bin", f"{node}/lib"}
    # The packages in one place, node in another.
    (person / "tools/bin").mkdir(parents=True)
    shutil.move(prefix / "lib", person / "tools/lib")
    shutil.move(prefix / "bin/cli", person / "tools/bin/cli")
    assert roots(person, "cli", person / "tools/bin", prefix / "bin") == {
        *("tools/bin", "tools/lib/node_modules", f"{node}/bin")
    }


def test_x2_a_program_that_installs_itself(person: Path) -> None:
    executable(person / ".local/share/claude/versions/2.1.325")
    (person / ".local/bin").mkdir()
    (person / ".local/bin/claude").symlink_to(person / ".local/share/claude/versions/2.1.325")
    found = roots(person, str(person / ".local/bin/claude"))
    assert found == {".local/bin", ".local/share/claude/versions/2.1.325"}


def test_x2_a_home_directory_is_never_given_as_a_whole(person: Path) -> None:
    executable(person / "cli")
    assert roots(person, str(person / "cli")) == {"cli"}
    executable(person / "bin/cli")
    assert roots(person, str(person / "bin/cli")) == {"bin"}
    executable(person / ".local/bin/cli", "#!/usr/bin/env -S cli2 --flag\n")
    executable(person / "cli2")
    assert roots(person, "cli", person / ".local/bin", person) == {".local/bin", "cli2"}


def test_x2_a_link_to_a_program_does_not_show_what_lies_beside_it(person: Path) -> None:
    executable(person / "shop/run.sh", "#!/bin/sh\n")
    (person / "shop/.env").write_text(SECRET)
    (person / "shop/link").symlink_to("run.sh")
    (person / "bin").mkdir()
    (person / "bin/run").symlink_to("../shop/link")
    assert roots(person, "run", person / "bin") == {"bin", "shop/link", "shop/run.sh"}
    executable(person / ".fly/bin/flyctl")
    (person / ".fly/config.yml").write_text(SECRET)
    assert roots(person, "flyctl", person / ".fly/bin") == {".fly/bin"}


def test_x2_links_that_go_round_and_programs_that_are_gone(person: Path) -> None:
    person.mkdir()
    (person / "a").symlink_to("b")
    (person / "b").symlink_to("a")
    assert roots(person, str(person / "a")) == set()
    assert roots(person, "no-such-program", person) == set()
    one = executable(person / "x/one", f"#!{person}/x/two\n")
    executable(person / "x/two", f"#!{one}\n")
    assert roots(person, str(one)) == {"x"}


@pytest.mark.storm
@talking
@pytest.mark.parametrize("is_in_the_home_directory", [True, False])
def test_x2_the_real_program_runs_where_only_its_roots_can_be_seen(
    name: str, tmp_path: Path, is_in_the_home_directory: bool
) -> None:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        pytest.skip("bubblewrap is not installed")
    found = str(program(name))
    home = Path(found).parents[2] if is_in_the_home_directory else tmp_path
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    system = ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for link in ("bin", "sbin", "lib", "lib64"):
        if Path("/", link).is_symlink():
            system += ["--symlink", f"usr/{link}", f"/{link}"]
        elif Path("/", link).exists():
            system += ["--ro-bind", f"/{link}", f"/{link}"]

    def run(*seen: Path) -> subprocess.CompletedProcess[str]:
        binds = [word for root in seen for word in ("--ro-bind", str(root), str(root))]
        argv = [bwrap, *system, *binds, "--chdir", "/", found, "--version"]
        return subprocess.run(
            argv, env=env, capture_output=True, text=True, check=False, timeout=SECONDS
        )

    given = install_roots(found, env)
    ran = run(*given)
    assert (ran.returncode, ran.stdout[:1].isdigit() or "codex" in ran.stdout) == (0, True), ran
    for root in given:
        assert run(*(other for other in given if other != root)).returncode != 0, root


def in_time(act: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Its result; a failure, not a test that hangs, if it waits for something."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(act())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(seconds)
