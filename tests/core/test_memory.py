"""Sizes of memory: units are strict, and the number on a card's box fits the card."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.memory import MAX_MIB, format_mib, parse_mib


@pytest.mark.parametrize(
    ("written", "mib"),
    [
        (81559, 81559),
        ("80GiB", 81920),
        ("80 GiB", 81920),
        ("80GB", 76294),  # 80·10⁹ bytes, rounded up
        ("1.5TiB", 1572864),
        ("512MB", 489),
        ("1MiB", 1),
        ("0.1MB", 1),
    ],
)
def test_sizes_are_read_exactly_and_rounded_up(written: object, mib: int) -> None:
    assert parse_mib(written) == mib


@pytest.mark.parametrize(
    "written",
    [
        *[
            "80",
            "80G",
            "80gb",
            "80 gigs",
            "80Gi",
            "-1GB",
            "1e3MiB",
            "",
            " 80GB",
            "80  GB",
            "GB",
            "0GB",
            "2000000TiB",
            "٨GB",
        ],
        *(0, -5, True, 2.0, None, [], {}, MAX_MIB + 1),
    ],
)
def test_anything_else_is_no_size(written: object) -> None:
    with pytest.raises(ValueError, match=r"memory|unit"):
        parse_mib(written)


def test_the_number_on_the_box_fits_what_drivers_report() -> None:
    reported = {"80GB": 81559, "24GB": 24564, "40GB": 40536, "16GB": 15360}  # H100, 4090, A100, T4
    assert all(parse_mib(box) <= mib for box, mib in reported.items())


@given(st.integers(1, MAX_MIB))
def test_what_is_shown_reads_back_as_the_same_size(mib: int) -> None:
    assert parse_mib(format_mib(mib)) == mib
