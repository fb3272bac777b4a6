"""The scheduler: a director that gives tasks by the clock, as the `schedule` in its file says.

`cron` knows times, `plan` decides (pure), `rules` acts, `ledger` is what is remembered: every
occurrence once, as a run or as one that was skipped for a reason. `file` changes the person's file.
Run by `directors/loop`. Must not start agents: it asks the hub, by `client`.
"""
