"""What must start in little more time than a bare Python interpreter: `list`, `status`, `hook`, …

Called by the installed `bullpen` script and by engines' hooks; `client` uses its `wire`.
Must not import other rooms, nor `json`, `re`, `socket`, `os.path` or click.
"""
