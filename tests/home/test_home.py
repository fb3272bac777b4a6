"""Where the home is found, which are refused, and how its sockets are reached."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bullpen.errors import BullpenError, Kind
from bullpen.home import paths
from bullpen.home.create import create_home
from bullpen.home.paths import (
    DIRECTORIES,
    Home,
    filesystem_of,
    find_home,
    is_unfit,
    remove_stale_sockets,
    short_sockets,
)
from tests.commands import Ran
from tests.homes import accept, marked

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="giving a directory away takes root")


@pytest.fixture
def person(tmp_path: Path) -> Path:
    return tmp_path / "person"


@pytest.fixture
def short_temp() -> Iterator[Path]:
    """As short as /tmp is in real life; pytest's own directories are too long to bind in."""
    path = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def test_h1_bullpen_dir_comes_first(tmp_path: Path, person: Path) -> None:
    named, above = marked(tmp_path / "named"), marked(tmp_path / "work/.bullpen")
    marked(person / ".bullpen")
    assert find_home({"BULLPEN_DIR": str(named)}, above.parent, person).root == named


@pytest.mark.parametrize("text", ["~/x/home", "../x/home", "~//x/home"])
def test_h1_bullpen_dir_expands_and_becomes_absolute(person: Path, text: str) -> None:
    home = marked(person / "x/home")
    (person / "code").mkdir()
    assert find_home({"BULLPEN_DIR": text}, person / "code", person).root == home


def test_h1_bullpen_dir_without_marker_names_directory_and_marker(
    tmp_path: Path, person: Path
) -> None:
    marked(person / ".bullpen")
    with pytest.raises(BullpenError) as caught:
        find_home({"BULLPEN_DIR": "empty"}, tmp_path, person)
    assert str(tmp_path / "empty") in caught.value.message
    assert ".bullpen-dir.txt" in caught.value.message


def test_h1_empty_bullpen_dir_is_none(person: Path) -> None:
    home = marked(person / ".bullpen")
    assert find_home({"BULLPEN_DIR": ""}, Path("/"), person).root == home


def test_h1_nearest_home_above_wins(tmp_path: Path, person: Path) -> None:
    outer, inner = marked(tmp_path / "a/.bullpen"), marked(tmp_path / "a/b/.bullpen")
    for home in (outer, inner):
        accept(home, person)
    marked(person / ".bullpen")
    (tmp_path / "a/b/c").mkdir()
    assert find_home({}, tmp_path / "a/b/c", person).root == inner
    assert find_home({}, tmp_path / "a", person).root == outer


def test_h1_a_directory_can_be_the_home_itself(tmp_path: Path, person: Path) -> None:
    home = accept(marked(tmp_path / "home"), person)
    (home / "worktrees/amy/src").mkdir(parents=True)
    assert find_home({}, home / "worktrees/amy/src", person).root == home


def test_h1_unmarked_dot_bullpen_on_the_way_does_not_count(tmp_path: Path, person: Path) -> None:
    home = accept(marked(tmp_path / "a/.bullpen"), person)
    for name in ("roles", "sessions", "sockets"):
        (tmp_path / "a/b/.bullpen" / name).mkdir(parents=True)
    assert find_home({}, tmp_path / "a/b", person).root == home


def test_h1_global_home_is_last(tmp_path: Path, person: Path) -> None:
    home = marked(person / ".bullpen")
    assert find_home({}, tmp_path, person).root == home


def test_h1_no_home_says_init(tmp_path: Path, person: Path) -> None:
    with pytest.raises(BullpenError) as caught:
        find_home({}, tmp_path, person)
    assert caught.value.kind is Kind.NOT_FOUND
    assert "bullpen init" in caught.value.hint


def test_h1_one_home_by_two_names_is_one(tmp_path: Path, person: Path) -> None:
    home = marked(tmp_path / "real")
    (tmp_path / "link").symlink_to(home)
    assert find_home({"BULLPEN_DIR": "link"}, tmp_path, person) == Home(home)


def test_h1_is_computed_once_per_process(tmp_path: Path) -> None:
    accept(marked(tmp_path / "a/.bullpen"))
    accept(marked(tmp_path / "b/.bullpen"))
    code = (
        "import os; from bullpen.home.paths import current_home;"
        "first = current_home(); os.chdir('../b'); print(current_home() is first)"
    )
    said = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path / "a", text=True)
    assert said == "True\n"


def test_h1_deleted_current_directory_finds_what_was_above(
    tmp_path: Path, bullpen: Callable[..., Ran]
) -> None:
    home = accept(marked(tmp_path / "a/.bullpen"))
    gone = tmp_path / "a/gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && "$2" version --json && ! "$2" init'
    bullpen_path = Path(sys.executable).with_name("bullpen")
    done = subprocess.run(
        ["sh", "-c", script, "sh", gone, bullpen_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f'"home": "{home}"' in done.stdout
    assert "is gone" in done.stderr
    assert not gone.exists()


def test_h1_deleted_current_directory_that_nobody_remembers(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && unset PWD && exec "$2" -m bullpen init'
    done = subprocess.run(
        ["bash", "-c", script, "sh", gone, sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "is gone" in done.stderr


def test_h1_directory_we_may_not_look_into_is_passed_over() -> None:
    base = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        closed = marked(base / ".bullpen")
        closed.chmod(0)
        code = (
            "import os, pathlib, sys; from bullpen.home import marker, paths\n"
            "if os.getuid() == 0: os.setuid(65534)\n"
            "try: paths.find_home({}, pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1]))\n"
            "except marker.BullpenError as error: print(error.kind.value)"
        )
        base.chmod(0o755)
        said = subprocess.check_output([sys.executable, "-c", code, base], text=True)
    finally:
        closed.chmod(0o700)
        shutil.rmtree(base)
    assert said == "not_found\n"


@as_root
def test_h1_home_of_somebody_else_is_refused_unless_named(tmp_path: Path, person: Path) -> None:
    home = marked(tmp_path / ".bullpen")
    os.chown(home, NOBODY, NOBODY)
    with pytest.raises(BullpenError, match="belongs to nobody") as caught:
        find_home({}, tmp_path, person)
    assert caught.value.kind is Kind.DENIED
    assert find_home({"BULLPEN_DIR": str(home)}, tmp_path, person).root == home


MOUNTS = r"""22 1 0:21 / / rw - rootfs rootfs rw
29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 29 0:30 / /home/me/My\040Files rw shared:2 master:3 - nfs4 box:/x rw,vers=4.2
31 29 0:31 / /mnt/c rw - 9p C:\134 rw,dirsync,aname=drvfs;path=C:\;uid=1000
32 29 0:32 / /shared rw - 9p share rw,trans=virtio
33 29 0:33 / /over rw - nfs box:/y rw
34 33 0:34 / /over rw - tmpfs tmpfs rw
35 29 0:35 / /nameless rw - tmpfs  rw
36 29 0:36 / /mnt/d rw - virtiofs drvfsaD rw
37 29 0:37 / /mnt/ssh rw - fuse.sshfs me@box: rw
38 29 0:38 / /mnt/e rw - drvfs E:\134 rw
39 29 0:39 / /mnt/win rw - cifs //box/win rw
"""


@pytest.mark.parametrize(
    ("path", "type_", "unfit"),
    [
        ("/etc", "ext4", False),
        ("/home/me/My Files/code/.bullpen", "nfs4", True),
        ("/home/me/My Filesystem", "ext4", False),
        ("/mnt/c/Users/me", "9p", True),
        ("/mnt/cc", "ext4", False),
        ("/shared/.bullpen", "9p", False),
        ("/over/x", "tmpfs", False),
        ("/nameless/x", "tmpfs", False),
        ("/mnt/d", "virtiofs", True),
        ("/mnt/ssh/x", "fuse.sshfs", True),
        ("/mnt/e", "drvfs", True),
        ("/mnt/win", "cifs", True),
    ],
)
def test_h1_file_system_of_a_path(path: str, type_: str, unfit: bool) -> None:
    mount = filesystem_of(Path(path), MOUNTS)
    assert mount is not None
    assert (mount.type, is_unfit(mount)) == (type_, unfit)


def test_h1_home_on_a_network_is_refused_with_the_reason(
    tmp_path: Path, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    escaped = str(tmp_path).replace(" ", r"\040")
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 0:1 / {escaped} rw - nfs4 box:/export rw\n")
    monkeypatch.setattr(paths, "MOUNTINFO", table)
    accept(marked(tmp_path / ".bullpen"), person)
    for call in (
        lambda: find_home({}, tmp_path, person),
        lambda: find_home({"BULLPEN_DIR": ".bullpen"}, tmp_path, person),
        lambda: create_home(tmp_path / "new"),
    ):
        with pytest.raises(BullpenError, match=r"nfs4.*locks and Unix sockets") as caught:
            call()
        assert caught.value.kind is Kind.UNSUPPORTED
    assert not (tmp_path / "new").exists()


def test_h1_without_mountinfo_nothing_is_refused(
    tmp_path: Path, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "MOUNTINFO", tmp_path / "missing")
    home = accept(marked(tmp_path / "home"), person)
    assert find_home({}, home, person).root == home


def test_h3_old_global_home_gets_the_marker_and_work_goes_on(
    person: Path, bullpen: Callable[..., Ran]
) -> None:
    root = person / ".bullpen"
    for name in ("roles", "sessions", "sockets"):
        (root / name).mkdir(parents=True)
    (root / "roles/mine.yaml").write_text("name: mine\n")
    assert bullpen("version", "--json").json["home"] == str(root)
    assert (root / ".bullpen-dir.txt").read_text() == "v0.1.0\n"
    assert (root / "roles/mine.yaml").read_text() == "name: mine\n"
    assert all((root / name).is_dir() for name in DIRECTORIES)
    assert (root / "sockets").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("missing", ["roles", "sessions", "sockets"])
def test_h3_other_directories_are_not_adopted(person: Path, missing: str) -> None:
    root = person / ".bullpen"
    for name in {"roles", "sessions", "sockets"} - {missing}:
        (root / name).mkdir(parents=True)
    with pytest.raises(BullpenError) as caught:
        find_home({}, Path("/"), person)
    assert caught.value.kind is Kind.NOT_FOUND
    assert not (root / ".bullpen-dir.txt").exists()


def test_h5_short_socket_path_is_plain() -> None:
    root = Path("/" + "h" * (100 - len("//sockets/agent.amy.sock")))
    assert Home(root).socket("amy") == root / "sockets/agent.amy.sock"
    assert len(str(root / "sockets/agent.amy.sock")) == 100


@pytest.mark.parametrize("letter", ["h", "ö"])
def test_h5_a_path_that_is_one_byte_too_long_is_shortened(short_temp: Path, letter: str) -> None:
    more = 101 - len("//sockets/agent.amy.sock") - len(letter.encode())
    home = Home(Path(f"/{letter}{'h' * more}"))
    assert len(os.fsencode(home.sockets / "agent.amy.sock")) == 101
    assert home.socket("amy", short_temp).is_relative_to(short_temp)


def long_home(tmp_path: Path) -> Home:
    home = Home(tmp_path / ("long-" * 20) / ("größe-" * 10))
    home.sockets.mkdir(mode=0o700, parents=True)
    return home


def test_h5_long_home_really_binds_and_connects(tmp_path: Path, short_temp: Path) -> None:
    home = long_home(tmp_path)
    path = home.socket("amy~fix", short_temp)
    assert len(os.fsencode(path)) <= 100
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(path))
        server.listen(1)
        client.connect(str(home.socket("amy~fix", short_temp)))
    assert (home.sockets / "agent.amy~fix.sock").is_socket()
    directory = path.parent.parent
    assert directory.parent == short_temp
    assert directory.stat().st_mode & 0o777 == 0o700


def test_h5_longest_name_and_user_fit_the_kernel() -> None:
    assert len(f"/tmp/bullpen-{10**6}-12345678/s/agent.{'a' * 63}.sock") < 108


def test_h5_two_long_homes_do_not_meet(tmp_path: Path, short_temp: Path) -> None:
    one, two = long_home(tmp_path / "1"), long_home(tmp_path / "2")
    paths_ = {home.socket("amy", short_temp).parent.resolve() for home in (one, two)}
    assert paths_ == {one.sockets, two.sockets}


def plant_symlink(directory: Path) -> None:
    (directory.parent / "elsewhere").mkdir(mode=0o700)
    directory.symlink_to(directory.parent / "elsewhere")


def plant_open_directory(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o770)


def plant_foreign_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    os.chown(directory, NOBODY, NOBODY)


@pytest.mark.parametrize(
    ("plant", "owner"),
    [
        (plant_symlink, ""),
        (plant_open_directory, ""),
        (Path.touch, ""),
        pytest.param(plant_foreign_directory, "nobody", marks=as_root),
    ],
)
def test_h5_directory_that_is_not_safely_ours_is_refused(
    tmp_path: Path, plant: Callable[[Path], None], owner: str
) -> None:
    home = long_home(tmp_path)
    temp = tmp_path / "t"
    temp.mkdir()
    directory = short_sockets(home, temp).parent
    shutil.rmtree(directory)
    plant(directory)
    with pytest.raises(BullpenError, match=f"{directory}.*belongs to {owner}") as caught:
        home.socket("amy", temp)
    assert caught.value.kind is Kind.DENIED


def test_h5_stale_link_heals(tmp_path: Path) -> None:
    home = long_home(tmp_path)
    link = short_sockets(home, tmp_path)
    link.unlink()
    link.symlink_to("/somewhere/else")
    assert short_sockets(home, tmp_path).resolve() == home.sockets


def test_h5_many_at_once_agree(tmp_path: Path) -> None:
    home = long_home(tmp_path)
    with ThreadPoolExecutor(16) as pool:
        links = set(pool.map(lambda _: short_sockets(home, tmp_path).resolve(), range(64)))
    assert links == {home.sockets}
    assert [path.name for path in short_sockets(home, tmp_path).parent.iterdir()] == ["s"]


def test_h1_the_short_path_goes_with_its_home_and_no_other(tmp_path: Path) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()
    stays, goes = Home(tmp_path / "stays"), Home(tmp_path / "goes")
    for home in (stays, goes):
        home.sockets.mkdir(parents=True)
        short_sockets(home, temp)
    odd = temp / f"bullpen-{os.getuid()}-odd"
    odd.symlink_to(tmp_path)
    shutil.rmtree(goes.root)
    remove_stale_sockets(temp)
    assert sorted(temp.iterdir()) == sorted([odd, short_sockets(stays, temp).parent])
    shutil.rmtree(stays.sockets)  # of a home that is there they are made again
    remove_stale_sockets(temp)
    assert len(list(temp.iterdir())) == 2


def test_h6_version_says_version_python_platform_home(
    tmp_path: Path, bullpen: Callable[..., Ran]
) -> None:
    said = bullpen("version").out
    assert [line.split()[0] for line in said.splitlines()] == [
        "version",
        "python",
        "platform",
        "home",
    ]
    assert "none · bullpen init" in said
    home = accept(marked(tmp_path / "person/code/.bullpen"))
    ran = bullpen("version", "--json", cwd=home.parent)
    assert ran.json["home"] == str(home)
    assert set(ran.json) == {"version", "python", "platform", "home", "problem"}
    assert "~/code/.bullpen" in bullpen("version", cwd=home.parent).out


@pytest.mark.slow
def test_h8_two_homes_side_by_side_share_nothing(
    tmp_path: Path, bullpen: Callable[..., Ran]
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        assert bullpen("init", cwd=tmp_path / name).code == 0
    person = tmp_path / "person"
    one, two = (find_home({}, tmp_path / name, person) for name in ("one", "two"))
    assert one.id != two.id
    for home in (one, two):
        assert home.socket("hub", tmp_path).parent.resolve() == home.sockets
    assert bullpen("version", "--json", cwd=tmp_path / "one").json["home"] == str(one.root)
    assert bullpen("version", "--json", cwd=tmp_path / "two").json["home"] == str(two.root)
    there = bullpen("version", "--json", cwd=tmp_path / "one", BULLPEN_DIR=str(two.root))
    assert there.json["home"] == str(two.root)
