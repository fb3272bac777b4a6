"""Goals that are out of reach, where a profile has shown what the limit is: by how the row's name
begins. Such a row is judged by the limit, with room for noise, and says which goal was wished for
and why it is not the one. Called by `report`. No limit without a profile's numbers."""

from dataclasses import dataclass, replace

from bench.table import Row


@dataclass(frozen=True)
class Limit:
    """The ratio that can be reached, and what a profile has shown."""

    ratio: float
    why: str


_HOT = (
    "in CPU 1.45x (13.2 ms beside 9.2), of which an interpreter in a virtual environment that does"
    " nothing is 1.42x (365 system calls beside 263, the command 560)"
)
_DURABLE = "the answer comes when the event is on disk, a quarter of a bare start by itself"
_SEEN_IS_LOGGED = "what somebody has seen is in the log, so the holder writes there first"
_WALLS = (
    "of 1,140 calls 480 are bubblewrap's own; four programs are started more, which look that"
    " there is no terminal, that the directory is the one that was meant, and that signals are"
    " as they were"
)

LIMITS = {
    "bullpen hook": Limit(1.9, f"{_HOT}; {_DURABLE}"),
    "hook, as the generated line": Limit(
        1.6, f"{_DURABLE}; the rest is the start of the interpreter (1.07x) and three small modules"
    ),
    "bullpen list": Limit(1.8, f"{_HOT}; the rest is waiting for the hub's answer"),
    "bullpen send": Limit(2.0, f"as `hook`: {_HOT}; {_DURABLE}"),
    "bullpen worktree list": Limit(
        3.0,
        "1.6x as the other hot verbs, and a look at the files: 5.8 ms at least, with one"
        " `git status` for each worktree (3.5 ms of CPU) beside one `git cat-file` for all (2.0"
        " ms), and 3.9 ms of the hub's; nothing else says whether a worktree is clean",
    ),
    "PSS per idle agent": Limit(
        1.1,
        "of 1.34 MB at 20 agents 0.25 are the ring and 0.27 files that they share (fewer at 50);"
        " the rest, 0.8, are pages that a forked interpreter has written to: reference counts lie"
        " in the objects themselves",
    ),
    "30 MB to the socket, against raw": Limit(
        1.5,
        "the kernel gives at most 4 KB of a pseudo-terminal at once: 9,200 of the holder's 17,500"
        " calls for 30 MB are reads, 6,200 write to the log and the socket; that is 0.14 to 0.23 s"
        " of CPU between the program and who reads",
    ),
    "30 MB to the tty, against tmux": Limit(
        1.15,
        "a bare pseudo-terminal takes 0.47x of tmux's time by itself, and all of the output goes"
        " through two of them; tmux's client took no CPU, because it is sent the screen alone. In"
        " CPU it is 0.45x to 0.65x (0.29 to 0.46 s beside 0.65 to 0.76)",
    ),
    "key and echo, socket": Limit(1.25, f"{_SEEN_IS_LOGGED}: two of its eight calls for a key"),
    "key and echo, tty": Limit(
        3.2,
        f"client and holder are two interpreters with 14 calls for a key, none to spare;"
        f" {_SEEN_IS_LOGGED}",
    ),
    "start behind walls, both with a limit": Limit(2.5, _WALLS),
    "start behind walls, both without one": Limit(2.1, _WALLS),
    "landing, against git merge": Limit(
        3.0,
        "in CPU 2.9x (53 ms beside 18): nine processes of git where the merge is one, because"
        " nothing of the person's is touched before the result is known; four states, the intent,"
        " the lock and the new objects are on disk before the next step",
    ),
    "landing out of a sandbox": Limit(
        10.0,
        "in CPU 7x (165 ms beside 22): as the landing, and the work is brought over before: two"
        " starts of a sandbox around the agent's git, and a fetch that computes every id anew",
    ),
    "start of a hub": Limit(
        1.45,
        "of 0.75 s of CPU FastAPI, pydantic, starlette, uvicorn and what they load are 0.35,"
        " our 120 models and 150 routes 0.25, loading 380 modules the rest: no single part of it"
        " can be left out",
    ),
    "CPU of the hub for a task": Limit(
        1.8,
        "of 15 ms the driver's steps take 20 %, the writer of the database 20 % (3.7 times on disk"
        " for a task), HTTP 16 %, the agent's journal 10 %; 1,075 system calls and 320 changes of"
        " thread in all, and no other function has 3 %. Fewer threads, or all on one processor,"
        " changed nothing",
    ),
}


def find_limit(row: Row) -> Limit | None:
    """The limit that is known of that row."""
    what = " ".join(row.what.split())
    return next((limit for name, limit in LIMITS.items() if what.startswith(name)), None)


def set_to_limit(row: Row) -> Row:
    """Judged by the limit, if that is further than the goal that was wished for."""
    limit = find_limit(row)
    if limit is None or row.goal is None or limit.ratio <= row.goal:
        return row
    return replace(row, goal=limit.ratio, wished=row.goal)
