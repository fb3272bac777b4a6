"""`bullpen gc`: remove what ended agents left, never work that exists nowhere else."""

import click

from bullpen.cli import output
from bullpen.client.hub import HubClient
from bullpen.model import duration
from bullpen.paths import current_home


@click.command()
@click.option("--older-than", default="7d", show_default=True, help="Ended at least so long ago.")
@click.option("--dry-run", is_flag=True, help="Print the plan; touch nothing.")
@click.option(
    "--force", is_flag=True, help="Also uncommitted and unmerged work; kept aside for 30 days."
)
@output.json_option
def command(older_than: str, dry_run: bool, force: bool, as_json: bool) -> None:
    """Remove sessions, logs and clean, merged worktrees of agents that have ended."""
    wanted = {
        "older_than_seconds": duration.parse(older_than).total_seconds(),
        "dry_run": dry_run,
        "force": force,
    }
    swept = HubClient(current_home()).post("gc", body=wanted, again=True)
    if as_json:
        output.write_json(swept)
        return
    removed = "would remove" if dry_run else "removed"
    output.write_table(
        [],
        [
            [removed if step["do"] == "remove" else "kept", step["what"], step["name"], step["why"]]
            for step in swept["steps"]
        ],
    )
    if not swept["steps"]:
        output.write("nothing to remove")
