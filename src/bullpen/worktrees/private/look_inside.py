"""What a private git holds, as one look from its sandbox says it.

Called by `bring_over` and `refresh`. An agent may have put anything there: what makes no sense is
passed over, and what is cut off is refused as a whole.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.private import lfs
from bullpen.worktrees.private.bring_modules import LIST as LIST_MODULES
from bullpen.worktrees.private.bring_modules import parse_modules
from bullpen.worktrees.private.store import HEADS, STASH, Inside, State

MOST_STASHES = 100
OID = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
END = "the end"
LOOK = f"""
git for-each-ref --format='%(objectname) %(refname)'
echo "HEAD $(git rev-parse -q --verify 'HEAD^{{commit}}') $(git symbolic-ref -q HEAD)"
if git rev-parse -q --verify {STASH} >/dev/null
then git log -g -n {MOST_STASHES} --format='STASH %H' {STASH} --; fi
{lfs.LIST}
{LIST_MODULES}
echo '{END}'
"""


@dataclass(frozen=True)
class InsideRefs:
    """What is inside: ids by full names of refs, HEAD, the stash (the newest first), and the names
    of LFS objects."""

    refs: Mapping[str, str]
    head: str
    on: str  # the full name of the ref; empty when detached
    stashes: tuple[str, ...]
    lfs: tuple[str, ...] = ()
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of submodules


def look(inside: Inside) -> InsideRefs:
    """What is inside, as far as it makes sense; cut off, it is refused as a whole."""
    done = inside.run(LOOK)
    *lines, end, _ = done.text.split("\n") if done.text.count("\n") else ("", "", "")
    if end != END:
        raise WorktreeError(
            Code.GIT_FAILED,
            f"cannot look at a private git: {done.error_text[-500:] or 'it says too much'}",
        )
    return parse_look(lines)


def parse_look(lines: list[str]) -> InsideRefs:
    """Pure. An agent may have put anything into its refs: what is no ref is passed over."""
    refs, stashes, objects, modules, head, on = {}, [], [], [], "", ""
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "HEAD":
            head, _, on = rest.partition(" ")
        elif word == "STASH" and OID.fullmatch(rest):
            stashes.append(rest)
        elif word == "LFS" and lfs.NAME.fullmatch(rest):
            objects.append(rest)
        elif word == "MODULE":
            modules.append(rest)
        elif OID.fullmatch(word) and rest.startswith("refs/"):
            refs[rest] = word
    head = head if OID.fullmatch(head) else ""
    on = on if on.startswith("refs/") else ""
    return InsideRefs(refs, head, on, tuple(stashes), tuple(objects), parse_modules(modules))


def is_own(ref: str, state: State) -> bool:
    """Whether that ref is a branch outside as well: the birth branch, and `<birth>.…`. Pure."""
    own = f"{HEADS}{state.branch}"
    return bool(state.branch) and (ref == own or ref.startswith(f"{own}."))
