"""Certificates for tests."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from anabranch import authority
from anabranch.authority import Authority, Wanted, new_authority, save_identity


class Certificates:
    """Folders of identities below a folder, by one authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority: Authority = new_authority()

    def issue(self, name: str, *roles: str, addresses: tuple[str, ...] = ()) -> Path:
        """The folder, with the trust in this authority."""
        path = self.folder / name
        key = Ed25519PrivateKey.generate()
        chain = self.authority.issue(Wanted(name, roles, addresses), key.public_key())
        save_identity(path, key, chain, self.authority.trusted)
        return path

    def issue_at(
        self, monkeypatch: pytest.MonkeyPatch, days_from_now: int, name: str, *roles: str
    ) -> Path:
        """As if that day were today."""
        real = authority._now
        with monkeypatch.context() as patched:
            patched.setattr(authority, "_now", lambda: real() + dt.timedelta(days=days_from_now))
            return self.issue(name, *roles)
