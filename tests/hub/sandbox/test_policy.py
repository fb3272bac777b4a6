"""From a role and a start to a policy: what of PATH a sandbox shows. Nothing is started."""

import uuid
from pathlib import Path

import pytest

from bullpen.engines import Start, get_engine
from bullpen.hub.sandbox.policy import plan
from bullpen.hub.sandbox.private_git import find_store, why_read_only
from bullpen.model.agent import WorktreeRef
from bullpen.model.role import Role
from bullpen.model.state import Working
from bullpen.sandboxes import Policy
from bullpen.sandboxes.bounds import normalize
from bullpen.sandboxes.mounts import mounts
from tests.homes import accept, marked
from tests.hub.live_agents import live


@pytest.fixture
def person(tmp_path: Path) -> Path:
    for name in ("me", "cwd", "home/sessions/amy/api"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "me"


def policy_of(person: Path, *entries: str, **env: str) -> Policy:
    root = person.parent
    role = Role.model_validate({"name": "r", "agent_type": "command", "command": ["true"]})
    start = Start(
        role=role,
        words=(),
        agent="amy",
        cwd=str(root / "cwd"),
        session=root / "home" / "sessions" / "amy",
        home=root / "home",
        person=person,
        env={
            "PATH": ":".join(str(person / entry) for entry in entries),
            "HOME": str(person),
            **env,
        },
    )
    engine = get_engine("command")
    return plan(9000, role, engine, start, None, real_cwd="", keep=(), is_terminal=True).policy


def shown(person: Path, *entries: str) -> set[str]:
    """What of the person's home the programs bring, relative to it."""
    lines = mounts(normalize(policy_of(person, *entries)))
    paths = {line.path for line in lines if line.name == "programs"}
    return {str(path.relative_to(person)) for path in paths if path.is_relative_to(person)}


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_x2_programs_that_links_on_path_lead_to_are_shown_and_nothing_beside_them(
    person: Path,
) -> None:
    executable(person / ".bun/install/global/node_modules/x/run.js")
    executable(person / ".krew/store/plugin")
    executable(person / "shop/run.sh")
    (person / "shop/.env").write_text("secret")
    (person / "shop/key").write_text("secret")
    (person / ".bun/bin").mkdir()
    (person / ".bun/bin/x").symlink_to("../install/global/node_modules/x/run.js")
    for name, target in (("plugin", ".krew/store/plugin"), ("key", "shop/key")):
        (person / ".bun/bin" / name).symlink_to(person / target)
    assert shown(person, ".bun/bin") == {
        *(".bun/bin", ".bun/install/global/node_modules", ".krew/store/plugin")
    }


def test_x5_links_that_an_agent_may_have_put_on_path_show_nothing(person: Path) -> None:
    secret = executable(person / "private/run.sh")
    own = person.parent / "cwd" / "bin"
    own.mkdir()
    (own / "run").symlink_to(secret)
    (person / "tools").symlink_to(own)  # by another name, below the home directory
    assert shown(person, str(own)) == set()
    assert shown(person, "tools") == {"tools"}
    # A link of the person's own leads there.
    (person / "bin").mkdir()
    (person / "bin" / "run").symlink_to(secret)
    assert shown(person, "bin") == {"bin", "private/run.sh"}


def test_x2_many_links_do_not_become_many_mounts(person: Path) -> None:
    (person / "bin").mkdir()
    for number in range(100):
        name = f"run{number}"
        (person / "bin" / name).symlink_to(executable(person / "scripts" / name))
    assert 1 < len(shown(person, "bin")) <= 33


@pytest.mark.parametrize("told", ["", "/elsewhere"])
def test_x2_other_homes_of_the_person_are_masked_where_it_works(person: Path, told: str) -> None:
    """Whatever the one who starts the agent says of where the list is."""
    outside, inside = (accept(marked(person.parent / name), person) for name in ("out", "cwd/in"))
    accept(marked(person.parent / "home"), person)
    policy = policy_of(person, XDG_CONFIG_HOME=told)
    assert {outside, inside, person / ".config/bullpen"} <= set(policy.hidden)
    assert person.parent / "home" not in policy.hidden
    masked = [line.path for line in mounts(normalize(policy)) if line.name == "other-homes"]
    assert masked == [inside]
    # A person who keeps the configuration in a repository: the list is masked there, too.
    policy = policy_of(person, XDG_CONFIG_HOME=str(person.parent / "cwd/config"))
    masked = [line.path for line in mounts(normalize(policy)) if line.name == "other-homes"]
    assert set(masked) == {inside, person.parent / "cwd/config/bullpen"}


def test_x3_a_listed_home_that_cannot_be_looked_at_keeps_no_agent_from_starting(
    person: Path,
) -> None:
    """The system refuses to look at it, also as root."""
    homes = person / ".config/bullpen/homes"
    homes.parent.mkdir(parents=True)
    homes.write_text(f"{uuid.uuid4()} /{'x' * 300}\n")
    other = accept(marked(person.parent / "out"), person)
    with pytest.raises(OSError, match="too long"):
        Path("/" + "x" * 300).is_dir()
    assert other in policy_of(person).hidden


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        ("[core]\n\tbare = false\n", False),
        ("[extensions]\n\trefStorage = files\n", False),
        ("[extensions]\n\trefStorage = reftable\n", True),
    ],
)
def test_x7_who_can_have_no_git_of_its_own_is_told(
    tmp_path: Path, settings: str, is_told: bool
) -> None:
    (tmp_path / "config").write_text(settings)
    worktree = WorktreeRef(name="amy", repo=str(tmp_path), path="/w")
    agent = live("amy", Working()).agent.model_copy(update={"worktree": worktree})
    assert bool(why_read_only(agent)) == is_told


def test_x8_a_directory_that_nobody_can_look_at_has_no_private_git(tmp_path: Path) -> None:
    """The hub looks at every agent's when it begins: a dead disk must not keep it from that."""
    agent = live("amy", Working()).agent
    broken = agent.model_copy(update={"is_sandboxed": True, "cwd": f"{tmp_path}/{'x' * 300}"})
    assert find_store(tmp_path, broken) is None
