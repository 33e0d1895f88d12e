"""The examples of RFC 8428, with the records that its section 5.1.4 and our reading give."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.runtime.mqtt.senml import SenmlError, resolve

NOW_S = 1_700_000_000.0
DEVICE = "urn:dev:ow:10e2073a01080063"


def of(text: str) -> list[dict[str, Any]]:
    return resolve(json.loads(text), NOW_S)


def test_a_single_datapoint_is_taken_now() -> None:
    """5.1.1"""
    found = of('[{"n":"urn:dev:ow:10e2073a01080063","u":"Cel","v":23.1}]')
    assert found == [{"n": DEVICE, "u": "Cel", "v": 23.1, "t": NOW_S}]


def test_several_datapoints_share_a_name() -> None:
    """5.1.2, the first example"""
    found = of(
        '[{"bn":"urn:dev:ow:10e2073a01080063:","n":"voltage","u":"V","v":120.1},'
        '{"n":"current","u":"A","v":1.2}]'
    )
    assert found == [
        {"n": f"{DEVICE}:voltage", "u": "V", "v": 120.1, "t": NOW_S},
        {"n": f"{DEVICE}:current", "u": "A", "v": 1.2, "t": NOW_S},
    ]


def test_times_are_added_to_the_base_time() -> None:
    """5.1.2, the second example: seconds before 1276020076.001"""
    found = of(
        '[{"bn":"urn:dev:ow:10e2073a0108006:","bt":1.276020076001e+09,"bu":"A","bver":5,'
        '"n":"voltage","u":"V","v":120.1},'
        '{"n":"current","t":-5,"v":1.2},{"n":"current","t":-4,"v":1.3},'
        '{"n":"current","t":-3,"v":1.4},{"n":"current","t":-2,"v":1.5},'
        '{"n":"current","t":-1,"v":1.6},{"n":"current","v":1.7}]'
    )
    assert found[0] == {
        "n": "urn:dev:ow:10e2073a0108006:voltage",
        "u": "V",
        "v": 120.1,
        "t": 1.276020076001e09,
    }
    assert [r["t"] for r in found[1:]] == [1276020076.001 + s for s in (-5, -4, -3, -2, -1, 0)]
    assert [r["v"] for r in found[1:]] == [1.2, 1.3, 1.4, 1.5, 1.6, 1.7]
    assert {(r["n"], r["u"]) for r in found[1:]} == {("urn:dev:ow:10e2073a0108006:current", "A")}


def test_the_resolved_records_are_those_of_the_rfc() -> None:
    """5.1.3 and 5.1.4: the pack, and its resolved form"""
    found = of(
        '[{"bn":"urn:dev:ow:10e2073a01080063","bt":1.320067464e+09,"bu":"%RH","v":20},'
        '{"u":"lon","v":24.30621},{"u":"lat","v":60.07965},'
        '{"t":60,"v":20.3},{"u":"lon","t":60,"v":24.30622},{"u":"lat","t":60,"v":60.07965},'
        '{"t":120,"v":20.7},{"u":"lon","t":120,"v":24.30623},{"u":"lat","t":120,"v":60.07966},'
        '{"u":"%EL","t":150,"v":98},{"t":180,"v":21.2},'
        '{"u":"lon","t":180,"v":24.30628},{"u":"lat","t":180,"v":60.07967}]'
    )
    resolved = [
        (1.320067464e09, "%RH", 20), (1.320067464e09, "lon", 24.30621),
        (1.320067464e09, "lat", 60.07965), (1.320067524e09, "%RH", 20.3),
        (1.320067524e09, "lon", 24.30622), (1.320067524e09, "lat", 60.07965),
        (1.320067584e09, "%RH", 20.7), (1.320067584e09, "lon", 24.30623),
        (1.320067584e09, "lat", 60.07966), (1.320067614e09, "%EL", 98),
        (1.320067644e09, "%RH", 21.2), (1.320067644e09, "lon", 24.30628),
        (1.320067644e09, "lat", 60.07967),
    ]  # fmt: skip
    assert [(r["t"], r["u"], r["v"]) for r in found] == resolved
    assert {r["n"] for r in found} == {DEVICE}


def test_values_of_all_types() -> None:
    """5.1.5"""
    found = of(
        '[{"bn":"urn:dev:ow:10e2073a01080063:","n":"temp","u":"Cel","v":23.1},'
        '{"n":"label","vs":"Machine Room"},{"n":"open","vb":false},'
        '{"n":"nfc-reader","vd":"aGkgCg"}]'
    )
    assert [r.get("v", r.get("vs", r.get("vb", r.get("vd")))) for r in found] == [
        23.1,
        "Machine Room",
        False,
        b"hi \n",
    ]


def test_base_values_and_sums_are_added() -> None:
    found = of('[{"bn":"a:","bv":10,"bs":100,"n":"x","v":1,"s":2},{"n":"y","s":3}]')
    assert found == [
        {"n": "a:x", "t": NOW_S, "v": 11, "s": 102},
        {"n": "a:y", "t": NOW_S, "s": 103},
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "expected an array"),
        ("[]", "expected an array"),
        ("[1]", "record 1: expected an object"),
        ('[{"v":1}]', "it has no name"),
        ('[{"n":"-x","v":1}]', "is no name"),
        ('[{"n":"x"}]', "neither a value nor a sum"),
        ('[{"n":"x","v":1,"vs":"a"}]', "several values: v, vs"),
        ('[{"n":"x","v":"1"}]', "'v' has a value of another type"),
        ('[{"n":"x","v":true}]', "'v' has a value of another type"),
        ('[{"n":"x","v":1},{"n":"x","v":1,"bver":11}]', "record 2: version 11 is not known"),
        ('[{"n":"x","v":1,"what_":1}]', "'what_' must be understood"),
        ('[{"n":"x","vd":"a"}]', "no base64"),
        ('[{"n":"x","v":1e999}]', "beyond the range"),
    ],
)
def test_what_is_not_as_the_rfc_has_it_is_refused(text: str, told: str) -> None:
    with pytest.raises(SenmlError, match="no SenML") as refused:
        of(text)
    assert told in str(refused.value)
