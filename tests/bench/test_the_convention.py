"""Every bench is run by `make bench`, is in the docs, tells one line, and can draw it."""

import json
import re
from pathlib import Path

import pytest

from bench.__main__ import BENCHES
from bench.report import Target, Telling, report

ROOT = Path(__file__).parent.parent.parent
SPREAD = {"p50_ms": 10.0, "p90_ms": 12.0, "p99_ms": 20.0, "max_ms": 25.0, "n": 9}
TARGETS = [Target("reached", 1.0, 2.0), Target("nothing is allowed", 3, 0), Target("below zero", -5.0, 10.0)]


def line(how: Telling) -> int:
    figures = {"nodes": 3, "here": SPREAD, "deeper": {"there": SPREAD}}
    return report("tried", figures=figures, floor={"here": SPREAD}, ratios={"a": 1 / 3}, targets=TARGETS, how=how)


def test_every_bench_that_reports_is_run_by_make_bench_and_is_in_the_docs() -> None:
    found = {p.stem for p in (ROOT / "bench").glob("*.py") if "return report(" in p.read_text()}
    assert found == set(BENCHES)
    page = (ROOT / "docs" / "benches.md").read_text()
    assert [name for name in sorted(BENCHES) if f"\n| `{name}` |" not in page] == []


def test_every_claim_of_availability_is_shown_by_a_test_or_a_bench_that_there_is() -> None:
    page = (ROOT / "docs" / "availability.md").read_text()
    shown = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(shown) >= 10
    assert [name for path, name in shown if f"def {name}(" not in (ROOT / path).read_text()] == []
    assert set(re.findall(r"`bench\.(\w+)`", page)) <= BENCHES.keys()
    acts = (ROOT / "bench" / "fleet" / "chaos.py").read_text() + (ROOT / "bench" / "load.py").read_text()
    told = {
        act for told in re.findall(r"`bench\.(?:soak|load)`: (\*[^|;`]+\*)", page) for act in told[1:-1].split("*, *")
    }
    assert {act for act in told if f'"{act}"' not in acts} == set()


def test_a_line_says_what_was_measured_and_the_exit_code_follows_strict(capsys: pytest.CaptureFixture[str]) -> None:
    assert (line(Telling()), line(Telling(strict=True))) == (0, 1)
    out, err = capsys.readouterr()
    told = json.loads(out.splitlines()[0])
    assert (told["bench"], told["met"], told["ratios"]) == ("tried", False, {"a": 0.333})
    assert err.count("missed: nothing is allowed is 3.000, to reach 0") == 2


def test_a_picture_is_drawn_of_times_floors_and_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    line(Telling(plot=tmp_path))
    picture = tmp_path / "bench-tried.png"
    assert capsys.readouterr().err.splitlines()[-1] == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_floor_stands_below_the_figure_of_its_name_and_others_at_the_end() -> None:
    pytest.importorskip("matplotlib")
    from bench.picture import rows

    drawn = rows({"a": SPREAD, "b": {"c": SPREAD}, "n": 1}, {"b": {"c": SPREAD}, "d": SPREAD})
    assert [label for label, _, _ in drawn] == ["a", "b, c", "floor", "floor: d"]
    assert [label for label, _, _ in rows({}, SPREAD)] == ["floor"]
