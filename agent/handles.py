"""How many file handles this agent and its engines may have open: as many as the system lets it ask for.

The soft limit that services and shells begin with (1024) is for old programs; engines inherit the agent's, and one
request takes at least one. What cannot be raised is told.
"""

import resource

MOST = 1_048_576
"""Some programs close every handle they might have: where the hard limit is a billion, for minutes."""

LEAST_FOR_ENGINES = 4096
"""An engine with fewer turns away its busiest hours."""

_OWN = 128
_PER_REPLICA = 6
"""A pidfd, a probe's connection, and what a start and a report take meanwhile."""


def raise_soft_limit() -> int:
    """Up to the hard one; what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return soft if soft != resource.RLIM_INFINITY else MOST


def why_too_few(limit: int, replicas: int) -> str:
    """What `limit` is too little for; empty while it is enough."""
    needed = _OWN + _PER_REPLICA * replicas
    mend = "raise LimitNOFILE of the agent's service, or `ulimit -Hn`"
    if limit < needed:
        return f"{limit} file handles are too few for this agent with {replicas} replicas ({needed}): {mend}"
    if limit < LEAST_FOR_ENGINES:
        return f"engines get {limit} file handles, one or more a request; {LEAST_FOR_ENGINES} are the least: {mend}"
    return ""
