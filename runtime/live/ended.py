"""Marks of instances that have ended, in a folder that all of a run see. Whoever cannot reach one
of them need not wait for its next life."""

from __future__ import annotations

from pathlib import Path


def ended_dir(lasting_dir: Path) -> Path:
    return lasting_dir / "ended"


def leave_mark(folder: Path, instance: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / instance).touch()


def has_mark(folder: Path, instance: str) -> bool:
    return (folder / instance).exists()
