"""The last ten catalogs, within 128 KB, oldest dropped first; what is damaged is forgotten and stops nothing."""

import json
import random

import pytest

from llmgw import views
from llmgw.kept_catalogs import MAX_BYTES, MOST, KeptCatalogs, keep, pack, unpack

RANDOM = random.Random(7)


def dense(size: int) -> dict[str, str]:
    """About `size` bytes, compressed."""
    return {"models": RANDOM.randbytes(size).hex()}


def kept(count: int, size: int = 100, first: int = 1) -> KeptCatalogs:
    made = KeptCatalogs()
    for generation in range(first, first + count):
        made = keep(
            made, {"generation": generation, **dense(size)}, generation, f"{generation:032x}", 10.0 * generation
        )
    return made


def test_the_last_ten_are_kept_and_come_back() -> None:
    made = kept(MOST + 3)
    assert [k.generation for k in made.catalogs] == list(range(4, 14))
    assert made.note() == ""
    assert unpack(pack(made)) == made
    assert unpack(pack(made)).catalogs[0].raw() == made.catalogs[0].raw()


def test_they_stay_within_their_room_and_say_which_went() -> None:
    made = kept(10, size=20_000)
    assert sum(len(k.packed) for k in made.catalogs) <= MAX_BYTES
    numbers = [k.generation for k in made.catalogs]
    assert numbers == list(range(numbers[0], 11))
    assert made.note().startswith(f"catalogs up to generation {numbers[0] - 1} are not kept")
    assert len(pack(made)) < MAX_BYTES + 2_000


def test_one_that_comes_again_takes_no_second_place() -> None:
    """A job that applies two catalogs in turn does not push out the others."""
    made = kept(5)
    one, other = made.catalogs[0], made.catalogs[3]
    for generation in range(6, 30, 2):
        made = keep(made, one.raw(), generation, one.digest, 1.0 * generation)
        made = keep(made, other.raw(), generation + 1, other.digest, 1.0 * generation)
    assert [k.generation for k in made.catalogs] == [2, 3, 5, 28, 29]
    assert [k.digest for k in made.catalogs[-2:]] == [one.digest, other.digest]
    assert made.catalogs[-2].raw() == one.raw()
    assert made.note() == ""


def test_one_that_comes_again_is_found_under_its_earlier_numbers_too() -> None:
    kept = KeptCatalogs()
    for generation, name in enumerate(("a", "b", "a", "c", "a"), 1):
        kept = keep(kept, {"models": [{"name": name}]}, generation, name, 0.0)
    assert [(item.generation, item.also) for item in kept.catalogs] == [(2, ()), (4, ()), (5, (1, 3))]
    again = unpack(pack(kept))
    assert again == kept
    for generation in (1, 3, 5):
        found = again.of(generation)
        assert found is not None
        assert found.raw() == {"models": [{"name": "a"}]}
    assert views.catalog_part(again, 3).known
    assert views.history(again, 5, 9.0).catalogs[0].also == (1, 3)


def test_what_an_earlier_version_packed_is_read() -> None:
    kept = keep(KeptCatalogs(), {"models": []}, 1, "d", 0.0)
    line, _, rest = pack(kept).partition(b"\n")
    head = json.loads(line)
    del head["also"]
    assert unpack(json.dumps(head).encode() + b"\n" + rest) == kept


def test_what_went_for_want_of_room_is_no_news_once_ten_have_come_since() -> None:
    made = kept(2, size=100_000)
    assert made.note()
    for generation in range(3, 16):
        made = keep(made, {"models": []}, generation, f"{generation:032x}", None)
    assert made.note() == ""


def test_one_that_is_too_large_alone_is_not_kept_and_the_next_is() -> None:
    made = keep(KeptCatalogs(), dense(MAX_BYTES * 2), 1, "d", 1.0)
    assert made.catalogs == ()
    assert "generation 1 are not kept" in made.note()
    made = keep(made, {"models": []}, 2, "e", 2.0)
    assert [k.generation for k in made.catalogs] == [2]
    assert unpack(pack(made)) == made


@pytest.mark.parametrize("damage", [b"", b"\x00", b"{}\n", b'{"catalogs": [[1, "d", 1.0, 5]], "dropped": 0}\nabc'])
def test_damage_is_forgotten(damage: bytes) -> None:
    assert unpack(damage) == KeptCatalogs()
    assert unpack(pack(kept(3))[:-5]) == KeptCatalogs()


def test_a_catalog_travels_in_pieces_that_fit_a_page() -> None:
    made = kept(1, size=100_000)
    pages: list[views.CatalogPart] = []
    page: int | None = 0
    while page is not None:
        pages.append(views.catalog_part(made, 1, page))
        page = pages[-1].next_page
    assert len(pages) == 3
    assert all(len(p.model_dump_json()) <= 60_000 for p in pages)
    assert views.catalog_part(made, 5).kept == (1,)
    assert not views.catalog_part(made, 5).known


def test_text_that_utf8_cannot_carry_is_kept() -> None:
    made = keep(KeptCatalogs(), {"models": "\ud800"}, 1, "d", 1.0)
    assert made.catalogs[0].raw() == {"models": "\ud800"}
