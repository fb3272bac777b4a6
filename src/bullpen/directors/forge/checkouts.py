"""The director's own clone: made, brought up to date, and what agents did in it pushed.

A bare repository at `projects/<owner>/<name>`; tasks get worktrees of it. Git asks a credential
helper for the token, for the forge's own address alone: it is in no URL, argument or environment.
Pushes one branch and nothing else. Synchronous; called in threads.
"""

import os
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from bullpen.directors.failures import ActionError, Verdict
from bullpen.directors.forge.nouns import Repository
from bullpen.proc import Done
from bullpen.worktrees.git import run_raw

ASIDE = ".cloning."  # what a clone is called until it is whole
SECONDS = 1800.0
REFUSED = ("Authentication failed", "could not read Username", "error: 401", "error: 403")
CONNECTION = (
    "Could not resolve",
    "Failed to connect",
    "Couldn't connect",
    "Empty reply",
    "error: 5",
)


@dataclass(frozen=True)
class Checkouts:
    """The clone of one repository. `token_file` holds the token, and nothing else."""

    clone: Path
    token_file: Path
    user: str  # that the forge wants beside a token
    credential: str  # what `auth set` calls it

    def update(self, repository: Repository) -> None:
        """As the forge has its default branch now, where new branches begin."""
        if not self.clone.exists():
            self._make(repository)
            return
        self._fetch(self.clone, repository)

    def _make(self, repository: Repository) -> None:
        self.clone.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self.clone.parent.glob(f"{ASIDE}{self.clone.name}.*"):
            shutil.rmtree(left, ignore_errors=True)
        aside = self.clone.parent / f"{ASIDE}{self.clone.name}.{os.urandom(6).hex()}"
        try:
            _run(["init", "-q", "--bare", str(aside)])
            self._fetch(aside, repository)
            aside.rename(self.clone)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _fetch(self, at: Path, repository: Repository) -> None:
        ref = f"refs/heads/{repository.default_branch}"
        words = ["fetch", "-q", "--no-tags", "--no-recurse-submodules", "--update-head-ok"]
        self._ask(at, repository, [*words, "--", repository.clone_url, f"+{ref}:{ref}"])
        _run(["--git-dir", str(at), "symbolic-ref", "HEAD", ref])

    def head(self, branch: str, repository: Repository) -> str:
        """The commit of that branch if it has some that the default branch lacks, else empty."""
        base, ref = f"refs/heads/{repository.default_branch}", f"refs/heads/{branch}"
        listing = _run(
            ["--git-dir", str(self.clone), "for-each-ref", "--format=%(objectname)", ref]
        )
        commit = listing.text.strip()
        if not commit:
            return ""
        new = _run(["--git-dir", str(self.clone), "rev-list", "-n1", commit, f"^{base}"])
        return commit if new.text.strip() else ""

    def sent(self, commit: str, repository: Repository) -> bytes:
        """All objects that a push may bring to the forge, as they are: commits with all their
        headers, file names, and every version of every file, also of merges. What the forge has is
        what it says: branches of the clone may be ahead of it. More than `proc` lets a command
        write is an error: what cannot be looked at is not pushed."""
        ref, url = f"refs/heads/{repository.default_branch}", repository.clone_url
        listed = self._ask(self.clone, repository, ["ls-remote", "--", url, ref])
        base = listed.text.partition("\t")[0]
        words = ["fetch", "-q", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"]
        self._ask(self.clone, repository, [*words, "--", url, ref])
        here = ["--git-dir", str(self.clone)]
        new = _run([*here, "rev-list", "--objects", "--no-object-names", commit, f"^{base}"])
        with tempfile.TemporaryFile() as file:
            _run([*here, "cat-file", "--batch", "--buffer"], stdin=new.out, output=file)
            file.seek(0)
            return file.read()

    def name_place(self, sent: bytes, offset: int, commit: str) -> str:
        """Which of the objects that are `sent` has that offset, in words."""
        id, kind = _object_at(sent, offset)
        match kind:
            case "commit" | "tag":
                return f"{kind} {id[:12]}"
            case "tree":
                return "the name of a file"
        listed = _run(["--git-dir", str(self.clone), "rev-list", "--objects", commit])
        names = (line.partition(" ") for line in listed.text.splitlines())
        return next((name for blob, _, name in names if blob == id and name), f"file {id[:12]}")

    def tip(self, branch: str, repository: Repository) -> str:
        """The commit that the forge has as that branch; empty: none."""
        listed = self._ask(
            self.clone,
            repository,
            ["ls-remote", "--", repository.clone_url, f"refs/heads/{branch}"],
        )
        return listed.text.partition("\t")[0]

    def push(self, branch: str, commit: str, expected: str, repository: Repository) -> None:
        """That commit as that branch, if the forge still has there what we know of. Done already:
        nothing happens."""
        ref = f"refs/heads/{branch}"
        if self.tip(branch, repository) == commit:
            return
        lease = f"--force-with-lease={ref}:{expected}"
        words = ["push", "-q", "--no-verify", "--recurse-submodules=no", lease]
        self._ask(self.clone, repository, [*words, "--", repository.clone_url, f"{commit}:{ref}"])

    def _ask(self, at: Path, repository: Repository, words: Sequence[str]) -> Done:
        helper = f'!f() {{ test "$1" = get || exit 0; echo username={self.user}; printf'
        helper += f" 'password=%s\\n' \"$(cat {shlex.quote(str(self.token_file))})\"; }}; f"
        parts = urlsplit(repository.clone_url)
        settings = [
            *("-c", "credential.helper="),  # those of the person
            *("-c", f"credential.{parts.scheme}://{parts.netloc}.helper={helper}"),
            *("-c", "http.followRedirects=false"),
            *("-c", "protocol.allow=never", "-c", f"protocol.{parts.scheme}.allow=always"),
        ]
        done = run_raw([*settings, "--git-dir", str(at), *words], timeout=SECONDS)
        if done.code:
            raise self._error(words[0], done.error_text)
        return done

    def _error(self, verb: str, text: str) -> ActionError:
        message = f"git {verb} failed: {text.strip()[-400:]}"
        if any(sign in text for sign in REFUSED):
            hint = f"is the token right, and may it write? bullpen auth set {self.credential}"
            return ActionError(message, Verdict.PERSON, hint=hint)
        is_away = any(sign in text for sign in CONNECTION)
        return ActionError(message, Verdict.LATER if is_away else Verdict.AGAIN)


def _object_at(batch: bytes, offset: int) -> tuple[str, str]:
    """Id and type of the object of `cat-file --batch` that lies there. Pure."""
    at = 0
    while True:
        end = batch.index(b"\n", at)
        id, kind, size = batch[at:end].decode().split(" ")
        at = end + 1 + int(size) + 1
        if offset < at:
            return id, kind


def _run(words: Sequence[str], stdin: bytes = b"", output: IO[bytes] | None = None) -> Done:
    done = run_raw(words, stdin=stdin, timeout=SECONDS, output=output)
    if done.code:
        raise ActionError(f"git failed: {done.error_text.strip()[-400:]}", Verdict.AGAIN)
    return done
