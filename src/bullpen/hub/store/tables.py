"""The tables of `state.db`, step by step as they came. `database` carries the steps out; what the
tables mean is the business of those who use them.

A step is written once and never edited: files that went it stay as it made them. A new table is a
new step.
"""

# `latest` says for each kind and agent between which ids its events lie; `event_index` where
# those between are.
FIRST = (
    """
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        time REAL NOT NULL,
        kind TEXT NOT NULL,
        agent TEXT NOT NULL,
        data TEXT NOT NULL,
        key TEXT
    )
    """,
    "CREATE UNIQUE INDEX events_key ON events (key) WHERE key IS NOT NULL",
    """
    CREATE TABLE latest (
        kind TEXT NOT NULL,
        agent TEXT NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        PRIMARY KEY (kind, agent)
    ) WITHOUT ROWID
    """,
)

COMPONENTS = (
    """
    CREATE TABLE components (
        name TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        url TEXT NOT NULL,
        pid INTEGER NOT NULL,
        version TEXT NOT NULL,
        start_time TEXT NOT NULL,
        registered REAL NOT NULL
    ) WITHOUT ROWID
    """,
)

# `usage` outlives the agents: `born` tells one of a name from the next. The other four keep what
# telemetry and states have been counted up to, so that nothing counts twice.
USAGE = (
    """
    CREATE TABLE usage (
        agent TEXT NOT NULL,
        born TEXT NOT NULL,
        role TEXT NOT NULL,
        pod TEXT NOT NULL,
        model TEXT NOT NULL,
        day TEXT NOT NULL,
        input INTEGER NOT NULL,
        output INTEGER NOT NULL,
        cache_read INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        usd REAL NOT NULL,
        requests INTEGER NOT NULL,
        tool_calls INTEGER NOT NULL,
        tool_seconds REAL NOT NULL,
        work_seconds REAL NOT NULL,
        PRIMARY KEY (agent, born, role, pod, model, day)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE usage_series (
        agent TEXT NOT NULL,
        series BLOB NOT NULL,
        value REAL NOT NULL,
        PRIMARY KEY (agent, series)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE usage_seen (
        agent TEXT NOT NULL,
        key BLOB NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (agent, key)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX usage_seen_at ON usage_seen (at)",
    """
    CREATE TABLE usage_clocks (
        agent TEXT PRIMARY KEY,
        at REAL NOT NULL,
        is_working INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE TABLE usage_mark (id INTEGER PRIMARY KEY, event INTEGER NOT NULL)",
)

MESSAGES = (
    """
    CREATE TABLE messages (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        sender TEXT NOT NULL,
        recipient TEXT NOT NULL,
        text TEXT NOT NULL,
        priority TEXT NOT NULL,
        created REAL NOT NULL,
        sent REAL,
        channel TEXT NOT NULL,
        delivered REAL,
        read REAL
    )
    """,
    "CREATE INDEX messages_recipient ON messages (recipient, number)",
    "CREATE INDEX messages_open ON messages (recipient) WHERE read IS NULL",
)

# `data` is the whole task; the other columns are what is looked for.
TASKS = (
    """
    CREATE TABLE tasks (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        agent TEXT NOT NULL,
        session TEXT NOT NULL,
        request TEXT UNIQUE,
        state TEXT NOT NULL,
        created REAL NOT NULL,
        text TEXT NOT NULL,
        data TEXT NOT NULL
    )
    """,
    "CREATE INDEX tasks_agent ON tasks (agent, number)",
    "CREATE INDEX tasks_open ON tasks (number)"
    " WHERE state IN ('queued', 'working', 'idle', 'cancelling')",
    """
    CREATE TABLE task_sessions (
        id TEXT PRIMARY KEY,
        agent TEXT NOT NULL,
        data TEXT NOT NULL
    ) WITHOUT ROWID
    """,
)

# What approvals that wait are about. Apart from events, which stay: these are deleted.
APPROVAL_INPUTS = ("CREATE TABLE approval_inputs (key TEXT PRIMARY KEY, input TEXT NOT NULL)",)

# `data` is the whole entry of the queue.
LANDINGS = (
    """
    CREATE TABLE landings (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        repo TEXT NOT NULL,
        target TEXT NOT NULL,
        is_open INTEGER NOT NULL,
        created REAL NOT NULL,
        data TEXT NOT NULL
    )
    """,
    "CREATE INDEX landings_open ON landings (number) WHERE is_open",
)

# `tree_events`: the queues of agents and of `root`; `born` tells one agent of a name from the next.
# `tree_children`: what a child owes its parent, and what its parent was told of it.
TREE = (
    """
    CREATE TABLE tree_events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        recipient TEXT NOT NULL,
        born TEXT NOT NULL,
        kind TEXT NOT NULL,
        sender TEXT NOT NULL,
        at REAL NOT NULL,
        data TEXT NOT NULL,
        key TEXT NOT NULL UNIQUE,
        returned INTEGER NOT NULL DEFAULT 0,
        acked INTEGER NOT NULL DEFAULT 0
    )
    """,
    "CREATE INDEX tree_events_recipient ON tree_events (recipient, id)",
    """
    CREATE TABLE tree_children (
        agent TEXT NOT NULL,
        born TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (agent, born)
    ) WITHOUT ROWID
    """,
)

# Empty at first, also for a log that is full: `store` fills it, block by block, when nobody waits.
EVENT_INDEX = (
    """
    CREATE TABLE event_index (
        name TEXT NOT NULL,
        block INTEGER NOT NULL,
        ids BLOB NOT NULL,
        PRIMARY KEY (name, block)
    ) WITHOUT ROWID
    """,
    "CREATE TABLE event_index_end (id INTEGER PRIMARY KEY, event INTEGER NOT NULL)",
)

# Whose child an agent was, for what it used: `usage` outlives it, its session does not.
USAGE_PARENTS = (
    """
    CREATE TABLE usage_parents (
        agent TEXT NOT NULL,
        born TEXT NOT NULL,
        parent TEXT NOT NULL,
        parent_born TEXT NOT NULL,
        PRIMARY KEY (agent, born)
    ) WITHOUT ROWID
    """,
)

# Whether the text holds words of others than its sender: those are typed into no shell.
MESSAGE_QUOTES = ("ALTER TABLE messages ADD COLUMN quotes INTEGER NOT NULL DEFAULT 0",)

# What was used in each quarter of an hour, for plots; `usage` has the days.
USAGE_QUARTERS = (
    """
    CREATE TABLE usage_quarters (
        start INTEGER NOT NULL,
        agent TEXT NOT NULL,
        role TEXT NOT NULL,
        pod TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        usd REAL NOT NULL,
        PRIMARY KEY (start, agent, role, pod)
    ) WITHOUT ROWID
    """,
)

DIRECTORS = (
    """
    CREATE TABLE directors (
        name TEXT PRIMARY KEY,
        token_hash TEXT NOT NULL,
        since REAL NOT NULL
    ) WITHOUT ROWID
    """,
)

# What agents spent by tasks that others did for them.
DELEGATED = (
    """
    CREATE TABLE delegated (
        agent TEXT NOT NULL,
        born TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        usd REAL NOT NULL,
        minutes REAL NOT NULL,
        PRIMARY KEY (agent, born)
    ) WITHOUT ROWID
    """,
)

# Tasks of the fleet that agents of this machine do; `data` is the whole lease.
FLEET_LEASES = (
    "CREATE TABLE fleet_leases (key TEXT PRIMARY KEY, data TEXT NOT NULL) WITHOUT ROWID",
)

# Messages between machines. `origin`: `host/id` of one that came from another. `fleet_outbox`: what
# others have not taken yet, receipts included; `message` is the row that it is about. `fleet_sent`:
# the last number that was given to a letter for a host; `fleet_taken`: of one that came from there.
FLEET_MAIL = (
    "ALTER TABLE messages ADD COLUMN origin TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE messages ADD COLUMN refused REAL",
    "ALTER TABLE messages ADD COLUMN reason TEXT NOT NULL DEFAULT ''",
    """
    CREATE TABLE fleet_outbox (
        host TEXT NOT NULL,
        number INTEGER NOT NULL,
        message TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (host, number)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX fleet_outbox_message ON fleet_outbox (message)",
    """
    CREATE TABLE fleet_sent (
        host TEXT PRIMARY KEY,
        line TEXT NOT NULL,
        number INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE fleet_taken (
        host TEXT NOT NULL,
        line TEXT NOT NULL,
        number INTEGER NOT NULL,
        PRIMARY KEY (host, line)
    ) WITHOUT ROWID
    """,
)

# Children whose parents are on another machine: those that agents of this one have started
# elsewhere, and those that others have started here; what is still to be told of the latter.
FLEET_CHILDREN = (
    "CREATE TABLE fleet_asked (id TEXT PRIMARY KEY, data TEXT NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE fleet_children (
        host TEXT NOT NULL,
        id TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (host, id)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE fleet_told (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        host TEXT NOT NULL,
        id TEXT NOT NULL,
        agent TEXT NOT NULL,
        data TEXT NOT NULL
    )
    """,
)

# Components that died without leaving stay for a day, as they last said they were.
COMPONENTS_GONE = (
    "ALTER TABLE components ADD COLUMN gone_at REAL",
    "ALTER TABLE components ADD COLUMN state TEXT",
    "ALTER TABLE components ADD COLUMN problem TEXT NOT NULL DEFAULT ''",
)

# Step n leads from version n to n + 1 (PRAGMA user_version).
STEPS = (
    *(FIRST, COMPONENTS, USAGE, MESSAGES, TASKS, APPROVAL_INPUTS, LANDINGS, TREE, EVENT_INDEX),
    USAGE_PARENTS,
    MESSAGE_QUOTES,
    USAGE_QUARTERS,
    DIRECTORS,
    DELEGATED,
    FLEET_LEASES,
    FLEET_MAIL,
    FLEET_CHILDREN,
    COMPONENTS_GONE,
)
