"""Making a home: what is made, what is kept, what is refused, and dying half-way."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen import __version__
from bullpen.errors import BullpenError, Kind
from bullpen.home import create as homes
from bullpen.home.create import create_home, exclude_patterns
from bullpen.home.local_files import copy_in_roles, find_local_files
from bullpen.home.paths import DIRECTORIES, find_home
from bullpen.home.roles import find_role, load_role
from tests.commands import BULLPEN, Ran
from tests.homes import marked
from tests.worktrees.repos import make_repo

pytestmark = pytest.mark.slow

SPECIFIED = ["roles", "sessions", "sockets", "claude-config/default", "projects", "worktrees"]
SPECIFIED += ["pods/roles", "pods/templates", "agents", "directors", "credentials", "logs"]
SPECIFIED += ["instructions"]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def assert_complete(root: Path) -> None:
    assert (root / ".bullpen-dir.txt").read_text() == f"v{__version__}\n"
    assert re.fullmatch("[0-9a-f]{16}\n", (root / ".bullpen-id.txt").read_text())
    for name in (".", *SPECIFIED, *DIRECTORIES):
        assert mode(root / name) == 0o700, name
    for path in homes.STARTER.rglob("*"):
        if path.is_file():
            copy = root / path.relative_to(homes.STARTER)
            assert copy.read_bytes() == path.read_bytes()
            assert mode(copy) == 0o600


def git(*words: str, cwd: Path) -> str:
    return subprocess.check_output(["git", *words], cwd=cwd, text=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    git("init", "-q", str(repo), cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "start", cwd=repo)
    return repo


@pytest.fixture
def starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small stand-in for the package's starter files."""
    starter = tmp_path / "starter"
    for name in ("config.yaml", "roles/coder.yaml", "roles/ops/role.yaml", "pods/templates/x.yaml"):
        (starter / name).parent.mkdir(parents=True, exist_ok=True)
        (starter / name).write_text(f"# {name}\n")
    monkeypatch.setattr(homes, "STARTER", starter)
    return starter


def test_h4_init_makes_a_complete_home_and_prints_it(
    tmp_path: Path, bullpen: Callable[..., Ran]
) -> None:
    code = tmp_path / "person/code"
    code.mkdir()
    ran = bullpen("init", cwd=code)
    assert ran.code == 0, ran.err
    root = code / ".bullpen"
    assert_complete(root)
    roles = len({*root.glob("roles/*.yaml"), *root.glob("roles/*/role.yaml")})
    templates = len([*root.glob("pods/templates/*.yaml")])
    first, second = ran.out.splitlines()
    assert re.fullmatch(
        rf"Home ready: ~/code/\.bullpen   \({roles} roles?, {templates} pod templates?\)", first
    )
    assert second.startswith("Next: bullpen doctor")
    assert find_home({}, code, tmp_path / "person").root == root


def test_h4_init_brings_config_roles_and_templates(
    tmp_path: Path, bullpen: Callable[..., Ran]
) -> None:
    told = bullpen("init", "--json").json
    root = tmp_path / ".bullpen"
    assert told["home"] == str(root)
    assert told["id"] == (root / ".bullpen-id.txt").read_text().strip()
    assert told["roles"] >= 7
    assert told["templates"] >= 1
    assert "#" in (root / "config.yaml").read_text()


def test_h4_init_global_and_directory(tmp_path: Path, bullpen: Callable[..., Ran]) -> None:
    assert bullpen("init", "--global").out.startswith("Home ready: ~/.bullpen ")
    assert_complete(tmp_path / "person/.bullpen")
    assert bullpen("init", "deep/down/here").code == 0
    assert_complete(tmp_path / "deep/down/here")
    assert bullpen("init", "~/mine").code == 0
    assert_complete(tmp_path / "person/mine")
    assert bullpen("init", "--global", "x").code == 2


def test_h4_init_refuses_existing_home(tmp_path: Path, bullpen: Callable[..., Ran]) -> None:
    assert bullpen("init").code == 0
    before = (tmp_path / ".bullpen/.bullpen-id.txt").read_text()
    again = bullpen("init")
    assert again.code == 5
    assert f"there is a home already: {tmp_path / '.bullpen'}" in again.err
    as_json = bullpen("init", "--json")
    assert as_json.out == ""
    assert json.loads(as_json.err)["error"] == "conflict"
    assert (tmp_path / ".bullpen/.bullpen-id.txt").read_text() == before


def test_h1_init_below_another_home_says_which_is_used_where(
    tmp_path: Path, bullpen: Callable[..., Ran]
) -> None:
    shop = tmp_path / "person/code/shop"
    shop.mkdir(parents=True)
    assert bullpen("init", cwd=shop.parent).code == 0
    second = bullpen("init", cwd=shop)
    assert second.out.splitlines()[1:3] == [
        "There is another home above: ~/code/.bullpen",
        "Commands in ~/code/shop and below use the new one; elsewhere in ~/code that one, with"
        " its own agents",
    ]
    deeper = bullpen("init", "deep/.bullpen", "--json", cwd=shop)
    assert deeper.json["above"] == str(shop / ".bullpen")
    # One that commands would refuse is used by none.
    marked(tmp_path / "strange")
    told = bullpen("init", "strange/below", "--json")
    assert told.json["above"] is None


def test_h1_init_says_that_a_variable_names_another_home(
    tmp_path: Path, bullpen: Callable[..., Ran]
) -> None:
    other = tmp_path / "other"
    assert bullpen("init", "other").code == 0
    told = bullpen("init", "new", BULLPEN_DIR=str(other)).out
    said = f"BULLPEN_DIR is set: in this shell commands use {other}, wherever you are\n"
    assert said in told
    assert said not in bullpen("init", "newer").out


def test_h4_init_refuses_a_home_that_would_hide_another(tmp_path: Path) -> None:
    create_home(tmp_path / "a")
    create_home(tmp_path / "b/.bullpen")
    for hidden in (tmp_path / "a/.bullpen", tmp_path / "b"):
        with pytest.raises(BullpenError) as caught:
            create_home(hidden)
        assert caught.value.kind is Kind.CONFLICT


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_h4_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        home = create_home(tmp_path / "home")
    finally:
        os.umask(before)
    assert_complete(home.root)


def test_h4_init_here_keeps_what_is_there(tmp_path: Path, starter: Path) -> None:
    here = tmp_path / "here"
    (here / "roles").mkdir(parents=True)
    (here / "roles/coder.yaml").write_text("mine\n")
    (here / "src.py").write_text("code\n")
    create_home(here)
    assert (here / "roles/coder.yaml").read_text() == "mine\n"
    assert (here / "src.py").read_text() == "code\n"
    assert (here / "config.yaml").read_text() == "# config.yaml\n"
    assert mode(here) == 0o700


def touch(path: Path) -> None:
    path.write_text("mine\n")


def dangle(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("name", "make"),
    [(".", touch), ("roles", touch), ("roles", dangle), ("roles/ops", touch), ("sockets", dangle)],
)
def test_h4_clash_is_refused_before_anything_is_made(
    tmp_path: Path, starter: Path, name: str, make: Callable[[Path], None]
) -> None:
    in_the_way = tmp_path / "here" / name
    in_the_way.parent.mkdir(parents=True, exist_ok=True)
    make(in_the_way)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BullpenError, match=re.escape(f"{in_the_way} is in the way")) as caught:
        create_home(tmp_path / "here")
    assert caught.value.kind is Kind.CONFLICT
    assert sorted(tmp_path.rglob("*")) == before


def test_h4_read_only_parent_is_a_clear_error() -> None:
    base = Path(tempfile.mkdtemp(dir="/tmp"))
    base.chmod(0o555)
    code = (
        "import os, sys, pathlib; from bullpen import errors, files\n"
        "from bullpen.home import create as homes\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "try: homes.create_home(pathlib.Path(sys.argv[1]))\n"
        "except errors.BullpenError as error: print(error.kind.value, error.message)"
    )
    try:
        said = subprocess.check_output([sys.executable, "-c", code, base / "home"], text=True)
    finally:
        base.rmdir()
    assert said.startswith(f"denied cannot make the home {base}/home: Permission denied")


# Makes a home again and again, each time killed one file-system effect later.
KILLER = """
import os, signal, sys
from pathlib import Path
import bullpen.files, bullpen.home.create as homes, subprocess

homes.STARTER = Path(sys.argv[1])
EFFECTS = {"os.mkdir", "os.chmod", "os.rename", "os.link", "os.remove", "os.symlink", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def kill_before(count):
    left = count
    def watch(event, args):
        nonlocal left
        if event in EFFECTS or (event == "open" and args[2] & WRITING):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
    sys.addaudithook(watch)

count = 0
while True:
    child = os.fork()
    if child == 0:
        kill_before(count)
        homes.create_home(Path(sys.argv[2], str(count)))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        sys.exit(os.waitstatus_to_exitcode(status))
    count += 1
"""


@pytest.mark.storm
def test_h4_init_killed_at_any_step_is_completed_by_the_next(
    repo: Path, starter: Path, bullpen: Callable[..., Ran]
) -> None:
    subprocess.run([sys.executable, "-c", KILLER, starter, repo], check=True, timeout=600, cwd=repo)
    roots = [repo / str(number) for number in range(len([*repo.iterdir()]) - 1)]
    assert len(roots) > 30  # fifteen directories and six files, at the least
    completed = 0
    for root in roots:
        if not (root / ".bullpen-dir.txt").exists():
            create_home(root)
            completed += 1
        assert_complete(root)
    assert completed > 30
    assert git("status", "--porcelain", cwd=repo) == ""
    exclude = (repo / ".git/info/exclude").read_text().splitlines()
    assert all(exclude.count(f"/{root.name}/") == 1 for root in roots)


def test_h4_half_made_global_home_is_not_adopted(tmp_path: Path, starter: Path) -> None:
    """Adopting it would leave it without starter files for ever."""
    person = tmp_path / "person"
    (starter / "roles/zzz.yaml").symlink_to("nowhere")  # init fails while copying
    with pytest.raises(BullpenError):
        create_home(person / ".bullpen")
    assert (person / ".bullpen/roles").is_dir()
    with pytest.raises(BullpenError, match="no home"):
        find_home({}, tmp_path, person)


# One init stops just before its marker; another one comes; the first goes on.
RACER = """
import os, signal, sys
from pathlib import Path
import bullpen.files
from bullpen.errors import BullpenError
from bullpen.home.create import create_home

root = Path(sys.argv[1])
child = os.fork()
if child == 0:
    def watch(event, args):
        if event == "os.link" and str(args[1]).endswith(".bullpen-dir.txt"):
            os.kill(os.getpid(), signal.SIGSTOP)
    sys.addaudithook(watch)
    try:
        create_home(root)
    except BullpenError as error:
        os._exit(40 if error.kind.value == "conflict" else 41)
    os._exit(0)
assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
create_home(root)
os.kill(child, signal.SIGCONT)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_h4_of_two_inits_the_slower_one_refuses(tmp_path: Path) -> None:
    root = tmp_path / "home"
    done = subprocess.run([sys.executable, "-c", RACER, root], check=False, timeout=60)
    assert done.returncode == 40
    assert_complete(root)
    assert not list(root.rglob("*.new"))


@pytest.mark.storm
def test_h4_of_inits_at_once_exactly_one_makes_the_home(tmp_path: Path) -> None:
    started = [
        subprocess.Popen([BULLPEN, "init"], cwd=tmp_path, stdout=-1, stderr=-1) for _ in range(4)
    ]
    for process in started:
        process.communicate(timeout=60)
    assert sorted(process.returncode for process in started) == [0, 5, 5, 5]
    assert_complete(tmp_path / ".bullpen")


def test_h4_home_is_excluded_from_git(repo: Path, bullpen: Callable[..., Ran]) -> None:
    (repo / ".git/info/exclude").write_text("*.o")  # no newline at the end
    (repo / "sub").mkdir()
    assert bullpen("init", cwd=repo / "sub").code == 0
    assert (repo / ".git/info/exclude").read_text() == "*.o\n/sub/.bullpen/\n"
    assert git("status", "--porcelain", cwd=repo) == ""


def test_h4_exclude_is_made_where_it_is_missing(repo: Path) -> None:
    shutil.rmtree(repo / ".git/info")
    create_home(repo / ".bullpen")
    assert git("status", "--porcelain", cwd=repo) == ""


@pytest.mark.parametrize(
    "name", ["a*b", "[x]", "what?", "back\\slash", "#hash", "!bang", " space ", "näh", "new\nline"]
)
def test_h4_exclude_holds_any_name_and_only_that(repo: Path, name: str) -> None:
    create_home(repo / name)
    (repo / "a-b").mkdir()
    (repo / "a-b/seen").touch()
    (repo / "deeper" / name).mkdir(parents=True)
    (repo / "deeper" / name / "seen").touch()
    assert git("status", "--porcelain", cwd=repo).splitlines() == ["?? a-b/", "?? deeper/"]


def test_h4_exclude_in_a_linked_worktree(repo: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git("worktree", "add", "-q", str(linked), cwd=repo)
    create_home(linked / ".bullpen")
    assert "/.bullpen/" in (repo / ".git/info/exclude").read_text().splitlines()
    assert git("status", "--porcelain", cwd=linked) == ""


def test_h4_inherited_git_variables_do_not_mislead(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("init", "-q", "other", cwd=tmp_path)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    create_home(repo / ".bullpen")
    assert "/.bullpen/" in (repo / ".git/info/exclude").read_text()
    assert "/.bullpen/" not in (tmp_path / "other/.git/info/exclude").read_text()


def test_h4_home_that_is_the_repository_hides_only_what_must_not_be_committed(
    repo: Path, starter: Path
) -> None:
    (repo / "src.py").touch()
    create_home(repo)
    for name in ("credentials/key", "sessions/env", "state.db", "state.db-wal", ".env"):
        (repo / name).touch()
    shown = git("status", "--porcelain", "-uall", cwd=repo).split()[1::2]
    assert sorted(shown) == [
        "config.yaml",
        "pods/templates/x.yaml",
        "roles/coder.yaml",
        "roles/ops/role.yaml",
        "src.py",
    ]


def test_h4_exclude_pattern_is_anchored() -> None:
    assert exclude_patterns("sub/.bullpen/") == ("/sub/.bullpen/",)


def test_h4_init_works_without_git(tmp_path: Path, bullpen: Callable[..., Ran]) -> None:
    assert bullpen("init", PATH=str(tmp_path)).code == 0
    assert_complete(tmp_path / ".bullpen")


# ── files that git does not track ──


@pytest.fixture
def with_env(tmp_path: Path) -> Path:
    repo = make_repo(tmp_path / "shop")
    for name in (".env", ".env.local", ".env.example", ".env.shared"):
        (repo / name).write_text("KEY=1\n")
    git("add", "-f", ".env.shared", cwd=repo)
    return repo


def test_w14_init_finds_files_like_env_that_git_does_not_track(with_env: Path) -> None:
    assert find_local_files(with_env) == [".env", ".env.local"]
    assert find_local_files(with_env.parent) == []


def test_w14_starter_roles_bring_them_into_worktrees_and_deny_reading_them(with_env: Path) -> None:
    home = create_home(with_env / ".bullpen")
    copy_in_roles(home, [".env", ".env.local"])
    copy_in_roles(home, [".env"])  # once
    for name in ("coder", "developer", "researcher"):
        role = load_role(find_role(name, home.roles))
        assert role.worktree.copy_globs == (".env", ".env.local"), name
    assert "Read(**/.env)" in load_role(find_role("coder", home.roles)).permissions.deny
    for name in ("ops", "codex"):  # no worktree; no rule that keeps it from reading
        assert load_role(find_role(name, home.roles)).worktree.copy_globs == ()


def test_w14_init_without_a_terminal_says_what_is_not_in_worktrees(
    with_env: Path, bullpen: Callable[..., Ran]
) -> None:
    ran = bullpen("init", cwd=with_env)
    assert ran.code == 0
    assert "Not in worktrees: .env, .env.local · worktree.copy" in ran.out
