"""A child whose parent is on another machine, as each of the two hubs keeps it. Pure."""

from typing import Literal

from bullpen.model.child_letter import Birth, ChildUpdate, Used
from bullpen.model.parcel import Parcel
from bullpen.model.rights import Rights
from bullpen.model.value import Value

AT_REST = ("child_finished", "child_idle", "child_exited")  # what it did is there to be merged


class RemoteChild(Value):
    """One that an agent of this machine has started on another. `asked`: nothing was sent yet;
    `sent`: the other hub has it, or will have it."""

    id: str
    parent: str
    born: str  # the parent, as it tells one life of that name from the next
    host: str
    name: str  # there
    branch: str
    repo: str
    base_dir: str
    base: str  # the commit at which its branch began
    role: str
    ceiling: Rights
    at: float
    state: Literal["asked", "sent", "started", "refused"] = "asked"
    why: str = ""
    hint: str = ""
    path: str = ""
    not_granted: tuple[str, ...] = ()
    is_unknown: bool = False  # its parent was told that nobody knows what became of it
    is_stopping: bool = False
    is_over: bool = False
    is_at_rest: bool = False
    reported: Literal["", "success", "failure"] = ""
    reported_at: float = 0.0
    message: str = ""
    tip: str = ""  # of its branch, as it came last
    home_branch: str = ""  # under which that is here
    uncommitted: tuple[str, ...] = ()
    problem: str = ""  # why its last commits are not here
    late: Parcel | None = None  # those, if they wait at the server
    used: Used = Used()
    settled: Used = Used()  # what of that is on its parent's account for good

    @property
    def full_name(self) -> str:
        return f"{self.host}/{self.name}"

    @property
    def is_living(self) -> bool:
        """As far as anybody knows: it counts among its parent's children."""
        return self.state != "refused" and not self.is_over


class GuestChild(Value):
    """One that another machine's agent has started here. `state` says how far its start is; what
    else it says is how it is to be, and is seen to."""

    host: str
    birth: Birth
    state: Literal["taken", "started", "refused"] = "taken"
    name: str = ""
    parent: str  # there
    is_to_stop: bool = False
    merged: str = ""  # the commit up to which its parent has its work

    @property
    def id(self) -> str:
        return self.birth.id


def spent_since(used: Used, before: Used) -> Used:
    """What was used after that."""
    return Used(
        tokens=max(0, used.tokens - before.tokens),
        usd=max(0.0, used.usd - before.usd),
        minutes=max(0.0, used.minutes - before.minutes),
    )


def note_update(
    child: RemoteChild, update: ChildUpdate, now: float, branch: str, problem: str
) -> RemoteChild:
    """As it is after its host has told something; `branch` is where its commits are now, empty if
    none came, `problem` why."""
    fields: dict[str, object] = {"is_over": update.is_over, "used": update.used}
    if update.is_over:
        fields["settled"] = update.used
    if update.is_over or update.event in AT_REST:
        fields |= {"is_at_rest": True, "uncommitted": update.uncommitted, "problem": problem}
        fields["late"] = update.parcel if problem else None
    if branch or (update.tip == child.base and not problem):
        fields |= {"tip": update.tip, "home_branch": branch or child.home_branch}
    if update.event == "child_finished":
        status, message = update.data.get("status"), update.data.get("message")
        fields |= {
            "reported": status if status in ("success", "failure") else "",
            "reported_at": now,
            "message": str(message or "")[:200],
        }
    return child.model_copy(update=fields)


def note_late(child: RemoteChild, parcel: Parcel, branch: str, problem: str) -> RemoteChild:
    """As it is after what had not arrived was fetched again; unless there is something newer."""
    if child.late != parcel:
        return child
    if problem:
        return child.model_copy(update={"problem": problem})
    fields = {"tip": parcel.commit, "home_branch": branch, "problem": "", "late": None}
    return child.model_copy(update=fields)
