"""The ledger: each way to lose or double a tuple is seen, and told from the others."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.live.agent.finals import Finals
from anabranch.runtime.reporting.ledger import Ledger, settle
from anabranch.runtime.reporting.status import FinalCount, Status

EDGES = [("lines", "work"), ("work", "out")]
OPERATORS = ["lines", "work", "out"]

Edge = tuple[str, str]


def counts(sent: int = 10, work: int = 10, out: int = 10) -> dict[str, FinalCount]:
    """A chain of one instance each; every tuple passes."""
    return {
        "lines": FinalCount(
            id="lines.0",
            operator="lines",
            tuples_in=sent,
            processed=sent,
            tuples_out=sent,
            sent={"work.0": sent},
        ),
        "work": FinalCount(
            id="work.0",
            operator="work",
            tuples_in=work,
            processed=work,
            tuples_out=work,
            received={"lines.0": work},
            sent={"out.0": work},
        ),
        "out": FinalCount(
            id="out.0",
            operator="out",
            tuples_in=out,
            processed=out,
            tuples_out=out,
            received={"work.0": out},
        ),
    }


def ledger(
    finals: dict[str, FinalCount], unaccounted: dict[str, Status | None] | None = None
) -> Ledger:
    return settle(finals.values(), EDGES, OPERATORS, unaccounted)


def changed(finals: dict[str, FinalCount], name: str, **values: object) -> dict[str, FinalCount]:
    return {**finals, name: msgspec.structs.replace(finals[name], **values)}


def test_a_chain_that_passed_everything_on_balances() -> None:
    found = ledger(counts())
    assert (found.tuples_in, found.tuples_out, found.channels) == (10, 10, 2)
    assert found.balanced
    assert found.faults == []
    assert all(b.balanced for b in found.operators)


def test_a_tuple_sent_and_not_received_is_lost() -> None:
    found = ledger(counts(sent=10, work=9, out=9))
    assert (found.lost, found.duplicated, found.balanced) == (1, 0, False)
    assert found.faults == ["lines.0 sent 10 to work.0, which received 9"]


def test_a_tuple_received_twice_is_duplicated() -> None:
    found = ledger(counts(sent=10, work=11, out=11))
    assert (found.lost, found.duplicated, found.balanced) == (0, 1, False)


def test_a_loss_and_a_duplicate_do_not_cancel_out() -> None:
    found = ledger(counts(sent=10, work=9, out=10))
    assert (found.lost, found.duplicated) == (1, 1)


def test_a_tuple_that_vanishes_inside_an_instance_is_lost() -> None:
    found = ledger(changed(counts(), "work", processed=9))
    assert (found.lost, found.balanced) == (1, False)
    assert found.operators[1].balanced is False


def test_a_result_that_never_left_its_instance_is_lost() -> None:
    found = ledger(changed(counts(), "work", tuples_out=12))
    assert found.lost == 2


def test_a_tuple_that_the_target_of_a_sink_does_not_have_is_lost() -> None:
    found = ledger(changed(counts(), "out", tuples_out=9))
    assert (found.lost, found.tuples_out) == (1, 9)


def test_dead_letters_account_for_their_tuples() -> None:
    finals = changed(counts(out=8), "work", processed=8, dead=2, tuples_out=8, sent={"out.0": 8})
    finals = changed(finals, "lines", dead_upstream=3)
    found = ledger(finals)
    assert (found.balanced, found.dead_letters) == (True, 5)


def test_an_operator_may_make_more_results_than_it_got_tuples() -> None:
    finals = changed(counts(out=30), "work", tuples_out=30, sent={"out.0": 30})
    assert ledger(finals).balanced


def test_each_branch_gets_every_result() -> None:
    finals = counts()
    finals["extra"] = FinalCount(
        id="extra.0",
        operator="extra",
        tuples_in=9,
        processed=9,
        tuples_out=9,
        received={"work.0": 9},
    )
    finals = changed(finals, "work", sent={"out.0": 10, "extra.0": 9})
    found = settle(finals.values(), [*EDGES, ("work", "extra")], [*OPERATORS, "extra"])
    assert (found.lost, found.balanced) == (1, False)
    assert found.faults == ["work.0 made 10 results, sent 9 to extra"]


def test_what_an_instance_without_account_was_sent_is_in_flight_not_lost() -> None:
    finals = counts()
    del finals["work"]
    last = Status(id="work.0", operator="work", t=0.0, tuples_in=7, dead=1)
    found = ledger(finals, {"work.0": last})
    assert (found.in_flight, found.lost, found.duplicated) == (10, 0, 0)
    assert (found.balanced, found.dead_letters) == (False, 1)
    assert "work.0 ended without an account of its tuples" in found.faults


def test_what_was_received_from_an_instance_that_never_was_is_duplicated() -> None:
    finals = changed(counts(), "out", received={"work.0": 10, "work.7": 2}, tuples_in=12)
    assert ledger(finals).duplicated >= 2


def test_what_is_still_queued_keeps_the_ledger_open() -> None:
    found = ledger(changed(counts(out=10), "out", processed=9, queued=1, tuples_out=9))
    assert (found.in_flight, found.lost, found.balanced) == (1, 0, False)


def siblings(*, out: int = 4, taken: int = 4, **second: int) -> dict[str, FinalCount]:
    """The chain with a second instance of `work`, to which the first hands tuples."""
    finals = changed(
        counts(out=6 + taken),
        "work",
        handed_out=out,
        processed=6,
        tuples_out=6,
        sent={"out.0": 6},
    )
    finals["second"] = FinalCount(
        id="work.1",
        operator="work",
        handed_in=taken,
        processed=taken,
        tuples_out=taken,
        sent={"out.0": taken},
    )
    received = {"work.0": 6, "work.1": taken}
    return changed(changed(finals, "out", received=received), "second", **second)


def test_tuples_handed_to_a_sibling_are_accounted_for_by_both() -> None:
    found = ledger(siblings())
    assert (found.balanced, found.tuples_out, found.faults) == (True, 10, [])
    assert all(b.balanced for b in found.operators)


def test_a_tuple_lost_on_its_way_to_a_sibling_is_lost() -> None:
    found = ledger(siblings(taken=3))
    assert (found.lost, found.duplicated, found.balanced) == (1, 0, False)
    assert found.faults == ["instances of work handed 4 to siblings, which took over 3"]
    assert not found.operators[1].balanced


def test_a_tuple_that_comes_twice_to_a_sibling_is_duplicated() -> None:
    found = ledger(siblings(taken=5))
    assert (found.lost, found.duplicated, found.balanced) == (0, 1, False)


def test_a_tuple_both_processed_and_handed_on_is_duplicated() -> None:
    found = ledger(changed(siblings(), "work", processed=7))
    assert (found.duplicated, found.balanced) == (1, False)
    assert "work.0 took 10 in, but accounts for 11" in found.faults


def test_a_tuple_taken_over_and_forgotten_is_lost() -> None:
    found = ledger(siblings(processed=3))
    assert (found.lost, found.balanced) == (1, False)
    assert "work.1 took 4 in, but accounts for 3" in found.faults


def test_what_a_sibling_without_account_was_handed_is_in_flight_not_lost() -> None:
    finals = siblings()
    del finals["second"]
    finals = changed(finals, "out", received={"work.0": 6}, tuples_in=6, processed=6, tuples_out=6)
    found = ledger(finals, {"work.1": None})
    assert (found.in_flight, found.lost, found.duplicated) == (4, 0, 0)
    assert not found.balanced


def test_what_a_sibling_without_account_has_handed_out_is_no_fault_either() -> None:
    """It was killed; who took over from it has more than the others have handed out."""
    finals = siblings()
    del finals["work"]
    finals = changed(finals, "out", received={"work.1": 4}, tuples_in=4, processed=4, tuples_out=4)
    found = ledger(finals, {"work.0": None})
    assert (found.lost, found.duplicated) == (0, 0)
    assert not found.balanced


@given(
    st.integers(1, 3).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, 50), min_size=n, max_size=n), min_size=1, max_size=4
        )
    ),
    st.data(),
)
def test_any_one_tuple_taken_from_any_channel_is_seen(
    matrix: list[list[int]], data: st.DataObject
) -> None:
    """`matrix[i][j]`: tuples that source i sent to sink j."""
    senders, receivers = range(len(matrix)), range(len(matrix[0]))
    finals = {
        f"a{i}": FinalCount(
            id=f"a.{i}",
            operator="a",
            tuples_in=sum(matrix[i]),
            processed=sum(matrix[i]),
            tuples_out=sum(matrix[i]),
            sent={f"b.{j}": matrix[i][j] for j in receivers},
        )
        for i in senders
    }
    for j in receivers:
        got = {f"a.{i}": matrix[i][j] for i in senders}
        total = sum(got.values())
        finals[f"b{j}"] = FinalCount(
            id=f"b.{j}",
            operator="b",
            tuples_in=total,
            processed=total,
            tuples_out=total,
            received=got,
        )
    assert settle(finals.values(), [("a", "b")], ["a", "b"]).balanced
    i, j = data.draw(st.sampled_from([(i, j) for i in senders for j in receivers]))
    delta = data.draw(st.sampled_from([-1, 1]))
    got = {**finals[f"b{j}"].received, f"a.{i}": matrix[i][j] + delta}
    total = sum(got.values())
    finals = changed(
        finals, f"b{j}", received=got, tuples_in=total, processed=total, tuples_out=total
    )
    found = settle(finals.values(), [("a", "b")], ["a", "b"])
    assert (found.lost, found.duplicated) == ((1, 0) if delta < 0 else (0, 1))
    assert not found.balanced


def test_faults_in_words_are_bounded_and_counts_are_not() -> None:
    finals = counts()
    finals = changed(finals, "lines", sent={f"work.{n}": 1 for n in range(500)}, tuples_out=500)
    found = ledger(finals)
    assert len(found.faults) <= 100
    assert found.lost == pytest.approx(500, abs=12)


def test_what_a_death_loses_is_excused_only_where_delivery_allows_it() -> None:
    finals = [
        FinalCount(id="a.0", operator="a", tuples_in=3, processed=3, tuples_out=3, sent={"b.0": 3}),
        FinalCount(
            id="b.0", operator="b", tuples_in=2, processed=2, tuples_out=2, received={"a.0": 2}
        ),
    ]
    strict = settle(finals, [("a", "b")], ["a", "b"])
    excused = settle(finals, [("a", "b")], ["a", "b"], excused=True)
    assert (strict.lost, strict.balanced, strict.excused) == (1, False, False)
    assert (excused.lost, excused.balanced, excused.excused) == (1, False, True)
    missing = settle(finals[:1], [("a", "b")], ["a", "b"], {"b.0": None}, excused=True)
    assert not missing.excused


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=4),
    st.integers(6, 9),
    st.booleans(),
)
def test_a_result_may_die_on_its_way_to_any_of_several_operators(
    dead: list[int], made: int, summed: bool
) -> None:
    """`dead[i]`: so many of the results of `work` could not be sent to operator `to{i}`."""
    finals, edges, names = branches(dead, made)
    kept = Finals(names, edges)
    for final in finals:
        kept.add(final)
        if summed:
            kept._sum_up(kept.latest.popleft())
    found = settle(kept.latest, edges, names, summed=kept.summed)
    assert found.faults == []
    assert (found.balanced, found.lost, found.duplicated) == (True, 0, 0)
    assert found.dead_letters == sum(dead)
    assert found.tuples_out == made * len(dead) - sum(dead)


def test_a_result_that_is_neither_sent_nor_dead_on_its_way_to_one_of_them_is_lost() -> None:
    finals, edges, names = branches([1, 0], 5)
    finals[1] = msgspec.structs.replace(finals[1], dead_towards={"to1": 1})
    found = settle(finals, edges, names)
    assert (found.lost, found.duplicated, found.balanced) == (1, 1, False)
    assert found.faults == [
        "work.0 made 5 results, sent 4 to to0",
        "work.0 made 5 results, sent 5 to to1, could not send 1",
    ]


def branches(dead: list[int], made: int) -> tuple[list[FinalCount], list[Edge], list[str]]:
    """A source, `work`, and the operators that use its results."""
    to = [f"to{i}" for i in range(len(dead))]
    sent = {f"{name}.0": made - n for name, n in zip(to, dead, strict=True)}
    finals = [
        FinalCount(
            id="lines.0",
            operator="lines",
            tuples_in=made,
            processed=made,
            tuples_out=made,
            sent={"work.0": made},
        ),
        FinalCount(
            id="work.0",
            operator="work",
            tuples_in=made,
            processed=made,
            tuples_out=made,
            received={"lines.0": made},
            dead_upstream=sum(dead),
            dead_towards=dict(zip(to, dead, strict=True)),
            sent=sent,
        ),
    ]
    for name in to:
        n = sent[f"{name}.0"]
        finals.append(
            FinalCount(
                id=f"{name}.0",
                operator=name,
                tuples_in=n,
                processed=n,
                tuples_out=n,
                received={"work.0": n},
            )
        )
    return finals, [("lines", "work"), *(("work", name) for name in to)], ["lines", "work", *to]
