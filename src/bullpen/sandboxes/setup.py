"""The sandbox of a worktree's set-up command: what it runs came out of the repository, and an agent
may have written that.

Made by the hub and by `bullpen worktree create`; called by `worktrees/prepare` right before the
command runs. Such a command writes to the worktree and to what the role names; the repository's git
directory is read-only, the home directory is an empty one, and what is written there is gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.model.role import SandboxSettings as Rules
from bullpen.sandboxes import get_sandbox
from bullpen.sandboxes.base import Git, Network, Policy
from bullpen.sandboxes.bounds import holds, named_path, ssh_socket
from bullpen.worktrees.git import Checkout, Repository

NOWHERE = Network(hub_port=3127, proxy_port=3128)  # nobody listens at the other end


@dataclass(frozen=True)
class SetupSandbox:
    """Wraps the command of one worktree."""

    home: Path  # of Bullpen
    person: Path
    programs: tuple[Path, ...]  # what is needed of PATH
    rules: Rules = field(default_factory=Rules)
    variables: Mapping[str, str] = field(default_factory=dict)  # the role's own

    def __call__(
        self,
        repo: Repository,
        checkout: Checkout,
        scratch: Path,
        argv: Sequence[str],
        env: Mapping[str, str],
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        """The command line and environment to run instead. Raises if there can be no sandbox."""
        sandbox = get_sandbox()
        why = sandbox.unavailable()
        if why:
            raise BullpenError(f"the set-up needs a sandbox: {why}", kind=Kind.UNAVAILABLE)
        policy = self.policy(repo, checkout, scratch, env)
        sandbox.prepare(policy)
        wrapped = sandbox.wrap(tuple(argv), {**env, **self.variables}, policy)
        return wrapped.argv, wrapped.env

    def policy(
        self, repo: Repository, checkout: Checkout, scratch: Path, env: Mapping[str, str]
    ) -> Policy:
        """What it may reach."""
        rules, cwd = self.rules, checkout.path
        return Policy(
            cwd=cwd,
            home=self.home,
            session=scratch,
            person=self.person,
            sockets=scratch / "api",
            writable=self._outside(rules.read_write_paths, cwd),
            # git outside would follow another `.git`.
            read_only=(*self._outside(rules.read_only_paths, cwd), cwd / ".git"),
            programs=self.programs,
            git=Git(repo.common_dir, repo.common_dir, cwd),
            network=None if rules.allow_network else NOWHERE,
            ssh_agent=ssh_socket(env) if rules.ssh_agent else None,
            is_terminal=False,
            processes=rules.processes,
            memory_bytes=rules.memory_mb * (1 << 20) if rules.memory_mb else None,
            keep=frozenset(self.variables),
        )

    def _outside(self, texts: Sequence[str], cwd: Path) -> tuple[Path, ...]:
        """What the role names outside of the tree. In the tree the set-up makes what will be
        there, also what is read-only for the agent later."""
        paths = (named_path(text, cwd, self.person) for text in texts)
        return tuple(path for path in paths if not holds(cwd, path) and path.exists())
