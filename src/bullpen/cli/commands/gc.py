"""`bullpen gc`: remove what ended agents left, never work that exists nowhere else."""

from collections.abc import Sequence

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.client.gc import collect
from bullpen.errors import BullpenError
from bullpen.model import duration
from bullpen.model.gc import SESSION_OF_KEPT_TREE, GcPlan, GcStep

NAMES_SHOWN = 8


@click.command()
@click.option("--older-than", default="7d", show_default=True, help="Ended at least so long ago.")
@click.option("--dry-run", is_flag=True, help="Print the plan; touch nothing.")
@click.option(
    "--force", is_flag=True, help="Also uncommitted and unmerged work; kept aside for 30 days."
)
@output.json_option
def command(older_than: str, dry_run: bool, force: bool, as_json: bool) -> None:
    """Remove sessions, logs and clean, merged worktrees of agents that have ended.

    Uncommitted and unmerged work stays, and is named. Locked worktrees stay in any case.
    """
    try:
        seconds = duration.parse(older_than).total_seconds()
    except ValueError as error:
        raise BullpenError(f"--older-than: {error}") from error
    swept = GcPlan(steps=(), done=False)
    for step in connect().stream(collect(seconds, dry_run=dry_run, force=force)):
        if isinstance(step, GcPlan):
            swept = step
        elif not as_json:
            output.show_progress(f"{step.doing} {step.number} of {step.of} …")
    if as_json:
        output.write_json(swept.model_dump(mode="json"))
        return
    output.show_progress("")
    for line in text_of(swept):
        output.write(line)


def text_of(swept: GcPlan) -> list[str]:
    """What was done, in a line; what was kept, by reason."""
    removed = [step for step in swept.steps if step.do == "remove"]
    rows = []
    if removed:
        rows.append(("removed" if swept.done else "would remove", _removed(removed)))
    rows += [("kept", line) for line in _kept(swept.steps)]
    if not removed:
        rows.insert(0, ("removed" if swept.done else "would remove", "nothing"))
    width = max(len(word) for word, _ in rows)
    return [f"{word:<{width}}  {output.printable(line)}" for word, line in rows]


def _removed(steps: Sequence[GcStep]) -> str:
    sessions = [step.name for step in steps if step.what == "session"]
    merged = [step.name for step in steps if step.what == "worktree" and not step.forced]
    forced = [step.name for step in steps if step.what == "worktree" and step.forced]
    sockets = [step.name for step in steps if step.what == "socket"]
    parts = []
    if sessions:
        one = len(sessions) == 1
        parts.append(
            f"the session of {sessions[0]}" if one else f"sessions of {len(sessions)} ended agents"
        )
    if merged:
        parts.append(f"{_count(merged, 'merged worktree')} ({_some(merged)})")
    if forced:
        back = f"bullpen worktree restore {forced[0]}"
        parts.append(f"{_count(forced, 'worktree')} with work in it ({_some(forced)} · {back})")
    if sockets:
        parts.append(_count(sockets, "dead socket"))
    return ", ".join(parts)


def _kept(steps: Sequence[GcStep]) -> list[str]:
    """Those with work each on a line of its own and how to look at it; then the others, those
    with the same reason together."""
    lines = [
        f"{step.name}: {step.why} · bullpen worktree info {step.name}"
        for step in steps
        if step.do == "keep" and step.what == "worktree"
    ]
    others: dict[str, list[str]] = {}
    for step in steps:
        if step.do == "keep" and step.what != "worktree" and step.why != SESSION_OF_KEPT_TREE:
            others.setdefault(step.why, []).append(step.name)
    return lines + [f"{_some(names)}: {why}" for why, names in others.items()]


def _count(names: Sequence[str], noun: str) -> str:
    return f"{len(names)} {noun}{'s' * (len(names) != 1)}"


def _some(names: Sequence[str]) -> str:
    rest = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
