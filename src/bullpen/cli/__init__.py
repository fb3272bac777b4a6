"""The `bullpen` command: `main` is the table, `commands/` holds a file per verb."""
