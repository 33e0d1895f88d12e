"""`--break RULE`: a broken variant of the shipped core, chosen by what it is called."""

from __future__ import annotations

from anabranch.runtime.broken_protocols.variants import VARIANTS, Variant


def variant_named(text: str) -> Variant:
    """The one variant whose name begins with or holds `text`, as `F3` or `R7: an idle`.

    Raises `ValueError` that lists what is meant perhaps; and for a duty of drivers, which is not a
    rule of the core: nothing would be broken.
    """
    exact = [v for v in VARIANTS if text in (v.name, *v.also.replace(",", " ").split())]
    near = [v for v in VARIANTS if text.lower() in v.name.lower()]
    found = exact if len(exact) == 1 else exact + [v for v in near if v not in exact]
    if len(found) == 1:
        if not found[0].patch:
            raise ValueError(
                f"{text!r} is a duty of a driver, not a rule of the protocol; "
                "anabranch verify --mutants breaks it"
            )
        return found[0]
    listed = "".join(f"\n  {v.name}" for v in found or VARIANTS)
    raise ValueError(f"{text!r} names {len(found) or 'no'} broken variants of:{listed}")
