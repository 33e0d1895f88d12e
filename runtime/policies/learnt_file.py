"""What the controllers of a run have learnt, as a file that another run begins with.

JSON: the format, the operators with those before them, and of each controller its name, its
settings and what it leaves to another incarnation. A checksum tells damage.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from anabranch.runtime.policies.controller import Controller, Scaled, controllers_of
from anabranch.runtime.policies.policy import Heritage
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.foreign import shown

FORMAT = 1
KIND = "anabranch learnt"
ANOTHER = "name another file, or leave out --learnt"


class Following(Scaled, Protocol):
    """What this needs of an operator."""

    @property
    def upstream(self) -> Collection[Any]: ...


class LearntBy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`learnt`: numbers that JSON does not have are texts."""

    controller: str
    settings: dict[str, bool | int | float | str | None]
    learnt: dict[str, float | Literal["inf", "-inf", "nan"]]

    @property
    def heritage(self) -> Heritage:
        return {text: float(value) for text, value in self.learnt.items()}


class LearntFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`operators`: of the pipeline, with those before each; `crc`: CRC-32 of it with 0 here."""

    kind: str = KIND
    format: int = FORMAT
    operators: dict[str, list[str]]
    controllers: list[LearntBy]
    crc: int = 0

    @property
    def sealed(self) -> LearntFile:
        plain = msgspec.structs.replace(self, crc=0)
        return msgspec.structs.replace(plain, crc=zlib.crc32(msgspec.json.encode(plain)))

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self.sealed), indent=1) + b"\n"

    def of(self, policy: Controller[Any]) -> Heritage | None:
        """By the same one, or by one of its kind whose settings were others; None: by neither."""
        of_its_kind = [each for each in self.controllers if each.controller == policy.name]
        same = [each for each in of_its_kind if each.settings == policy.settings]
        return next((each.heritage for each in [*same, *reversed(of_its_kind)]), None)

    def check(self, path: Path, operators: Collection[Following]) -> None:
        """Raise `PipelineError` if these operators cannot begin with it."""
        wanted = controllers_of(operators)
        check_controllers(f"--learnt {path}", wanted)
        for policy in wanted:
            if self.of(policy) is None:
                theirs = ", ".join(dict.fromkeys(each.controller for each in self.controllers))
                raise PipelineError(
                    f"--learnt {path}: expected what controller {policy.name} has learnt, got what "
                    f"{theirs or 'none'} has; choose that controller, or {ANOTHER}"
                )
        for operator in operators:
            before, now = self.operators.get(operator.name), [*map(str, operator.upstream)]
            if before is not None and sorted(before) != sorted(now):
                raise PipelineError(
                    f"--learnt {path}: operator {operator.name!r} followed {_named(before)} there, "
                    f"and follows {_named(now)} here, so what was learnt of it does not hold; "
                    f"give it another name, or {ANOTHER}"
                )


def check_controllers(option: str, wanted: Iterable[Controller[Any]]) -> None:
    """Raises `PipelineError` if there are none."""
    if not list(wanted):
        raise PipelineError(
            f"{option}: no operator has a controller, and only controllers learn for a whole run; "
            "choose one with --controller, or leave this out"
        )


def learnt_file(
    operators: Collection[Following], left: Mapping[Controller[Any], Heritage]
) -> LearntFile:
    return LearntFile(
        operators={str(o.name): [*map(str, o.upstream)] for o in operators},
        controllers=[
            LearntBy(controller=policy.name, settings=policy.settings, learnt=_plain(some))
            for policy, some in left.items()
        ],
    )


def read_learnt(path: Path) -> LearntFile:
    """Raises `PipelineError`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PipelineError(f"--learnt {path}: {error.strerror}; {ANOTHER}") from None
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(plain, dict) or plain.get("kind") != KIND:
        raise PipelineError(
            f"--learnt {path}: expected a file that a run has written with --keep-learnt, got "
            f"something else; {ANOTHER}"
        )
    if plain.get("format") != FORMAT:
        raise PipelineError(
            f"--learnt {path}: expected format {FORMAT}, got {shown(plain.get('format'))}: another "
            "version of anabranch has written it; let this one learn anew and leave out --learnt"
        )
    try:
        found = msgspec.convert(plain, LearntFile)
    except msgspec.ValidationError as error:
        raise _damaged(path, str(error)) from None
    if found.crc != found.sealed.crc:
        raise _damaged(path, f"expected checksum {found.sealed.crc}, got {found.crc}")
    return found


def _damaged(path: Path, what: str) -> PipelineError:
    return PipelineError(f"--learnt {path}: damaged or changed ({what}); {ANOTHER}")


def _named(operators: Iterable[str]) -> str:
    return ", ".join(map(repr, operators)) or "no other"


def _plain(heritage: Heritage) -> dict[str, Any]:
    return {text: n if math.isfinite(n) else str(n) for text, n in heritage.items()}
