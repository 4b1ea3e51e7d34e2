"""The yard as if everything below a rank were gone: where displacing could help, without trying it node by node."""

from llmgw.placing.layout import Left
from llmgw.placing.seeker import Seeker
from llmgw.placing.yard import Yard

_Key = tuple[int, Left, int, int]


class Shadow:
    """The yard as if everything below a rank were gone: nodes by what would be left."""

    def __init__(self, yard: Yard, below: int) -> None:
        self._yard, self._below = yard, below
        self._rooms: dict[_Key, int] = {}
        self._of: list[_Key | None] = [None] * len(yard.sites)
        self._dirty: set[int] = set(range(len(yard.sites)))
        yard.watchers.append(self._dirty)

    def nodes(self, seeker: Seeker) -> int:
        """Nodes that would meet the need, and hold something that would be gone."""
        for i in self._dirty:
            self._look(i)
        self._dirty.clear()
        found = 0
        for key, members in self._rooms.items():
            if members and seeker.fits_left(*key):
                found |= members
        return found

    def _look(self, i: int) -> None:
        yard = self._yard
        low = [h for h in yard.holdings[i].values() if h.rank < self._below]
        key: _Key | None = None
        if low:
            host, cpu = yard.host_without(i, low)
            key = (yard.layout_of[i], yard.left(i, low), host, cpu)
        before, bit = self._of[i], 1 << i
        if before == key:
            return
        if before is not None:
            self._rooms[before] &= ~bit
        if key is not None:
            self._rooms[key] = self._rooms.get(key, 0) | bit
        self._of[i] = key
