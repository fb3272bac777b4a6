"""The names under which hubs meet at the server, and what each host may do there. Pure.

What is said to a host bears its sender's name, too, and only that sender may publish it: so the
server itself refuses a host that speaks under another's name.
"""

BUCKET = "bullpen_presence"
STREAM = f"KV_{BUCKET}"
ROOT = "bullpen"

# In an account of their own, where nobody listens to what hosts say to each other.
QUEUE = "bullpen_queue"  # tasks that wait for somebody, one message each
TASKS = "bullpen_tasks"  # how each task stands, one key each
PARCELS = "bullpen_parcels"  # git bundles, in pieces
TASKS_STREAM = f"KV_{TASKS}"
MAIL = "bullpen_mail"  # letters that their hub has not taken yet, one message each
HEARD = "bullpen_heard"  # how many letters a hub has taken of another's, one key each
HEARD_STREAM = f"KV_{HEARD}"


def said_to(host: str, sender: str, channel: str) -> str:
    """Where one host says something to another."""
    return f"{ROOT}.{host}.{sender}.{channel}"


def heard_by(host: str) -> str:
    """All that is said to a host."""
    return f"{ROOT}.{host}.>"


def inbox(host: str) -> str:
    """The prefix of the answers of the server's own services."""
    return f"_INBOX_{host}"


KINDS = ("live", "state")


def key(kind: str, host: str) -> str:
    """Of the bucket: `live` is there as long as the host says so, `state` is what it last said."""
    return f"$KV.{BUCKET}.{kind}.{host}"


def may_publish(host: str) -> list[str]:
    """No right to make consumers: one could have the server deliver to another's subjects."""
    return [
        said_to("*", host, ">"),
        key("live", host),
        key("state", host),
        f"$JS.API.STREAM.CREATE.{STREAM}",
        f"$JS.API.DIRECT.GET.{STREAM}",
    ]


def may_subscribe(host: str) -> list[str]:
    """What is said to it, and the answers to what it asked."""
    return [heard_by(host), f"{inbox(host)}.>"]


def queued(asker: str, need: str, id: str) -> str:
    """Where a task waits. The asker's name is in it: nobody else may publish there."""
    return f"{QUEUE}.{asker}.{need}.{id}"


def task_key(asker: str, id: str) -> str:
    """The key that says how a task stands."""
    return f"$KV.{TASKS}.{asker}.{id}"


def parcel(host: str, id: str, piece: str) -> str:
    """One piece of what that host sends."""
    return f"{PARCELS}.{host}.{id}.{piece}"


def mail(to: str, sender: str, name: str) -> str:
    """Where a letter waits. The sender's name is in it: nobody else may publish there."""
    return f"{MAIL}.{to}.{sender}.{name}"


def mail_to(host: str) -> str:
    """All letters for a host."""
    return f"{MAIL}.{host}.>"


def heard_key(host: str, sender: str) -> str:
    """The key that says what a host has taken of a sender's letters."""
    return f"$KV.{HEARD}.{host}.{sender}"


def queue_may_publish(host: str) -> list[str]:
    """Everybody may take every task, and so write its key: what is written there is signed. A
    consumer that delivers to whatever subject reaches this account alone. That of letters is made
    under a subject that names what it filters: nobody gets another's."""
    streams = (QUEUE, TASKS_STREAM, PARCELS, MAIL, HEARD_STREAM)
    return [
        queued(host, "*", "*"),
        task_key("*", "*"),
        parcel(host, "*", "*"),
        *(f"$JS.API.STREAM.CREATE.{stream}" for stream in streams),
        *(f"$JS.API.DIRECT.GET.{stream}" for stream in (TASKS_STREAM, PARCELS, HEARD_STREAM)),
        f"$JS.API.CONSUMER.CREATE.{QUEUE}.*",
        f"$JS.API.CONSUMER.NAMES.{QUEUE}",
        f"$JS.API.CONSUMER.MSG.NEXT.{QUEUE}.*",
        f"$JS.ACK.{QUEUE}.>",
        mail("*", host, "*"),
        heard_key(host, "*"),
        f"$JS.API.CONSUMER.CREATE.{MAIL}.{host}.{mail_to(host)}",
        f"$JS.API.CONSUMER.MSG.NEXT.{MAIL}.{host}",
        f"$JS.ACK.{MAIL}.{host}.>",
    ]


def queue_may_subscribe(host: str) -> list[str]:
    """What becomes of the tasks that it asked for and of its letters, and the answers to what it
    asked."""
    return [task_key(host, "*"), heard_key("*", host), f"{inbox(host)}.>"]
