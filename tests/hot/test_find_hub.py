"""The light search for the home finds what the full one finds, or leaves it to that one."""

import contextlib
import os
import shutil
import socket as socket_module
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bullpen import __version__
from bullpen.errors import BullpenError
from bullpen.home import marker, paths
from bullpen.home.paths import HUB, Home, find_home
from bullpen.hot import find_hub, known_homes, permission
from tests.homes import accept

CURRENT = f"v{__version__}\n"
NOBODY = 65534


@pytest.fixture
def base() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def light(base: Path, cwd: Path, **env: str) -> Path | None:
    environ = {"HOME": str(base / "me"), **env}
    encoded = {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}
    try:
        found = find_hub.find_home(encoded, os.fsencode(cwd))
    except OSError:
        return None
    return found and Path(os.fsdecode(found))


def full(base: Path, cwd: Path, **env: str) -> Path | None:
    try:
        return find_home(env, cwd, base / "me").root
    except (BullpenError, OSError):
        return None


def test_the_two_share_their_constants() -> None:
    assert known_homes.MARKER.decode() == marker.MARKER
    assert known_homes.ID.decode() == marker.ID
    assert set(map(bytes.decode, known_homes.WORKING)) <= set(paths.DIRECTORIES)
    assert find_hub.SOCKET_BYTES == paths.SOCKET_BYTES


# Directories of a small world, and what may be in them.
DIRECTORIES = ["a", "a/b", "a/b/c", "a/.bullpen", "a/b/.bullpen", "me", "me/.bullpen", "x", "x/y"]
MARKERS = [CURRENT, CURRENT, "v0.0.1\n", "v99.0.0\n", f"v{__version__}", "", "junk", "directory"]
LINKS = {
    "a/b/c/.bullpen": ["../../../x", "../.bullpen", "nowhere", ".bullpen"],
    "link": ["a/b", "x", "link"],
    "x/y/.bullpen": ["../../me/.bullpen", "/nowhere"],
    "x/y/.bullpen-dir.txt": ["../../a/.bullpen/.bullpen-dir.txt", "gone"],
}
NAMED = [
    None,
    "",
    "~",
    "~/.bullpen",
    "~//.bullpen/",
    "~you",
    "b",
    "../b/.bullpen",
    "./.bullpen/.",
    "{base}/link",
    "{base}/link/.bullpen",
    "{base}/a//b/../.bullpen",
    "{base}/nowhere",
]


@settings(max_examples=80)
@given(
    markers=st.dictionaries(st.sampled_from(DIRECTORIES), st.sampled_from(MARKERS), max_size=5),
    links=st.fixed_dictionaries(
        {}, optional={link: st.sampled_from(targets) for link, targets in LINKS.items()}
    ),
    cwd=st.sampled_from(["", *DIRECTORIES, "link", "link/c"]),
    named=st.sampled_from(NAMED),
    unlisted=st.sets(st.sampled_from(DIRECTORIES), max_size=2),
)
@example(markers={"a": CURRENT}, links={"link": "a/b"}, cwd="link/c", named=None, unlisted=set())
@example(
    markers={"x": CURRENT},
    links={"a/b/c/.bullpen": "../../../x"},
    cwd="a/b/c",
    named="",
    unlisted=set(),
)
@example(
    markers={"a/b": "directory", "a": CURRENT}, links={}, cwd="a/b", named=None, unlisted=set()
)
@example(markers={"me/.bullpen": CURRENT}, links={}, cwd="a", named="~//.bullpen/", unlisted=set())
@example(
    markers={"a/.bullpen": CURRENT, "a": CURRENT},
    links={},
    cwd="a/b",
    named=None,
    unlisted={"a"},
)
def test_h1_it_agrees_with_the_full_search(
    base: Path,
    markers: dict[str, str],
    links: dict[str, str],
    cwd: str,
    named: str | None,
    unlisted: set[str],
) -> None:
    world = Path(tempfile.mkdtemp(dir=base))
    for name in DIRECTORIES:
        (world / name).mkdir(parents=True, exist_ok=True)
    for name, content in markers.items():
        path = world / name / marker.MARKER
        if content == "directory":
            path.mkdir()
        else:
            path.write_text(content)
    for name, target in links.items():
        with contextlib.suppress(FileExistsError):
            (world / name).symlink_to(target)
    _list(world, [name for name in DIRECTORIES if name not in unlisted])
    # A process is never in a link, nor in a directory that is not there.
    here = (world / cwd).resolve() if (world / cwd).is_dir() else world
    env = {} if named is None else {"BULLPEN_DIR": named.replace("{base}", str(world))}

    ours = light(world, here, **env)
    theirs = full(world, here, **env)  # this one may migrate: it comes second

    if ours is not None:
        assert ours.resolve() == theirs
    elif theirs is not None:
        # Left to the full search only for a reason: a link is none that is listed.
        assert links or _content(markers, links, world, theirs) != CURRENT


def _list(world: Path, names: list[str]) -> None:
    """As `init` does, without waiting for the disk each time."""
    lines = []
    for number, name in enumerate(names):
        (world / name / marker.ID).write_text(f"{number:016x}\n")
        lines.append(known_homes.line(b"%016x" % number, os.fsencode((world / name).resolve())))
    path = world / "me/.config/bullpen/homes"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\n".join([*lines, b""]))


def _content(markers: dict[str, str], links: dict[str, str], world: Path, home: Path) -> str:
    """What the marker of the home was before anybody migrated it."""
    if home == world / "x/y" and "x/y" not in markers:
        home = world / "a/.bullpen"  # through the link of LINKS
    return markers[str(home.relative_to(world))]


def test_it_finds_the_same_socket(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = base / "work/.bullpen"
    home.mkdir(parents=True)
    (home / marker.MARKER).write_text(CURRENT)
    accept(home, base)
    (home.parent / "deep/er").mkdir(parents=True)
    monkeypatch.chdir(home.parent / "deep/er")
    found = find_hub.find_socket({b"HOME": os.fsencode(base)})
    assert found == os.fsencode(Home(home).socket(HUB))


def test_h5_a_path_too_long_for_a_socket_is_left_alone(base: Path) -> None:
    home = base / ("long" * 25)
    home.mkdir()
    (home / marker.MARKER).write_text(CURRENT)
    environ = {b"HOME": b"/nowhere", b"BULLPEN_DIR": bytes(home)}
    assert find_hub.find_home(environ, b"/") == bytes(home)
    assert find_hub.find_socket(environ) is None


@pytest.mark.skipif(os.getuid() != 0, reason="giving a directory away takes root")
def test_h1_somebody_elses_home_is_left_alone(base: Path) -> None:
    home = base / ".bullpen"
    home.mkdir()
    (home / marker.MARKER).write_text(CURRENT)
    accept(home, base / "me")
    assert light(base, base) == home
    os.chown(home, NOBODY, NOBODY)
    assert light(base, base) is None
    assert light(base, base, BULLPEN_DIR=str(home)) is None


@pytest.mark.parametrize("person", ["", "relative"])
def test_odd_home_of_the_person_is_left_alone(base: Path, person: str) -> None:
    (base / ".bullpen").mkdir()
    (base / ".bullpen" / marker.MARKER).write_text(CURRENT)
    assert light(base, base, HOME=person) is None


def test_deleted_current_directory_is_left_alone(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = base / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_hub.find_socket({b"HOME": b"/nowhere", b"BULLPEN_DIR": bytes(base)}) is None


def test_b6_the_token_is_sent_when_there_is_one() -> None:
    assert find_hub.headers({}) == find_hub.headers({b"BULLPEN_TOKEN": b""}) == {}
    assert find_hub.headers({b"BULLPEN_TOKEN": b"t0"}) == {"authorization": "Bearer t0"}


# -- an agent's own socket -----------------------------------------------------------------------


def agent(
    base: Path, session: Path, *, agent_socket: bool, socket: bool, marked: bool
) -> find_hub.Environment:
    """The environment of an agent; of its home there is what is said."""
    home = base / "home"
    (home / "sockets").mkdir(parents=True)
    if marked:
        (home / marker.MARKER).write_text(CURRENT)
    if socket:
        (home / "sockets/hub.sock").touch()
    (session / "api").mkdir(parents=True)
    if agent_socket:
        (session / "api/hub.sock").touch()
    names = {"HOME": "/nowhere", "BULLPEN_DIR": home, "BULLPEN_SESSION_DIR": session}
    return {os.fsencode(name): os.fsencode(value) for name, value in names.items()}


@pytest.mark.parametrize("agent_socket", [True, False])
@pytest.mark.parametrize("socket", [True, False])
@pytest.mark.parametrize("marked", [True, False])
def test_x2_the_door_is_used_where_the_homes_socket_is_not_to_be_seen(
    base: Path, agent_socket: bool, socket: bool, marked: bool
) -> None:
    session = base / "home/sessions/amy"
    environ = agent(base, session, agent_socket=agent_socket, socket=socket, marked=marked)
    at_home = bytes(base / "home/sockets/hub.sock") if marked else None
    at_agent_socket = bytes(session / "api/hub.sock") if agent_socket else None
    assert find_hub.find_agent_socket(environ) == at_agent_socket
    assert find_hub.find_home_socket(environ) == at_home
    assert find_hub.find_socket(environ) == (
        at_home if at_home and socket else at_agent_socket or at_home
    )
    assert permission.find_sockets(environ) == [each for each in (at_agent_socket, at_home) if each]


def test_x2_a_door_of_a_deep_home_is_reached_by_its_directory(base: Path) -> None:
    session = base / ("d" * 60) / ("e" * 60) / "sessions/amy"
    environ = agent(base, session, agent_socket=False, socket=False, marked=False)
    with socket_module.socket(socket_module.AF_UNIX) as listener:
        with contextlib.chdir(session / "api"):
            listener.bind("hub.sock")
        listener.listen()
        found = find_hub.find_agent_socket(environ)
        assert found is not None
        assert len(found) < find_hub.SOCKET_BYTES
        with socket_module.socket(socket_module.AF_UNIX) as talk:
            talk.connect(found)
        os.close(int(found.split(b"/")[4]))


@pytest.mark.parametrize("session", [b"", b"relative", b"/nowhere"])
def test_a_session_that_is_none_has_no_socket(session: bytes) -> None:
    assert find_hub.find_agent_socket({b"BULLPEN_SESSION_DIR": session}) is None


def test_a_door_below_the_current_directory_is_not_the_agents(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever plants a directory where an agent works could listen to it."""
    (base / "planted/api").mkdir(parents=True)
    (base / "planted/api/hub.sock").touch()
    monkeypatch.chdir(base)
    assert find_hub.find_agent_socket({b"BULLPEN_SESSION_DIR": b"planted"}) is None
    absolute = os.fsencode(base / "planted")
    assert (
        find_hub.find_agent_socket({b"BULLPEN_SESSION_DIR": absolute})
        == absolute + b"/api/hub.sock"
    )


@pytest.mark.parametrize("more", [0, 1])
def test_h5_the_longest_path_of_a_socket_is_used_and_no_longer_one(base: Path, more: int) -> None:
    root = base / ("h" * (100 + more - len(f"{base}//sockets/hub.sock")))
    root.mkdir()
    (root / marker.MARKER).write_text(f"v{__version__}\n")
    path = os.fsencode(root / "sockets/hub.sock")
    assert len(path) == 100 + more
    environ = {b"HOME": os.fsencode(base), b"BULLPEN_DIR": os.fsencode(root)}
    assert find_hub.find_home_socket(environ) == (None if more else path)
