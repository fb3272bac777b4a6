"""Names of agents, roles, pods and worktrees: what is allowed, and how one is made.

Pure. Code that turns a name into a path calls `check_name` again there.
"""

import re

from bullpen.errors import BullpenError

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
SUBTREE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]*")
SUBTREE_BYTES = 60
SLUG_LENGTH = 40
REPOSITORY_DIGITS = 8

# Words that commands, messages and routes give a meaning of their own.
RESERVED = frozenset(
    {"root", "all", "none", "self", "me", "you", "parent", "hub", "user", "owner", "bullpen"}
)

# Words after `bullpen task` that are commands: no new agent is called so. Old ones may be.
TASK_WORDS = frozenset({"show", "wait", "follow", "cancel", "continue", "end", "debug"})


def check_new_agent_name(name: str) -> str:
    """The name of an agent that is started, if every command can mean it."""
    if name in TASK_WORDS:
        raise BullpenError(
            f"agent name {name!r} is reserved: bullpen task {name} means something else",
            hint="choose another name",
        )
    return check_name("agent", name)


def check_name(noun: str, name: str) -> str:
    """The name itself, or an error that says what a name may look like."""
    if name in RESERVED:
        raise BullpenError(f"{noun} name {name!r} is reserved", hint="choose another name")
    if NAME.fullmatch(name) is None or name.endswith("."):
        raise BullpenError(
            f"{noun} name {name!r} is not allowed",
            hint="use a-z, 0-9, '.', '_' and '-', start with a letter or digit, at most 63",
        )
    return name


def slug(text: str) -> str:
    """`Fix the login bug!` -> `fix-the-login-bug`."""
    short = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:SLUG_LENGTH].rstrip("-")
    if not short:
        raise BullpenError(f"{text!r} has no letter or digit to make a name of")
    return short


def subtree_name(birth_branch: str) -> str:
    """A subtree's name is its birth branch with `/` written `~`."""
    name = birth_branch.replace("/", "~")
    if len(name.encode()) > SUBTREE_BYTES:
        raise BullpenError(
            f"the branch name {birth_branch!r} is longer than {SUBTREE_BYTES} bytes",
            hint="choose a shorter branch name",
        )
    return check_worktree_name(name)


def worktree_named(text: str) -> str:
    """The worktree that a person means who names it, or its branch."""
    return text.replace("/", "~")


def subtree_name_in(repository: str, birth_branch: str) -> str:
    """The name for a branch whose own is taken by another repository: worktrees of all of them lie
    in one directory, and issue 3 of each may have the same branch."""
    import hashlib  # not for every command that only checks a name

    path = repository.encode("utf-8", "surrogateescape")  # it may be no text
    key = hashlib.sha256(path + b"\0" + birth_branch.encode()).hexdigest()[:REPOSITORY_DIGITS]
    return f"{subtree_name(birth_branch)[: SUBTREE_BYTES - len(key) - 1]}~{key}"


def check_worktree_name(name: str) -> str:
    """An agent's name or a subtree's (the one place where `~` and capitals occur)."""
    subtree = SUBTREE_NAME.fullmatch(name) and len(name) <= SUBTREE_BYTES
    if subtree and not name.endswith(".") and name not in RESERVED:
        return name
    return check_name("worktree", name)
