"""What came of a run of chaos: judged, counted, and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from faults.blamed import Blamed, blamed
from faults.incarnation import Happening
from faults.judge import Verdict, judge
from faults.oracle import expected_counted, expected_traced
from faults.plan import KINDS
from faults.recovery import Recovery, in_the_middle, percentiles, read_calls, recoveries
from faults.runner import Record

NOT_COVERED = "full disks and read-only folders, broken hosts, and networks between hosts"


@dataclass(slots=True)
class Result:
    record: Record
    verdict: Verdict
    recovered: list[Recovery] = field(default_factory=list)
    middle: dict[str, int] = field(default_factory=dict)
    blamed: Blamed = field(default_factory=Blamed)
    faults: list[str] = field(default_factory=list)
    """Everything that is not right."""

    @property
    def right(self) -> bool:
        return not self.faults

    @property
    def seconds(self) -> float:
        """From the first input to the end of the run; 0 if it had none."""
        return max(0.0, self.record.ended_s - self.record.zero_s)


def conclude(record: Record) -> Result:
    """Compare with the oracle, unless the run has not come to its end."""
    happenings = [one for incarnation in record.incarnations for one in incarnation.events.values()]
    result = Result(record, Verdict(), faults=list(record.faults))
    result.middle = in_the_middle(record.blows, happenings)
    result.recovered = _recovered(record, happenings)
    if record.ended_s:
        settings, letters = record.settings, blamed(record.settings)
        counted, traced = expected_counted(settings, letters), expected_traced(settings, letters)
        result.blamed = letters
        result.verdict = judge(settings.counted, counted, letters.at("counted"))
        result.verdict += judge(settings.traced, traced, letters.at("traced"))
        accepted = counted.results + traced.results - len(letters.at("counted", "traced"))
        result.faults += _of_verdict(result.verdict) + _of_ledger(record, accepted, letters.count)
        result.faults += record.health.faults()
    return result


def _recovered(record: Record, happenings: list[Happening]) -> list[Recovery]:
    names = {
        pid: name for incarnation in record.incarnations for pid, name in incarnation.names.items()
    }
    path = record.settings.first_calls
    calls = read_calls(path.read_text() if path.exists() else "", names)
    return recoveries(record.blows, happenings, calls)


def _of_verdict(verdict: Verdict) -> list[str]:
    if verdict.right:
        return []
    counts = (
        f"{verdict.lost:,} results lost, {verdict.doubled:,} doubled, "
        f"{verdict.disordered:,} out of order, {verdict.wrong:,} keys with a wrong state"
    )
    return [counts, *verdict.words]


def _of_ledger(record: Record, accepted: int, dead: int) -> list[str]:
    if (report := record.report) is None:
        return ["the run has left no report"]
    ledger, found = report.ledger, []
    if not report.ok:
        words = "; ".join(ledger.faults[:3]) or report.failure or report.ended
        found.append(f"the ledger does not balance: {words}")
    wanted = {
        "tuples read": (ledger.tuples_in, record.settings.lines + record.settings.made),
        "results accepted": (ledger.tuples_out, accepted),
        "dead letters": (ledger.dead_letters, dead),
    }
    for what, (told, right) in wanted.items():
        if told != right:
            found.append(f"the ledger counts {told:,} {what}, there are {right:,}")
    return found


def as_json(result: Result) -> dict[str, Any]:
    record, health = result.record, result.record.health
    settings = record.settings
    done = Counter(blow.kind for blow in record.blows)
    planned = Counter(fault.kind for fault in record.planned)
    kinds = Counter(
        h.kind for incarnation in record.incarnations for h in incarnation.events.values()
    )
    return {
        "seed": settings.seed,
        "minutes": round(settings.seconds / 60, 4),
        "transport": settings.transport,
        "right": result.right,
        "faults": result.faults,
        "injected": {
            kind: {"planned": planned[kind], "hit": done[kind], "what": KINDS[kind]}
            for kind in KINDS
            if planned[kind]
        },
        "in_order": [fault.text for fault in record.planned],
        "missed": [[fault.text, why] for fault, why in record.inflicting.missed],
        "hit_in_the_middle": result.middle,
        "died": kinds["died"],
        "resumed": kinds["resumed"],
        "joined": kinds["joined"],
        "left": kinds["left"],
        "recovery_ms": {
            "noticed": percentiles(r.noticed_s for r in result.recovered),
            "resumed": percentiles(r.resumed_s for r in result.recovered),
            "first_tuple": percentiles(r.first_s for r in result.recovered),
            "agent_gone": percentiles(o.gone_s - o.killed_s for o in record.outages),
            "agent_resumed": percentiles(o.running_s - o.begun_s for o in record.outages),
        },
        "results": {
            "found": result.verdict.results,
            "lost": result.verdict.lost,
            "doubled": result.verdict.doubled,
            "out_of_order": result.verdict.disordered,
            "wrong_keys": result.verdict.wrong,
            "blamed": result.blamed.tuples,
            "per_second": round(result.verdict.results / result.seconds) if result.seconds else 0,
        },
        "seconds": {
            "faults": settings.seconds,
            "whole": round(result.seconds, 2),
            "healing": round(max(0.0, record.ended_s - record.healed_s), 2),
        },
        "health": {
            "agent_mib_max": _most(health.agent_mib),
            "agent_files_max": _most(health.agent_files),
            "instance_mib_max": {n: _most(many) for n, many in health.largest_mib.items()},
            "instance_files_max": health.files_max,
            "instances_max": health.processes_max,
            "state_mib_max": _most(health.state_mib),
        },
        "plan": [asdict(fault) for fault in record.planned],
        "not_covered": NOT_COVERED,
    }


def _most(values: list[float] | list[int]) -> float:
    return round(max(values, default=0), 1)
