"""What a policy becomes, as text: no sandbox is started here but to see that none can be."""

import errno
import os
import socket
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from bullpen.errors import BullpenError, Kind
from bullpen.sandboxes import SANDBOXES, calls, get_sandbox
from bullpen.sandboxes.base import Git, Network, Policy
from bullpen.sandboxes.bounds import normalize
from bullpen.sandboxes.bubblewrap import BUBBLEWRAP, arguments
from bullpen.sandboxes.environment import cut
from bullpen.sandboxes.mounts import mounts
from bullpen.sandboxes.none import NONE
from bullpen.sandboxes.seatbelt import SEATBELT, profile


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    root = Path(os.path.realpath(tmp_path))
    made = Policy(
        cwd=root / "home" / "worktrees" / "amy",
        home=root / "home",
        session=root / "home" / "sessions" / "amy",
        person=root / "person",
        sockets=root / "home" / "sessions" / "amy" / "api",
        programs=(root / "person" / ".pyenv", root / "person"),
        git=Git(root / "repo/.git", root / "repo/.git/worktrees/amy", root / "home/worktrees/amy"),
    )
    for path in (made.cwd, made.sockets, *made.programs, root / "repo/.git/worktrees/amy"):
        path.mkdir(parents=True, exist_ok=True)
    return made


def places(words: list[str], path: Path) -> list[int]:
    """Where a path stands as a destination."""
    return [number for number, word in enumerate(words) if word == str(path)]


def test_x1_one_sandbox_for_each_system_and_none() -> None:
    assert get_sandbox("linux") is BUBBLEWRAP
    assert get_sandbox("darwin") is SEATBELT
    assert {name: sandbox.name for name, sandbox in SANDBOXES.items()} == {
        name: name for name in ("bubblewrap", "seatbelt", "none")
    }


def test_x1_none_changes_nothing(policy: Policy) -> None:
    wrapped = NONE.wrap(("prog", "word"), {"A": "b"}, policy)
    assert (wrapped.argv, wrapped.env) == (("prog", "word"), {"A": "b"})
    assert NONE.unavailable() == ""


def test_x2_outer_first_exceptions_after(policy: Policy) -> None:
    words = arguments(normalize(policy))
    (home,) = places(words, policy.home)
    assert words[home - 1] == "--tmpfs"
    for later in (policy.cwd, policy.session, policy.sockets):
        assert min(places(words, later)) > home
    assert policy.git
    (common,) = places(words, policy.git.common)
    assert words[common - 2] == "--bind"
    assert words[common - 1] == str(policy.git.common / "bullpen" / "private" / "amy" / "git")
    assert min(places(words, policy.git.common / "objects" / "info")) > common
    assert not places(words, policy.git.admin)


def test_x2_a_home_in_the_working_directory_comes_after_it(policy: Policy) -> None:
    root = policy.home.parent
    inside = replace(policy, cwd=root, git=None, read_only=(root,))
    words = arguments(normalize(inside))
    assert max(places(words, root)[:-1]) < min(places(words, policy.home))
    assert max(places(words, root)[:-1]) < min(places(words, policy.person))


def test_x2_a_program_root_that_holds_the_persons_directory_is_left_out(policy: Policy) -> None:
    words = arguments(normalize(policy))
    (person,) = places(words, policy.person)
    assert words[person - 1] == "--tmpfs"
    assert len(places(words, policy.person / ".pyenv")) == 2


def test_x2_an_entry_of_the_path_that_cannot_be_looked_at_is_passed_over(policy: Policy) -> None:
    # As a directory of another user is for an ordinary one; this one is so for root, too.
    odd = Path("/opt", "x" * 300)
    words = arguments(normalize(replace(policy, programs=(*policy.programs, odd))))
    assert places(words, policy.person / ".pyenv")
    assert not places(words, odd)


def test_x2_a_program_in_the_working_directory_stays_writable(policy: Policy) -> None:
    own = policy.cwd / ".venv"
    own.mkdir()
    assert places(arguments(normalize(replace(policy, programs=(own,)))), own) == []


@pytest.mark.parametrize(
    "name", [".", "sessions", "sessions/bob", "sockets", "credentials", "worktrees", "sessions/amy"]
)
def test_x3_no_working_directory_among_the_hubs_own_files(policy: Policy, name: str) -> None:
    with pytest.raises(BullpenError) as raised:
        normalize(replace(policy, cwd=policy.home / name))
    assert raised.value.kind is Kind.DENIED


@pytest.mark.parametrize("path", ["/", "/tmp", "/etc", "/usr", "/proc"])
def test_x3_no_working_directory_that_is_the_systems(policy: Policy, path: str) -> None:
    with pytest.raises(BullpenError, match="cannot let an agent write"):
        normalize(replace(policy, cwd=Path(path)))
    with pytest.raises(BullpenError, match="cannot let an agent write"):
        normalize(replace(policy, writable=(Path(path),)))


def test_x3_not_the_persons_own_directory(policy: Policy) -> None:
    with pytest.raises(BullpenError, match="your keys"):
        normalize(replace(policy, cwd=policy.person))
    link = policy.cwd.parent / "link"
    link.symlink_to(policy.person)
    with pytest.raises(BullpenError, match="your keys"):
        normalize(replace(policy, cwd=link))


def test_x2_links_are_resolved_before_paths_are_compared(policy: Policy) -> None:
    link = policy.person / "project"
    link.symlink_to(policy.cwd)
    assert normalize(replace(policy, cwd=link)).cwd == policy.cwd


def test_x2_a_program_is_shown_by_its_name_and_by_the_links(policy: Policy) -> None:
    """But not once more where its link is shown already: nothing can be mounted on a link."""
    tools, shelf = policy.cwd.parent / "tools", policy.cwd.parent / "shelf"
    (tools / "v2" / "bin").mkdir(parents=True)
    shelf.mkdir()
    (shelf / "current").symlink_to(tools / "v2")
    asked = replace(policy, programs=(shelf / "current" / "bin",))
    assert shown(asked) == {shelf / "current" / "bin", tools / "v2" / "bin"}
    asked = replace(policy, programs=(shelf / "current",), read_only=(shelf,))
    assert shown(asked) == {tools / "v2"}


def shown(policy: Policy) -> set[Path]:
    return {line.path for line in mounts(normalize(policy)) if line.name == "programs"}


@pytest.mark.parametrize("below", ["", "inner"])
def test_x5_a_planted_link_does_not_choose_what_is_shown(policy: Policy, below: str) -> None:
    (policy.cwd / "docs").symlink_to(policy.person)
    path = policy.cwd / "docs" / below
    with pytest.raises(BullpenError, match="by a link that an agent may have made"):
        normalize(replace(policy, read_only=(path,)))


def test_x2_the_environment_is_a_list_of_what_may_pass(policy: Policy) -> None:
    given = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "ANTHROPIC_API_KEY": "k",
        "OPENAI_API_KEY": "o",
        "BULLPEN_TOKEN": "t",
        "GIT_AUTHOR_NAME": "A",
        "AWS_SECRET_ACCESS_KEY": "s",
        "LD_PRELOAD": "x",
        "SSH_AUTH_SOCK": "/x",
        "GIT_DIR": "/x",
        "XDG_RUNTIME_DIR": "/run/user/0",
        "MY_OWN": "m",
    }
    own = {"keep": frozenset({"MY_OWN"}), "prefixes": ("ANTHROPIC_",)}
    passed = cut(given, replace(policy, **own))
    names = {"PATH", "LC_ALL", "ANTHROPIC_API_KEY", "BULLPEN_TOKEN", "GIT_AUTHOR_NAME", "MY_OWN"}
    assert set(passed) == names


def test_x2_the_ssh_agent_only_when_the_role_says_so(policy: Policy) -> None:
    env = {"SSH_AUTH_SOCK": "/run/agent"}
    without = BUBBLEWRAP.wrap(("true",), env, policy)
    assert "SSH_AUTH_SOCK" not in without.env
    assert "commit.gpgSign" in without.env.values()
    agent = policy.person / "agent.sock"
    agent.touch()
    given = BUBBLEWRAP.wrap(("true",), env, replace(policy, ssh_agent=agent))
    assert given.env["SSH_AUTH_SOCK"] == str(agent)
    assert "commit.gpgSign" not in given.env.values()
    assert str(agent) in given.argv


def test_x2_a_terminal_keeps_its_session_and_pipes_insist_on_none(policy: Policy) -> None:
    terminal = BUBBLEWRAP.wrap(("true",), {}, policy)
    pipes = BUBBLEWRAP.wrap(("true",), {}, replace(policy, is_terminal=False))
    assert "/dev/tty" not in terminal.argv[2]
    assert "/dev/tty" in pipes.argv[2]


# ── when there can be none ───────────────────────────────────────────────────


def test_x3_bubblewrap_that_works_is_available() -> None:
    assert BUBBLEWRAP.unavailable() == ""


def test_x3_missing_bubblewrap_says_what_to_install(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = BUBBLEWRAP.unavailable()
    assert "not installed" in said
    assert "apt install bubblewrap" in said
    assert "sandbox.enabled: false" in said
    with pytest.raises(BullpenError) as raised:
        BUBBLEWRAP.wrap(("true",), {}, policy)
    assert raised.value.kind is Kind.UNAVAILABLE


def test_x3_bubblewrap_that_fails_names_the_usual_causes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(
        "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    said = BUBBLEWRAP.unavailable()
    for words in (
        "setting up uid map: Permission denied",
        "kernel.apparmor_restrict_unprivileged_userns=0",
        "container",
        "sandbox.enabled: false",
    ):
        assert words in said


# ── macOS ────────────────────────────────────────────────────────────────────


def test_x1_the_profile_denies_by_default_and_names_what_is_open(policy: Policy) -> None:
    text = profile(normalize(policy))
    lines = text.splitlines()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    for path in ("/usr", "/Library", "/System", "/bin", "/sbin", "/private/var"):
        assert f'(allow file-read* (subpath "{path}"))' in lines
    for path in ("/dev/null", "/dev/random", "/dev/urandom"):
        assert f'(allow file-read* file-write* (literal "{path}"))' in lines
    for path in ("/private/tmp", "/var/folders"):
        assert f'(allow file-read* file-write* (subpath "{path}"))' in lines


def test_x1_the_last_rule_of_the_profile_is_the_innermost(policy: Policy) -> None:
    assert policy.git
    lines = profile(normalize(policy)).splitlines()

    def last(path: Path) -> int:
        return max(number for number, line in enumerate(lines) if f'"{path}"' in line)

    assert lines[last(policy.home)].startswith("(deny file-read* file-write*")
    assert last(policy.home) < last(policy.session) < last(policy.sockets)
    assert last(policy.home) < last(policy.cwd)
    assert lines[last(policy.session)].startswith("(deny file-write*")
    assert lines[last(policy.session / "private")].startswith("(deny file-read* file-write*")
    assert lines[last(policy.git.common / "bullpen")].startswith("(deny file-read*")
    assert lines[last(policy.git.admin / "commondir")].startswith("(deny file-write*")
    assert last(policy.git.common) < last(policy.git.admin) < last(policy.git.admin / "commondir")


def test_x1_names_cannot_break_out_of_the_profile(policy: Policy) -> None:
    odd = policy.cwd / 'a") (allow default) ("'
    odd.mkdir()
    text = profile(normalize(replace(policy, writable=(odd,))))
    assert "\n(allow default)" not in text
    assert r"a\") (allow default) (\"" in text


def test_x3_no_network_cannot_be_had_on_macos(policy: Policy) -> None:
    with pytest.raises(BullpenError) as raised:
        SEATBELT.wrap(("true",), {}, replace(policy, network=Network(1, 2)))
    assert raised.value.kind is Kind.UNSUPPORTED


def test_x3_seatbelt_says_that_it_is_missing_elsewhere() -> None:
    if os.uname().sysname == "Darwin":
        pytest.skip("it is there")
    assert "sandbox-exec" in SEATBELT.unavailable()


def test_x2_an_interpreter_around_the_home_does_not_bring_it_back(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """~/.local may hold both the relay's interpreter and Bullpen's home."""
    around = policy.home.parent
    monkeypatch.setattr("sys.base_prefix", str(around))
    words = arguments(normalize(replace(policy, network=Network(4001, 4002))))
    assert max(places(words, around)) < min(places(words, policy.home))
    assert max(places(words, around)) < min(places(words, policy.person))


@pytest.mark.parametrize("name", ["bin", "linked/bin"])
def test_x5_a_planted_link_in_the_path_shows_nothing(policy: Policy, name: str) -> None:
    """`PATH` may name directories of the worktree."""
    (policy.cwd / "bin").symlink_to(policy.person / ".ssh")
    (policy.cwd / "linked").symlink_to(policy.cwd)
    (policy.person / ".ssh").mkdir()
    words = arguments(normalize(replace(policy, programs=(policy.cwd / name,))))
    assert str(policy.person / ".ssh") not in words


# ── calls ──


def answer(machine: str, architecture: int, number: int, first: int = 0) -> int:
    """What the kernel would do: 0 for an allowed call, else the error that it is refused with."""
    data = struct.pack("=IIQQ", number, architecture, 0, first)
    words = list(struct.iter_unpack("=HBBI", calls.program(machine)))
    loaded = position = 0
    for _ in words:  # no program jumps back
        code, if_so, if_not, value = words[position]
        position += 1
        match code:
            case calls.LOAD:
                (loaded,) = struct.unpack_from("=I", data, value)
            case calls.EQUAL:
                position += if_so if loaded == value else if_not
            case calls.AT_LEAST:
                position += if_so if loaded >= value else if_not
            case calls.RETURN:
                return 0 if value == calls.ALLOW else value & 0xFFFF
    raise AssertionError("no answer")


@pytest.mark.parametrize("machine", calls.NUMBERS)
def test_x2_calls_that_no_namespace_keeps_in_are_refused_and_all_others_allowed(
    machine: str,
) -> None:
    for architecture, (refused, opens) in calls.NUMBERS[machine].items():
        for number in range(500):
            wanted = errno.ENOSYS if number in refused else 0
            assert answer(machine, architecture, number, socket.AF_UNIX) == wanted, number
        assert answer(machine, architecture, opens, calls.AF_VSOCK) == errno.EAFNOSUPPORT
        assert answer(machine, architecture, opens + calls.X32, calls.AF_VSOCK) == errno.ENOSYS
    assert answer(machine, 1, 0) == errno.ENOSYS
    assert calls.program("one that is not known") == b""
