"""Scale scripts: what they mean, and how they say what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.runtime.policies.script import (
    Script,
    Scripted,
    ScriptError,
    load_script,
    parse_script,
)

OPERATORS = ("split", "clean", "count")


def decisions(text: str) -> list[Scripted]:
    return list(parse_script(text).decisions(OPERATORS))


def test_statements_become_decisions_in_order_of_time() -> None:
    text = """
    # the storm
    2.0 clean leave     # one that is not the keeper
    1.5 split duplicate 2

    3 clean hand_over
    4 split relocate
    5 split relocate press-2
    """
    assert decisions(text) == [
        Scripted(1.5, "split", "duplicate", 2),
        Scripted(2.0, "clean", "leave"),
        Scripted(3.0, "clean", "hand_over"),
        Scripted(4.0, "split", "relocate"),
        Scripted(5.0, "split", "relocate", host="press-2"),
    ]


def test_a_repetition_counts_its_steps_without_drift() -> None:
    times = [d.at_s for d in decisions("every 0.1 from 1 to 60: split duplicate")]
    assert len(times) == 591
    assert times[0] == 1.0
    assert times[-1] == 60.0
    assert times[37] == 4.7


def test_a_star_means_every_operator_that_can_have_several_instances() -> None:
    made = decisions("1 * duplicate")
    assert [d.operator for d in made] == ["clean", "count", "split"]


def test_statements_of_one_line_are_separated_by_semicolons() -> None:
    made = decisions("every 1 from 0 to 2: split leave; 0.5 clean duplicate")
    assert [(d.at_s, d.operator) for d in made] == [
        (0.0, "split"),
        (0.5, "clean"),
        (1.0, "split"),
        (2.0, "split"),
    ]


def test_a_storm_of_an_hour_is_made_step_by_step() -> None:
    script = parse_script("every 0.001 from 0 to 1e12: * duplicate")
    stream = script.decisions(OPERATORS)
    assert [next(stream).operator for _ in range(4)] == ["clean", "count", "split", "clean"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n1.5 split duplicat", r"line 2: no action 'duplicat'; did you mean 'duplicate'\?"),
        ("1 split explode", r"known: duplicate, leave, hand_over"),
        ("soon split leave", r"line 1: expected seconds after the start; known: every"),
        ("evry 1 from 1 to 2: split leave", r"did you mean 'every'\?"),
        ("-1 split leave", r"expected seconds after the start; got '-1'"),
        ("inf split leave", r"expected seconds"),
        ("1 split", r"line 1: expected '1.5 OPERATOR duplicate 2' or .*; got '1 split'"),
        ("1 split leave 2", r"leave takes no number; got '2'"),
        ("1 split duplicate 0", r"expected a whole number of instances, 1 or more; got '0'"),
        ("1 split duplicate two", r"got 'two'"),
        ("1 split duplicate 2 now", r"expected '1.5 OPERATOR"),
        ("every 0 from 1 to 2: split leave", r"a step above 0"),
        ("every 1 from 3 to 2: split leave", r"an end after the start"),
        ("every 1 from 1: split leave", r"expected '1.5 OPERATOR"),
        ("# nothing\n", r"it is empty"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_a_suggestion(text: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        parse_script(text)


def test_an_unknown_operator_is_reported_before_anything_runs() -> None:
    script = parse_script("1 split leave\n2 claen leave")
    with pytest.raises(ScriptError, match=r"line 2: no operator 'claen'.*did you mean 'clean'\?"):
        script.decisions(OPERATORS)


@pytest.mark.parametrize("action", ["duplicate", "relocate"])
def test_an_operator_that_must_stay_at_one_instance_gets_no_second_one(action: str) -> None:
    bound = {"clean": "it keeps an order"}
    with pytest.raises(ScriptError, match=r"'clean' must stay at one instance; it keeps an order"):
        parse_script(f"1 clean {action}").decisions(OPERATORS, bound)
    made = parse_script(f"1 * {action}").decisions(OPERATORS, bound)
    assert [d.operator for d in made] == ["count", "split"]


def test_a_script_comes_from_a_file_or_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "storm script.txt"
    file.write_text("1 split leave\n")
    expected = parse_script("1 split leave")
    assert load_script(str(file)) == expected
    assert load_script("1 split leave") == expected
    assert isinstance(expected, Script)


def test_a_missing_or_wrong_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"'storm.txt': no such file"):
        load_script("storm.txt")
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("1 split\n")
    with pytest.raises(ScriptError, match=r"wrong.txt: scale script, line 1"):
        load_script(str(wrong))
    wrong.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScriptError, match="not a text in UTF-8"):
        load_script(str(wrong))
