"""Attempts to get out, as a program that runs inside; and which lines of the policy stop each.

Standard library alone: it is copied into the sandbox. An attempt returns what it got, or raises.

    python3 attacks.py PARAMETERS RESULTS NAME...
"""

# An attacker's program, short.
# ruff: noqa: PTH116, PTH208, PTH103, PTH104, PTH108, PTH112, PTH115, PTH123, SIM115

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECRET = "the-secret-of-somebody-else"
LFS_OBJECT = "c9a70aa5b57db3fce19fa20b59f3b80bd8d22d5a72588b09e1ed89b148ee63ed"  # of that
SYSTEM = ("system", "links", "etc", "etc-directories")
P: dict[str, Any] = {}
libc = ctypes.CDLL(None, use_errno=True)


class Attack:
    def __init__(self, do, lines, also, kind, root_only, needs):
        self.do: Callable[[], Any] = do
        self.name: str = do.__name__
        self.lines: frozenset[str] = frozenset(lines)  # each of them stops it
        self.also: frozenset[str] = frozenset(also)  # what would lie over what then shows
        self.kind: str = kind  # how it is seen that it worked: see test_escape.py
        self.root_only: bool = root_only  # an ordinary user could not do it without walls, either
        self.needs: str = needs


ATTACKS: dict[str, Attack] = {}


def attack(*lines, also=(), kind="read", root_only=False, needs=""):
    def register(do):
        ATTACKS[do.__name__] = Attack(do, lines, also, kind, root_only, needs)
        return do

    return register


def call(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def read(path):
    return Path(path).read_text(errors="replace")


def append(path, text="planted"):
    with open(path, "a") as file:
        file.write(text)


def connect(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(path)
        return SECRET


def git(*words):
    env = {name: value for name, value in os.environ.items() if name != "GIT_CONFIG_NOSYSTEM"}
    words = ["git", *words]
    done = subprocess.run(words, cwd=P["cwd"], env=env, check=True, capture_output=True)
    return done.stdout.decode().strip()


# ── reading ──────────────────────────────────────────────────────────────────


@attack("etc")
def the_real_passwd():
    return SECRET if len(read("/etc/passwd").splitlines()) > 1 else ""


@attack("etc")
def the_real_group():
    return SECRET if len(read("/etc/group").splitlines()) > 1 else ""


@attack("etc", root_only=True)
def shadow():
    return SECRET if read("/etc/shadow") else ""


@attack("root", also=SYSTEM)
def the_whole_machine():
    return SECRET if os.path.isdir("/boot") or os.path.isdir("/sys/kernel") else ""


@attack("tmp")
def files_in_tmp():
    return read(P["elsewhere"] + "/secret")


@attack("person")
def ssh_key():
    return read(P["person"] + "/.ssh/id_ed25519")


@attack("person")
def login_of_the_person():
    return read(P["person"] + "/.claude/.credentials.json")


@attack("person")
def login_beside_a_program():
    """Of a directory on PATH in the person's home only what programs need is shown: see
    `test_x2_a_whole_install_root_would_show_the_login_beside_its_program`."""
    return read(P["person"] + "/.fly/config.yml")


@attack("git-passwords")
def passwords_of_git():
    return read(P["person"] + "/.config/git/credentials")


@attack("home")
def database():
    return read(P["home"] + "/state.db")


@attack("home")
def stored_credentials():
    return read(P["home"] + "/credentials/api-token")


@attack("home")
def token_of_another_agent():
    return read(P["home"] + "/sessions/bob/token")


@attack("home")
def another_worktree():
    return read(P["home"] + "/worktrees/bob/secret")


@attack("home")
def by_a_link():
    link = Path(P["cwd"], "link")
    link.unlink(missing_ok=True)
    link.symlink_to(P["home"])
    return read(link / "state.db")


@attack("private")
def variables_that_are_kept_for_restarts():
    return read(P["session"] + "/private/env")


@attack("environment")
def variables_of_the_shell():
    return os.environ.get("SOME_TOKEN", "")


@attack("pid", "user", "capabilities", root_only=True)
def environment_of_the_hub():
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                if b"HUB_ONLY=" + SECRET.encode() in (entry / "environ").read_bytes():
                    return SECRET
            except OSError:
                continue
    return ""


@attack("pid", "user", "capabilities", root_only=True)
def root_of_another_process():
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if Path(f"/proc/{entry.name}/root{P['home']}/state.db").read_text() == SECRET:
                    return SECRET
            except OSError:
                continue
    return ""


@attack("ipc")
def shared_memory():
    identifier = call(libc.shmget(P["shm_key"], 0, 0))
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(identifier, None, 0o10000)
    if address in (None, ctypes.c_void_p(-1).value):
        call(-1)
    return ctypes.string_at(address, len(SECRET)).decode()


@attack("user", "calls", root_only=True, needs="keyring")
def keys_of_the_user():
    return key_in(-4)


@attack("calls", needs="session keyring")
def keys_of_the_login_session():
    return key_in(-3)


def key_in(ring):
    key = call(libc.syscall(250, 10, ring, b"user", P["key"].encode(), 0))
    buffer = ctypes.create_string_buffer(100)
    length = call(libc.syscall(250, 11, key, buffer, 100))
    return buffer.raw[:length].decode()


# ── sockets ──────────────────────────────────────────────────────────────────


@attack("home")
def socket_of_the_hub():
    return connect(P["home"] + "/sockets/hub.sock")


@attack("home")
def socket_of_the_factory():
    return connect(P["home"] + "/sockets/factory.sock")


@attack("home")
def socket_of_the_own_holder():
    return connect(P["home"] + "/sockets/amy.sock")


@attack("home")
def socket_of_another_agent():
    return connect(P["home"] + "/sessions/bob/api/hub.sock")


@attack("net")
def port_of_the_hub():
    with socket.create_connection(("127.0.0.1", P["port"]), timeout=30):
        return SECRET


@attack("net")
def abstract_socket():
    return connect("\0" + P["abstract"])


@attack("net")
def other_networks():
    names = [line.split(":")[0].strip() for line in read("/proc/net/dev").splitlines()[2:]]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing; needs a route
        except OSError:
            pass
        else:
            return SECRET
    return SECRET if names != ["lo"] else ""


@attack("calls", kind="act", needs="sockets to the host")
def socket_to_the_machine_around():
    # That there is one is proof enough: it is of no network, so that no namespace holds it.
    socket.socket(40, socket.SOCK_STREAM).close()
    return True


# ── writing ──────────────────────────────────────────────────────────────────


@attack("session", kind="write")
def own_settings():
    append(P["session"] + "/settings.json")


@attack("home", kind="write")
def server_of_tools_in_the_shared_configuration():
    append(P["home"] + "/claude-config/default/.claude.json", '{"mcpServers": {"x": {}}}')


@attack("person", kind="write")
def hook_in_the_persons_configuration():
    append(P["person"] + "/.claude/settings.json", '{"hooks": {}}')


@attack("person", kind="write")
def startup_file_of_the_shell():
    append(P["person"] + "/.bashrc")


@attack("gitconfig", kind="write")
def configuration_of_git():
    append(P["person"] + "/.gitconfig", "[core]\n\tfsmonitor = x\n")


@attack("programs", kind="write")
def program_that_others_run():
    append(P["programs"] + "/tool")


@attack("system", root_only=True, kind="act")
def programs_of_the_system():
    # Opened for writing is proof enough.
    os.close(os.open("/usr/bin/env", os.O_WRONLY | os.O_APPEND))
    return True


@attack("etc", root_only=True, kind="act")
def settings_of_the_system():
    os.close(os.open("/etc/hosts", os.O_WRONLY | os.O_APPEND))
    return os.stat("/etc/hosts").st_ino == P["hosts"]


@attack("etc-directories", root_only=True, kind="act")
def certificates_of_the_system():
    fresh = Path("/etc/ssl", P["key"])
    fresh.touch()
    fresh.unlink()
    return True


@attack("keys", root_only=True, needs="keys of the system")
def keys_of_the_system():
    return SECRET if os.listdir("/etc/ssl/private") else ""


@attack("kernel", root_only=True, kind="act")
def settings_of_the_kernel():
    # Opened for writing is proof enough: it names a program that the kernel runs as root.
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return True


@attack("proc", kind="read")
def processes_by_the_real_proc():
    """Other processes' command lines."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(P["victim_seconds"]) in read(entry / "cmdline"):
                return SECRET
        except OSError:
            continue  # it has just ended
    return ""


@attack("var/tmp")
def files_in_the_other_tmp():
    return read(P["var_tmp"])


@attack("dev", kind="act")
def terminal_of_the_person():
    with open(P["terminal"], "w") as file:
        file.write("hello")
    return True


@attack("read-only", kind="write")
def settings_in_the_worktree():
    append(P["cwd"] + "/.claude/settings.json")


@attack("read-only", kind="write")
def settings_that_were_missing():
    path = Path(P["cwd"], ".mcp.json")
    if path.is_dir():
        path.rmdir()
    path.write_text("{}")


@attack("other-homes", kind="write")
def role_of_another_home():
    append(P["cwd"] + "/deep/other/.bullpen/roles/coder.yaml")


@attack("other-homes", kind="write")
def list_of_the_persons_homes():
    append(P["cwd"] + "/deep/config/homes", "0123456789abcdef /planted")


@attack("pins", kind="write")
def directory_above_a_read_only_one():
    os.rename(P["cwd"] + "/deep", P["cwd"] + "/moved")
    Path(P["cwd"], "deep", "guarded").mkdir(parents=True)
    Path(P["cwd"], "deep", "guarded", "file").write_text("planted")


@attack("capabilities", root_only=True, kind="write")
def remount():
    session = P["session"].encode()
    call(
        libc.mount(None, session, None, 4096 | 32, None)
    )  # MS_BIND | MS_REMOUNT, without MS_RDONLY
    own_settings()


@attack("capabilities", root_only=True, kind="write")
def unmount():
    call(libc.umount2((P["cwd"] + "/.git").encode(), 2))
    replace(P["cwd"] + "/.git", "gitdir: elsewhere")


@attack("capabilities", "user", "uts", root_only=True, kind="act")
def name_of_the_machine():
    name = socket.gethostname()
    socket.sethostname(name)
    return os.readlink("/proc/self/ns/uts") == P["uts"]


@attack("root", also=SYSTEM, root_only=True, kind="act", needs="pids cgroup")
def out_of_the_limit():
    if not P["pids"]:
        return False  # there is no such limit to get out of
    Path(P["pids"], "cgroup.procs").write_text("0")
    return True


# ── git ──────────────────────────────────────────────────────────────────────


def evil():
    """A program that leaves a trace; git runs it with arguments, so they are ignored."""
    path = Path(P["cwd"], "evil.sh")
    path.write_text(f"#!/bin/sh\ntouch {P['pwned']}\n")
    path.chmod(0o755)
    return str(path)


def replace(path, text):
    """However it can be done: in place, by a rename, by moving away what is there."""
    beside = Path(path + ".new")
    beside.write_text(text)
    for way in (
        lambda: Path(path).write_text(text),
        lambda: beside.rename(path),
        lambda: (os.rename(path, path + ".old"), beside.rename(path)),
        lambda: (os.unlink(path), beside.rename(path)),
    ):
        try:
            way()
            return
        except OSError as error:
            last = error
    raise last


def false_repository():
    """A git directory of our own, with a configuration that runs a program."""
    path = P["cwd"] + "/false"
    shutil.rmtree(path, ignore_errors=True)
    for name in ("objects", "refs/heads"):
        os.makedirs(f"{path}/{name}")
    Path(path, "HEAD").write_text("ref: refs/heads/x\n")
    Path(path, "config").write_text(f"[core]\n\tfsmonitor = {evil()}\n\tbare = false\n")
    return path


@attack("git-hooks", kind="run")
def hook():
    shutil.copy(evil(), P["common"] + "/hooks/post-index-change")
    shutil.copy(evil(), P["common"] + "/hooks/post-checkout")


@attack("git-common", kind="run")
def program_in_the_configuration():
    git("config", "core.fsmonitor", evil())


@attack("git-common", kind="run")
def relative_hooks_path():
    Path(P["cwd"], "hooks").mkdir(exist_ok=True)
    shutil.copy(evil(), P["cwd"] + "/hooks/post-checkout")
    git("config", "core.hooksPath", "hooks")


@attack("git-common", kind="run")
def configuration_of_the_worktree():
    replace(P["admin"] + "/config.worktree", f"[core]\n\tfsmonitor = {evil()}\n")


@attack("git-file", kind="run")
def another_git_file():
    replace(P["cwd"] + "/.git", f"gitdir: {false_repository()}\n")


@attack("git-file", kind="run")
def git_file_by_a_hard_link():
    target = Path(P["cwd"], "copy")
    target.unlink(missing_ok=True)
    os.link(P["cwd"] + "/.git", target)
    target.write_text(f"gitdir: {false_repository()}\n")


@attack("git-common", kind="run")
def another_common_directory():
    replace(P["admin"] + "/commondir", false_repository() + "\n")


@attack("git-common", kind="run")
def common_directory_by_a_hard_link():
    target = Path(P["admin"], "copy")
    target.unlink(missing_ok=True)
    os.link(P["admin"] + "/commondir", target)
    target.write_text(false_repository() + "\n")


@attack("git-common", kind="write")
def another_place_of_the_worktree():
    replace(P["admin"] + "/gitdir", P["person"] + "/.git\n")


@attack("git-objects-info", kind="write")
def objects_from_elsewhere():
    Path(P["common"], "objects", "info", "alternates").write_text(P["cwd"] + "\n")


@attack("git-common", kind="write")
def prune_of_a_sibling():
    git("worktree", "prune", "--expire=now")
    # git leaves one alone that it cannot remove, and is content.


@attack("git-common", kind="write")
def packed_refs():
    append(P["common"] + "/packed-refs", "# planted\n")


@attack("git-common", kind="write")
def branch_of_somebody_else():
    git("update-ref", "refs/heads/main", git("commit-tree", "-m", "evil", "HEAD^{tree}"))


@attack("git-common", kind="write")
def stash_of_somebody_else():
    git("stash", "drop")


@attack("git-common", kind="write")
def link_in_place_of_a_log():
    log = P["common"] + "/logs/refs/heads/main"
    replace(log, "planted")


@attack("git-objects", kind="write")
def object_under_an_unchanged_id():
    """Loose objects are opened by their names, and not looked at again."""
    objects = [*Path("/run/bullpen/git/objects").glob("[0-9a-f][0-9a-f]/*")]
    for file in objects:
        file.chmod(0o644)
        file.write_bytes(b"evil")


@attack("git-lfs", kind="write")
def large_file_under_an_unchanged_name():
    """git-lfs takes what it has by its name."""
    directory = Path("/run/bullpen/git/lfs/objects", LFS_OBJECT[:2], LFS_OBJECT[2:4])
    (directory / LFS_OBJECT).write_bytes(b"evil")


@attack("git-modules", kind="write")
def configuration_of_a_submodule():
    append(P["common"] + "/modules/part/config", "[core]\n\tfsmonitor = evil\n")


@attack("git-common", kind="act")
def lock_of_the_repository():
    # To hold it nothing needs to be written. The hub waits for whoever has it.
    with open(P["common"] + "/bullpen/lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


# ── processes ────────────────────────────────────────────────────────────────


@attack("pid", kind="kill")
def signal_a_process():
    os.kill(P["victim"], signal.SIGKILL)


@attack("pid", "user", "capabilities", root_only=True, kind="act")
def trace_a_process():
    call(libc.ptrace(16, P["victim"], None, None))  # PTRACE_ATTACH
    os.waitpid(P["victim"], 0x40000000)
    call(libc.ptrace(17, P["victim"], None, None))
    return True


# ── tests of their own use these ─────────────────────────────────────────────


def type_into_the_terminal():
    """Into the terminal of whoever started us, if we share it."""
    with open("/dev/tty", "rb+", buffering=0) as terminal:
        for letter in b"evil\n":
            fcntl.ioctl(terminal, termios.TIOCSTI, bytes([letter]))
    return True


def fork_bomb():
    """How many processes there can be, up to twice the limit."""
    children = []
    try:
        while len(children) < 2 * P["processes"]:
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
    except OSError:
        pass
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return len(children)


def nested():
    """In a user namespace of its own one has all capabilities; the walls are locked for it."""
    tried = {}
    call(libc.unshare(0x10000000 | 0x00020000))
    for name in ("remount", "unmount"):
        try:
            tried[name] = ATTACKS[name].do()
        except OSError as error:
            tried[name] = f"blocked: {error.strerror}"
    return tried


def main(parameters, results, names):
    P.update(json.loads(Path(parameters).read_text()))
    found = {}
    out = open(results, "w")  # one attempt takes its own directory away
    for turn in range(P.get("turns", 1)):
        if turn:
            Path(P["cwd"], "waiting").touch()
            deadline = time.monotonic() + 30
            while not Path(P["cwd"], "go").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
        for name in names:
            do = ATTACKS[name].do if name in ATTACKS else globals()[name]
            try:
                found[f"{name}/{turn}"] = {"got": do()}
            except (OSError, subprocess.CalledProcessError, shutil.Error) as error:
                said = getattr(error, "stderr", b"") or b""
                found[f"{name}/{turn}"] = {"error": f"{error} {said.decode(errors='replace')}"}
    out.write(json.dumps(found))
    out.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
