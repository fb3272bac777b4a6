"""What the commands about tasks share: ids, options, where a task works, waiting, texts.

Owns how a task is named, awaited and shown at a terminal. Called by `cli/commands`.
Must not decide what becomes of a task: the hub does.
"""
