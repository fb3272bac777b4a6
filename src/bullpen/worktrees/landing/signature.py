"""Who lands: the person's name for new commits, and their signature where their git wants one.

Read from the person's configuration; agents cannot write that. A signature that would ask for a
passphrase is refused: nobody sits at the hub to type it.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Repository, git

KEYS = (
    r"^(user\.(name|email)|committer\.(name|email)|commit\.gpgsign"
    r"|gpg\.(format|program|(openpgp|x509)\.program))$"
)
TRUE = {"true", "yes", "on", "1", ""}
# Not on a terminal, not in a window. `ssh-keygen` asks an agent that is running all the same.
SILENT = {"SSH_ASKPASS_REQUIRE": "never", "SSH_ASKPASS": "/bin/false", "DISPLAY": "", "GPG_TTY": ""}
QUIET_PROGRAM = """#!/bin/sh
exec {program} --batch --no-tty --pinentry-mode error "$@"
"""


@dataclass(frozen=True)
class Person:
    """Who lands, as new commits name them."""

    name: str
    email: str
    signs: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    def environment(
        self, author: str = "", author_email: str = "", date: str = ""
    ) -> dict[str, str]:
        """For `git commit-tree`: the person commits; without an author they are that, too."""
        named = {
            "GIT_AUTHOR_NAME": author or self.name,
            "GIT_AUTHOR_EMAIL": author_email if author else self.email,
            "GIT_COMMITTER_NAME": self.name,
            "GIT_COMMITTER_EMAIL": self.email,
        }
        return named | ({"GIT_AUTHOR_DATE": date} if date else {})


def find_person(repo: Repository) -> Person:
    """The person whose hub this is, by the configuration that their git has in this repository."""
    done = git(repo, "config", "-z", "--get-regexp", KEYS, accept=(0, 1))
    settings: dict[str, str] = {}
    for entry in filter(None, done.text.split("\0")):
        key, _, value = entry.partition("\n")
        settings[key] = value
    name = settings.get("committer.name") or settings.get("user.name", "")
    email = settings.get("committer.email") or settings.get("user.email", "")
    if not name or not email:
        raise WorktreeError(
            Code.INVALID,
            "git does not know who lands: user.name or user.email is not set",
            hint='git config --global user.name "Your Name"'
            " · git config --global user.email you@example.com",
        )
    signs = settings.get("commit.gpgsign", "false").lower() in TRUE
    return Person(name, email, signs, settings)


@contextmanager
def signing(person: Person) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]]:
    """Words before and after `commit-tree`, and variables, for a commit of that person."""
    if not person.signs:
        yield (), (), {}
        return
    form = person.settings.get("gpg.format", "openpgp")
    if form == "ssh":
        yield (), ("-S",), SILENT
        return
    standard = "gpgsm" if form == "x509" else "gpg"
    program = person.settings.get(f"gpg.{form}.program") or (
        person.settings.get("gpg.program") if form == "openpgp" else None
    )
    with tempfile.TemporaryDirectory(prefix="bullpen-sign-") as directory:
        quiet = Path(directory) / "quiet"
        quoted = (program or standard).replace("'", "'\\''")
        quiet.write_text(QUIET_PROGRAM.format(program=f"'{quoted}'"))
        quiet.chmod(0o700)
        # The older key counts for OpenPGP, if the newer is not set.
        key = f"gpg.{form}.program"
        yield ("-c", f"{key}={quiet}"), ("-S",), SILENT


def unsigned(error: WorktreeError) -> WorktreeError:
    """What to say when a commit could not be made because it could not be signed."""
    return WorktreeError(
        Code.GIT_FAILED,
        "your git signs commits, and that does not work without asking you:"
        f" {str(error.details.get('git', ''))[-300:]}",
        hint="unlock the key in its agent (gpg-agent, ssh-agent) and land again,"
        " or: git config commit.gpgsign false",
        details=error.details,
    )
