"""What is said about results follows the last of them, in whatever order they leave."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.instance.branch import Branch, Epochs, Segments, SharedBranch

WAYS = 3


def branch() -> Branch:
    return SharedBranch(OperatorName("next"), Limits())


def test_what_is_said_of_nothing_is_said_at_once() -> None:
    epochs, said = Epochs(), list[str]()
    epochs.after(lambda _: said.append("first"), branch())
    epochs.after(lambda _: said.append("second"), branch())
    assert said == ["first", "second"]


def test_what_is_said_does_not_wait_for_results_made_later() -> None:
    epochs, way, said = Epochs(), Segments(), list[str]()
    way.add(2, 0.0, epochs.present)
    epochs.after(lambda _: said.append("mark"), branch())
    way.add(5, 0.0, epochs.present)
    way.take(1)
    epochs.settle(branch())
    assert said == []
    way.take(1)
    epochs.settle(branch())
    assert said == ["mark"]


class Marking(RuleBasedStateMachine):
    """Results are held on several ways, as those of a keyed branch are, and leave by any of them;
    between them marks are made. Each is a number, counted over all."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs = Epochs()
        self.branch = branch()
        self.ways = [Segments() for _ in range(WAYS)]
        self.made = 0
        self.held: list[list[int]] = [[] for _ in range(WAYS)]
        self.marks: list[tuple[int, int]] = []
        """(number of the mark, how many results it is about)."""
        self.said: list[int] = []

    @rule(way=st.integers(0, WAYS - 1), n=st.integers(1, 4))
    def hold(self, way: int, n: int) -> None:
        self.ways[way].add(n, 0.0, self.epochs.present)
        self.held[way] += range(self.made, self.made + n)
        self.made += n

    @rule()
    def mark(self) -> None:
        number = len(self.marks)
        self.marks.append((number, self.made))
        self.epochs.after(lambda _: self.said.append(number), self.branch)

    @precondition(lambda self: any(self.held))
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        way = data.draw(st.sampled_from([w for w in range(WAYS) if self.held[w]]))
        n = data.draw(st.integers(1, len(self.held[way])))
        self.ways[way].take(n)
        del self.held[way][:n]
        self.epochs.settle(self.branch)

    @precondition(lambda self: any(self.held))
    @rule(data=st.data())
    def change_ways(self, data: st.DataObject) -> None:
        """Another owner: what is held for one goes on to another, with its epochs."""
        old = data.draw(st.sampled_from([w for w in range(WAYS) if self.held[w]]))
        new = data.draw(st.integers(0, WAYS - 1))
        moved, self.ways[old] = self.ways[old], Segments()
        results, self.held[old] = self.held[old], []
        for n, born, epoch in moved.parts():
            epoch.held -= n
            self.ways[new].add(n, born, epoch)
        self.held[new] += results
        self.epochs.settle(self.branch)

    @invariant()
    def each_mark_is_said_once_as_soon_as_all_before_it_is_gone(self) -> None:
        oldest = min((r for held in self.held for r in held), default=self.made)
        assert self.said == [number for number, results in self.marks if results <= oldest]


TestMarking = Marking.TestCase
