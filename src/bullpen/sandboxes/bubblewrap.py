"""The sandbox on Linux: a policy becomes a command line of bubblewrap.

`mounts` has the file system; here are the process, its signals, its limits and the order of
arguments. `wrap` changes nothing. `without` leaves lines out by name and is for tests only.
"""

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from bullpen import proc
from bullpen.errors import BullpenError, Kind
from bullpen.sandboxes import calls, environment, limits, relay
from bullpen.sandboxes.base import Network, Policy, WrappedCommand
from bullpen.sandboxes.bounds import identities, normalize, real
from bullpen.sandboxes.mounts import CALLS, SANDBOX_FILES, Line, bind, mounts
from bullpen.sandboxes.prepare import prepare, prepare_private_git, write_sandbox_files

RELAY = Path("/run/bullpen/relay.py")  # where it lies inside
CALLS_DESCRIPTOR = 9  # the largest that every shell can open
NO_LIMIT = limits.Limits(None, None, is_counted=False)
SIGNALS = ("TERM", "INT", "QUIT", "HUP", "USR1", "USR2")  # for the program, not for bubblewrap
CANNOT = 125  # exit code of a start that was given up before the program ran
USUAL_CAUSES = (
    "Usual causes: AppArmor keeps user namespaces from ordinary programs (Ubuntu 24.04:"
    " `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or a profile for bwrap);"
    " a container was started without user namespaces (allow them, or run it with"
    " `--security-opt seccomp=unconfined`). `sandbox.enabled: false` in the role runs it"
    " without a sandbox."
)


class Bubblewrap:
    """The sandbox of Linux."""

    name = "bubblewrap"

    def unavailable(self) -> str:
        """Runs the strictest set once."""
        try:
            with tempfile.TemporaryDirectory(prefix="bullpen-sandbox-") as scratch:
                policy = _strictest(Path(scratch))
                front = _front(policy, NO_LIMIT, ("terminal",))
                done = proc.run([*front, _program(), *arguments(policy), "--", "true"], timeout=20)
        except BullpenError as error:
            return f"{error.message}. {error.hint or USUAL_CAUSES}"
        if done.code == 0:
            return ""
        return f"bubblewrap cannot make a sandbox here: {done.error_text}. {USUAL_CAUSES}"

    def prepare(self, policy: Policy) -> None:
        policy = normalize(policy)
        prepare(policy)
        prepare_private_git(policy)

    def wrap(
        self,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        policy: Policy,
        without: Collection[str] = (),
    ) -> WrappedCommand:
        policy = normalize(policy, is_checked="planted" not in without)
        inodes = {} if "planted" in without else identities(policy)
        available = NO_LIMIT if "limits" in without else limits.find()
        known = env if "environment" in without else environment.cut(env, policy)
        return WrappedCommand(
            argv=(
                *_front(policy, available, without),
                _program(),
                *arguments(policy, without),
                "--",
                *_inner(argv, env, policy, available, inodes),
            ),
            env={**known, **environment.added(env, policy)},
        )


BUBBLEWRAP = Bubblewrap()


def arguments(policy: Policy, without: Collection[str] = ()) -> list[str]:
    """All options of bubblewrap. The policy is normal."""
    chosen = [line.instead if line.name in without else line.args for line in every_line(policy)]
    return [*(word for words in chosen for word in words), "--chdir", str(policy.cwd)]


def every_line(policy: Policy) -> list[Line]:
    """The lines of the policy in their order. The policy is normal."""
    # The relay's first: an interpreter's directory may hold what others mask.
    files = [*_relay_files(policy), *mounts(policy)]
    return [*_process(policy), *sorted(files, key=lambda line: len(line.path.parts))]


def _process(policy: Policy) -> list[Line]:
    root = Path("/")
    lines = [
        # As root, too: its keys, its limits and what it may do to others are then not ours.
        Line("user", root, ("--unshare-user",)),
        # Nobody outside can be seen, signalled or traced.
        Line("pid", root, ("--unshare-pid",)),
        Line("uts", root, ("--unshare-uts",)),
        # Memory that programs outside share by a number.
        Line("ipc", root, ("--unshare-ipc",)),
        # Only hides the names of groups: no kernel is too old to run us for that.
        Line("cgroup", root, ("--unshare-cgroup-try",)),
        # bubblewrap leaves root all of them, and one is enough to mount everything anew.
        Line("capabilities", root, ("--cap-drop", "ALL")),
        # With its holder, that is: nobody would be left to hold it.
        Line("die-with-parent", root, ("--die-with-parent",)),
    ]
    if policy.network:
        lines.append(Line("net", root, ("--unshare-net",)))
    if calls.program():
        lines.append(Line("calls", root, ("--seccomp", str(CALLS_DESCRIPTOR))))
    return lines


def _front(policy: Policy, available: limits.Limits, without: Collection[str]) -> tuple[str, ...]:
    """A shell that enters the groups and becomes bubblewrap.

    Signals and keys of the terminal go to the whole group: bubblewrap has to ignore them, else it
    would end at once and take the program with it, which could then not clean up.
    """
    steps = [f"trap '' {' '.join(SIGNALS)}"]
    if not policy.is_terminal and "terminal" not in without:
        # Whoever shares a terminal can type into it. `--new-session` would help as well, but takes
        # the program out of the group that is signalled; so we insist that there is none.
        steps.append(
            f"{{ true </dev/tty; }} 2>/dev/null && {{ {_give_up('there is a terminal')}; }}"
        )
    for file in limits.entries(policy, available):
        where = shlex.quote(str(file))
        steps.append(f"echo $$ >{where} || {{ {_give_up('no such limit')}; }}")
    is_filtered = calls.program() and "calls" not in without
    given = f" {_calls_file(policy)}" if is_filtered else ""
    return ("/bin/sh", "-c", "; ".join([*steps, f'exec "$@"{given}']), "sandbox")


def _calls_file(policy: Policy) -> str:
    """As a shell opens it for bubblewrap, which ends where it is missing."""
    return f"{CALLS_DESCRIPTOR}<{shlex.quote(str(policy.session / SANDBOX_FILES / CALLS))}"


def _give_up(why: str) -> str:
    return f"echo 'bullpen: the sandbox cannot start: {why}' >&2; exit {CANNOT}"


def _inner(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    policy: Policy,
    available: limits.Limits,
    inodes: Mapping[Path, str],
) -> list[str]:
    """What comes before the program, inside; each becomes the next."""
    words = ["/usr/bin/env", f"--default-signal={','.join(SIGNALS)}"]
    steps = [_look(inodes)] if inodes else []
    if available.pids is None and available.is_counted:
        # Inside, because the processes of a user are counted for each user namespace: bash, dash.
        number = policy.processes
        steps.append(f"ulimit -u {number} 2>/dev/null || ulimit -p {number} || exit {CANNOT}")
    if steps or "=" in argv[0]:  # env would take such a name for a variable
        words += ["/bin/sh", "-c", "; ".join([*steps, 'exec "$@"']), "sandbox"]
    if policy.network:
        words += [*_python(), str(RELAY), env.get("LC_CTYPE", ""), str(policy.sockets)]
        words += [*_routes(policy.network), "--"]
    return [*words, *argv]


def _look(inodes: Mapping[Path, str]) -> str:
    """Whether that is mounted which was checked: bubblewrap (0.8) takes names, not descriptors, and
    an agent that works in the same directory may have put a link there meanwhile."""
    paths = " ".join(shlex.quote(str(path)) for path in inodes)
    wanted = shlex.quote("\n".join(inodes.values()))
    now = f'"$({_stat()} -c %d:%i -- {paths})"'
    return f"test {now} = {wanted} || {{ {_give_up('a directory was replaced just now')}; }}"


def _stat() -> str:
    """Of the system: an entry of PATH may be the agent's."""
    return proc.find_program("stat", {"PATH": "/usr/bin:/bin"}) or "/usr/bin/stat"


# ── the relay ────────────────────────────────────────────────────────────────


def _routes(network: Network) -> list[str]:
    """Ports of the loopback inside, and where each leads."""
    routes = [
        relay.route(network.hub_port, relay.HUB),
        relay.route(network.proxy_port, relay.TUNNEL),
    ]
    for host in network.hosts:
        near = re.fullmatch(r"(127\.\d+\.\d+\.\d+|localhost|\[::1\]):(\d+)", host)
        if near and int(near[2]) not in (network.hub_port, network.proxy_port):
            routes.append(relay.route(int(near[2]), relay.TUNNEL, host))
    return list(dict.fromkeys(routes))


def _relay_files(policy: Policy) -> list[Line]:
    if not policy.network:
        return []
    python = real(Path(sys.base_prefix))
    lines = [Line("relay", RELAY, ("--ro-bind", str(real(Path(relay.__file__))), str(RELAY)))]
    if not python.is_relative_to("/usr"):
        lines.append(Line("relay", python, bind("--ro-bind", python)))
    return lines


def _python() -> tuple[str, ...]:
    return (os.path.realpath(sys.executable), "-I", "-S")


# ── trying ───────────────────────────────────────────────────────────────────


def _program() -> str:
    program = proc.find_program("bwrap")
    if program is None:
        raise BullpenError(
            "bubblewrap is not installed",
            hint="apt install bubblewrap (or dnf, pacman, apk); or set sandbox.enabled: false",
            kind=Kind.UNAVAILABLE,
        )
    return program


def _strictest(scratch: Path) -> Policy:
    session = scratch / "home" / "sessions" / "try"
    policy = Policy(
        cwd=scratch / "work",
        home=scratch / "home",
        session=session,
        person=scratch / "person",
        sockets=session / "api",
        network=Network(1, 2),
        is_terminal=False,
    )
    for path in (policy.cwd, policy.person, policy.sockets):
        path.mkdir(parents=True)
    write_sandbox_files(policy)
    return normalize(policy)
