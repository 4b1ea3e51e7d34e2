"""Views of a fleet as tables for a terminal: plain when piped, never wider than it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

console = Console(highlight=False, soft_wrap=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; long cells fold."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, overflow="fold")
    for row in rows:
        made.add_row(*("" if cell is None else str(cell) for cell in row))
    console.print(made)


def age(seconds: float | None) -> str:
    """`42s`, `7m`, `3h`, `2d`."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def counts(found: Mapping[str, int]) -> str:
    """`2 ready, 1 loading`."""
    return ", ".join(f"{n} {name}" for name, n in found.items() if n) or "none"


def status(value: Mapping[str, Any]) -> None:
    console.print(f"[bold]{value['fleet']}[/bold]: {value['phase']}, generation {value['generation']}")
    for name in ("models", "replicas", "nodes"):
        found = value.get(name)
        if isinstance(found, Mapping):
            console.print(f"  {name:9} {counts({k: v for k, v in found.items() if isinstance(v, int)})}")
    for router in value.get("routers", ()):
        state = (
            "has the newest table" if router.get("current") else f"behind: {router.get('problem') or 'not confirmed'}"
        )
        console.print(f"  router    {router['id']}: {state}")
    for row in value.get("waiting", ()):
        console.print(f"  waiting   {row.get('subject')} ({age(row.get('age_s'))}): {row.get('text')}")
    for row in value.get("refusals", ())[:5]:
        console.print(f"  refused   {row['name']} ({age(row.get('age_s'))} ago): {'; '.join(row['problems'])[:300]}")
    for key in ("fenced_by", "safe_mode"):
        if value.get(key):
            console.print(f"  [bold red]{key}[/bold red] {value[key]}")


def models(rows: Iterable[Mapping[str, Any]]) -> None:
    found = (
        (
            m["name"],
            f"{m.get('ready', 0)}/{m.get('wanted', m.get('desired', '?'))}",
            ", ".join(m.get("aliases", ())),
            (m.get("waiting") or {}).get("text", ""),
        )
        for m in rows
    )
    table(("MODEL", "READY", "ALIASES", "WAITING"), found)


def replicas(rows: Iterable[Mapping[str, Any]]) -> None:
    table(
        ("REPLICA", "MODEL", "PROFILE", "NODE", "STATE", "AGE", "REASON"),
        (
            (
                r.get("id") or r.get("replica"),
                r["model"],
                r["profile"],
                r["node"],
                r["state"],
                age(r.get("age_s")),
                r.get("reason", ""),
            )
            for r in rows
        ),
    )


def nodes(rows: Iterable[Mapping[str, Any]]) -> None:
    found = (
        (
            n["id"],
            n["state"],
            n["pool"],
            f"{sum(1 for d in n['devices'] if d['free'])}/{len(n['devices'])}",
            n["replicas"],
            n.get("note") or ("cordoned" if n.get("cordoned") else ""),
        )
        for n in rows
    )
    table(("NODE", "STATE", "POOL", "FREE", "REPLICAS", "NOTE"), found)


def routers(rows: Iterable[Mapping[str, Any]]) -> None:
    found = (
        (
            r["id"],
            r["kind"],
            r["url"],
            "yes" if r.get("current") else "no",
            age(r.get("confirmed_age_s")),
            r.get("problem", ""),
        )
        for r in rows
    )
    table(("ROUTER", "KIND", "URL", "NEWEST", "CONFIRMED", "PROBLEM"), found)


def endpoints(rows: Iterable[Mapping[str, Any]]) -> None:
    found = ((e["id"], ", ".join(e["models"]), e["url"], e["engine"], e["weight"], e["priority"]) for e in rows)
    table(("ENDPOINT", "MODELS", "URL", "ENGINE", "WEIGHT", "PRIORITY"), found)
