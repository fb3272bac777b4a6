"""The commits of a checkout since another one: their subjects, and the files that each touches.

Called by `state` and `changes`. What a later commit takes back is not in the difference of the
ends, but it is in this list. Of a merge, everything is shown that it brought to the branch.
"""

from dataclasses import dataclass

from bullpen.worktrees.own_index import Look

MOST_COMMITS = 200
MOST_SUBJECT = 200
MOST_FILES = 20  # of one commit; more are counted


@dataclass(frozen=True)
class Commits:
    """`subjects` are lines of an abbreviated id and a subject, the oldest first. Of more than
    `MOST_COMMITS` only the newest are there; `count` is the number of all."""

    count: int = 0
    subjects: tuple[str, ...] = ()

    @property
    def left_out(self) -> int:
        return self.count - len(self.subjects)


def commits_since(look: Look, base: str) -> Commits:
    """Those that HEAD has and `base` has not."""
    if not look.head:
        return Commits()
    span = f"{base}..{look.head}"
    form = f"--format=%h %<({MOST_SUBJECT},trunc)%s"
    most = f"--max-count={MOST_COMMITS}"
    log = look.git("log", "-z", "--reverse", most, form, span)
    subjects = tuple(plain_line(line) for line in log.out.split(b"\0") if line)
    count = len(subjects)
    if count == MOST_COMMITS:
        count = int(look.git("rev-list", "--count", span).text)
    return Commits(count, subjects)


def log_words(head: str, base: str) -> tuple[str, ...]:
    """For git: each commit with the files that it touches, the oldest first."""
    return (
        *("log", "--reverse", "--no-color", "--no-decorate"),
        *(f"--max-count={MOST_COMMITS}", f"--format=%h %an: %<({MOST_SUBJECT},trunc)%s"),
        *("--diff-merges=first-parent", "--no-renames", "--no-ext-diff", "--no-textconv"),
        *(f"--stat=100,70,{MOST_FILES}", "--ignore-submodules=dirty", f"{base}..{head}"),
    )


def plain_line(line: bytes) -> str:
    """Subjects of commits and names of files may hold any bytes, escape sequences among them."""
    text = line.decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text).rstrip()
