"""What a history keeps packed is read whole, whoever wrote it; and its size is known before it is made."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from temporalio.contrib.pydantic import pydantic_data_converter

from llmgw.observation import Observation, TroubleSeen
from llmgw.packing import PACKED_FROM, Weigher, packed, unpacked


def of_size(size: int) -> Observation:
    """An observation whose JSON has so many bytes."""
    empty = Observation(pool="p", cursor=7, troubles=(TroubleSeen(target="node/n", text=""),))
    fill = size - len(empty.model_dump_json())
    return empty.model_copy(update={"troubles": (TroubleSeen(target="node/n", text="x" * fill),)})


@pytest.mark.parametrize(("size", "is_packed"), [(PACKED_FROM - 1, False), (PACKED_FROM, True)])
def test_an_observation_is_packed_from_a_size_on(size: int, is_packed: bool) -> None:
    made = of_size(size)
    told = made.model_dump_json()
    assert isinstance(json.loads(told), str if is_packed else dict)
    assert Observation.model_validate_json(told) == made
    assert isinstance(made.model_dump(), dict)


def test_a_large_observation_of_an_earlier_version_is_read_as_it_is() -> None:
    made = of_size(60_000)
    plain = json.dumps(made.model_dump())
    assert len(plain) >= 60_000
    assert Observation.model_validate_json(plain) == made


async def test_a_large_observation_goes_through_the_converter_of_the_plane() -> None:
    made = of_size(200_000)
    payloads = await pydantic_data_converter.encode([made])
    assert len(payloads[0].data) < 4096
    assert await pydantic_data_converter.decode(payloads, [Observation]) == [made]


@pytest.mark.parametrize("text", ["", "zlib:", "zlib:!!", "zlib:AAAA", "observation", packed(b"[]"), packed(b"{}")])
def test_what_is_no_packed_observation_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Observation.model_validate_json(json.dumps(text))


@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(1, 20_000), max_size=30),
    alphabet=st.sampled_from([1, 4, 64, 256]),
)
def test_a_weigher_never_says_too_little(seed: int, sizes: list[int], alphabet: int) -> None:
    rng = random.Random(seed)
    weigher, documents = Weigher(), [bytes(rng.choices(range(alphabet), k=size)) for size in sizes]
    for document in documents:
        weigher.add(document)
    whole = b"".join(documents)
    size = len(packed(whole))
    assert unpacked(packed(whole)) == whole
    assert not weigher.fits(int(size * 0.97) - 64)
    assert weigher.plain_bytes == len(whole)
    assert weigher.fits(size + size // 10 + 128), "nor much too much"
