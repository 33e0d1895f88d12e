"""Which deaths count towards those after which a run fails."""

from __future__ import annotations

from anabranch.runtime.live.agent.deaths import RESUMES_MAX, Deaths
from anabranch.runtime.values.kinds import Cause, Ending

CRASHED = Ending(Cause.SIGNAL, "was killed by SIGSEGV")


def note(deaths: Deaths, times: int = 1) -> None:
    for _ in range(times):
        deaths.note(CRASHED, 7, 0.1, busy=True)


def test_deaths_with_nothing_done_and_nothing_learnt_are_too_many_at_the_sixth() -> None:
    deaths = Deaths()
    note(deaths, RESUMES_MAX)
    assert deaths.next_is_last
    assert not deaths.too_many
    note(deaths)
    assert deaths.too_many


def test_a_death_that_tells_which_tuple_was_tried_does_not_count() -> None:
    deaths = Deaths()
    note(deaths, 2)
    for lessons in range(1, 2 * RESUMES_MAX):
        note(deaths)
        deaths.note_lessons(lessons)
    assert not deaths.next_is_last
    assert len(deaths.ends) == 1 + 2 * RESUMES_MAX  # the next incarnation hears of all of them


def test_an_incarnation_that_says_the_same_as_the_last_one_has_learnt_nothing() -> None:
    """It has written nothing down, or its journal was read again as it was."""
    deaths = Deaths()
    for _ in range(RESUMES_MAX + 2):
        note(deaths)
        deaths.note_lessons(1)
    assert deaths.too_many


def test_what_was_learnt_before_the_agent_began_is_no_news_of_its_deaths() -> None:
    deaths = Deaths()
    deaths.note_lessons(3)
    note(deaths, RESUMES_MAX + 1)
    deaths.note_lessons(3)
    assert deaths.too_many
