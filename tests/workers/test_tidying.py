"""Memory is given back after much work, in a quiet moment where there is one."""

from workers.tidying import DUE_S, LOOK_S, OVERDUE_S, Tidying, allot


class Process:
    """A process that uses as much as it is told to."""

    def __init__(self) -> None:
        self.used_s = self.now_s = 0.0
        self.tidied = 0
        self.tidying = Tidying(self._tidy, lambda: self.used_s, lambda: self.now_s)

    def _tidy(self) -> None:
        self.tidied += 1

    def work(self, core: float, seconds: float) -> None:
        for _ in range(round(seconds / LOOK_S)):
            self.used_s += core * LOOK_S
            self.now_s += LOOK_S
            self.tidying.look()


def test_an_idle_process_is_left_alone() -> None:
    process = Process()
    process.work(0.02, DUE_S / 0.02 - 1)
    assert process.tidied == 0


def test_after_much_work_the_first_quiet_moment_is_used_once() -> None:
    process = Process()
    process.work(1.0, DUE_S + 1)
    assert process.tidied == 0
    process.work(0.01, 20)
    assert process.tidied == 1


def test_work_that_never_ceases_is_interrupted_in_the_end() -> None:
    process = Process()
    process.work(0.5, 4 * OVERDUE_S)
    assert process.tidied == 2


def test_giving_back_works_here() -> None:
    allot()
    process = Tidying(used_s=iter([0.0, 0.0, OVERDUE_S, 0.0]).__next__)
    process.look()
