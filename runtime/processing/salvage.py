"""What can be saved of a batch that does not decode.

A value can be written by pickle and yet not be read again: an exception class whose `__init__`
wants two arguments, a `__setstate__` with a mistake. The fast decoder gives up the whole batch
then. Here the batch is read once more, slowly, with a stand-in for each value that cannot be made;
the tuples that contain one become dead letters, the others go on. So whatever a peer sends, tuples
and dead letters together are as many as the batch states, and the ledger balances.

This leans on the pure Python unpickler of the standard library (`pickle._Unpickler`) and on what
its methods leave on the stack when they raise; the tests go through each of them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.processing.payload import PayloadError, decode, describe

_UNREADABLE = "it arrived, but cannot be read here"


def decode_batch(data: bytes | memoryview, count: int) -> tuple[list[Any], list[DeadLetter]]:
    """The `count` tuples of a batch; those that cannot be read as dead letters. Raises nothing
    but `MemoryError`."""
    letters: list[DeadLetter] = []
    why = ""
    try:
        tuples = decode(data)
    except PayloadError as error:
        why = describe(error.__cause__ or error)
        tuples, letters = _salvage(bytes(data))
    if len(tuples) + len(letters) == count:
        return tuples, letters
    reason = f"{_UNREADABLE}: {why or f'the batch holds {len(tuples)} tuples, not {count}'}"
    return [], [DeadLetter(reason, None) for _ in range(count)]


def _salvage(data: bytes) -> tuple[list[Any], list[DeadLetter]]:
    try:
        read = _Reader(io.BytesIO(data)).load()
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException:
        return [], []  # not a pickle, or cut off
    tuples: list[Any] = []
    letters: list[DeadLetter] = []
    for number, one in enumerate(read if type(read) is list else ()):
        try:
            pickle.dumps(one, 5)  # finds a stand-in wherever it is
        except (MemoryError, KeyboardInterrupt):
            raise
        except BaseException as error:
            reason = f"{_UNREADABLE}: {describe(error)}"
            letters.append(DeadLetter(reason, None, f"number {number} of its batch"))
        else:
            tuples.append(one)
    return tuples, letters


class _Broken:
    """Stands for a value that could not be made. Bears what pickle does to values while reading,
    and raises the reason when it is written."""

    _error: BaseException

    def __new__(cls, *args: Any) -> _Broken:
        # Reading calls `value.__new__(value)` when the class itself could not be found.
        return cls if isinstance(cls, _Broken) else object.__new__(cls)

    @classmethod
    def because(cls, error: BaseException) -> _Broken:
        broken = cls()
        broken._error = error
        return broken

    def __call__(self, *args: Any, **kwargs: Any) -> _Broken:
        return self

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def append(self, item: Any) -> None: ...

    def add(self, item: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self._error


class _Reader(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]
    memo: dict[int, Any]
    append: Callable[[Any], None]

    def replace_top(self, error: BaseException) -> None:
        """The value in work, on top of the stack, is spoilt; so are later references to it."""
        spoilt, broken = self.stack[-1], _Broken.because(error)
        self.stack[-1] = broken
        for key, value in self.memo.items():
            if value is spoilt:
                self.memo[key] = broken

    def push(self, error: BaseException) -> None:
        """The value was to be made from operands that have already been taken."""
        self.append(_Broken.because(error))


def _guard(opcode: bytes, on_error: Callable[[_Reader, BaseException], None]) -> None:
    read = _Reader.dispatch[opcode[0]]

    def guarded(reader: _Reader) -> None:
        try:
            read(reader)
        except (EOFError, pickle.UnpicklingError, KeyboardInterrupt):
            raise
        except BaseException as error:
            on_error(reader, error)

    _Reader.dispatch[opcode[0]] = guarded


for _opcode in (
    pickle.REDUCE,
    pickle.BUILD,
    pickle.APPEND,
    pickle.APPENDS,
    pickle.SETITEM,
    pickle.SETITEMS,
    pickle.ADDITEMS,
):
    _guard(_opcode, _Reader.replace_top)
for _opcode in (
    pickle.STACK_GLOBAL,
    pickle.GLOBAL,
    pickle.NEWOBJ,
    pickle.NEWOBJ_EX,
    pickle.FROZENSET,
    pickle.DICT,
):
    _guard(_opcode, _Reader.push)
