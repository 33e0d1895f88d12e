"""The certificate authority of a system of hosts: its key, and the certificates that it signs.

Its folder, CA, which belongs on one machine that is not in the field:

CA/authority.pem    the key and the certificate of the authority; after `rotate` also those of the
                    one before: its certificate, and the new one as signed by it
CA/ca.pem           what hosts trust: the certificates of the authority, the new one first
CA/tokens/          tokens to join with, until they are used

What `issue` and `join` write, for a host or a person:

DIR/identity.pem    key and certificate
DIR/ca.pem          what it trusts

Only this module, `joining` and their commands import the package `cryptography`.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from anabranch.runtime.hosts.roles import AGENT, ROLES
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.replaced import replace_file
from anabranch.runtime.values.hints import hint

AUTHORITY, CA, IDENTITY = "authority.pem", "ca.pem", "identity.pem"
AUTHORITY_DAYS, DAYS = 3650, 365
SKEW = dt.timedelta(hours=1)
"""Certificates hold from an hour ago: clocks of hosts differ."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PEM, _RAW = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo


class AuthorityError(ValueError):
    """The message says what is wrong, and what to do."""


class Wanted(NamedTuple):
    """`addresses`: where others reach it: names or IP addresses."""

    name: str
    roles: tuple[str, ...]
    addresses: tuple[str, ...]
    days: int = DAYS


@dataclass(frozen=True)
class Authority:
    """`before`: of the authority before, as long as it is trusted; `bridge`: this one's
    certificate as that one has signed it, so that hosts that trust only that one trust this."""

    key: Ed25519PrivateKey
    certificate: x509.Certificate
    before: x509.Certificate | None = None
    bridge: x509.Certificate | None = None

    @property
    def trusted(self) -> bytes:
        return pem_of(self.certificate, self.before)

    def until(self, wanted: Wanted) -> dt.datetime:
        """Raises `AuthorityError` if that is longer than the authority is valid."""
        until = _now() + dt.timedelta(days=wanted.days)
        if until > self.certificate.not_valid_after_utc:
            raise AuthorityError(
                f"{wanted.days} days are longer than the authority is valid, until "
                f"{day(self.certificate.not_valid_after_utc)}; give fewer with --days, or make a "
                "new one with `anabranch ca rotate`"
            )
        return until

    def issue(self, wanted: Wanted, public: Ed25519PublicKey, *, is_server: bool = False) -> bytes:
        """Certificates as PEM: its own, and the one that leads to the authority before. That of a
        server, which this program makes for itself, ends with the authority at the latest."""
        if is_server:
            ends = self.certificate.not_valid_after_utc
            until = min(_now() + dt.timedelta(days=wanted.days), ends)
        else:
            until = self.until(wanted)
        roles = dict.fromkeys(wanted.roles)
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, wanted.name)]
        subject += [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role) for role in roles]
        is_agent = AGENT in wanted.roles
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        purposes += [ExtendedKeyUsageOID.SERVER_AUTH] if is_agent or is_server else []
        made = (
            _begun(x509.Name(subject), self.certificate.subject, public, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(_issuer_of(self.certificate), critical=False)
        )
        if is_agent:
            names = dict.fromkeys([wanted.name, *wanted.addresses, *LOOPBACK])
            alternative = x509.SubjectAlternativeName([*map(_general, names)])
            made = made.add_extension(alternative, critical=False)
        return pem_of(made.sign(self.key, None), self.bridge)

    def followed(self, days: int) -> Authority:
        """A new authority. Both are trusted from then on."""
        new = new_authority(days)
        until = min(self.certificate.not_valid_after_utc, new.certificate.not_valid_after_utc)
        bridge = _authority_certificate(
            new.certificate.subject, self.certificate, new.key.public_key(), until
        ).sign(self.key, None)
        return Authority(new.key, new.certificate, self.certificate, bridge)

    def alone(self) -> Authority:
        """The one before is not trusted any more."""
        return Authority(self.key, self.certificate)

    def encoded(self) -> bytes:
        return key_pem(self.key) + pem_of(self.certificate, self.before, self.bridge)


def new_authority(days: int = AUTHORITY_DAYS) -> Authority:
    key = Ed25519PrivateKey.generate()
    public = key.public_key()
    name = f"anabranch CA {clock.secret(4).hex()}"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    until = _now() + dt.timedelta(days=days)
    made = _authority_certificate(subject, None, public, until).sign(key, None)
    return Authority(key, made)


def check(wanted: Wanted) -> None:
    """Raises `AuthorityError`."""
    import msgspec

    from anabranch.runtime.hosts.config import SETTINGS
    from anabranch.runtime.hosts.host import Name

    try:
        msgspec.convert(wanted.name, Name)
    except msgspec.ValidationError:
        expected = SETTINGS["name"].expected
        raise AuthorityError(f"name {wanted.name!r}: expected {expected}") from None
    for role in wanted.roles:
        if role not in ROLES:
            raise AuthorityError(f"no role {role!r}; {hint(role, ROLES, 'roles')}")
    if wanted.addresses and AGENT not in wanted.roles:
        raise AuthorityError(
            f"addresses are of agents only, and {wanted.name} gets the roles "
            f"{', '.join(wanted.roles)}; leave --address out"
        )
    for address in wanted.addresses:
        try:
            _general(address)
        except ValueError:
            raise AuthorityError(
                f"address {address!r}: expected a name or an IP address, without a port"
            ) from None


def csr_of(key: Ed25519PrivateKey) -> bytes:
    """A request to sign the public half of a key. The authority's list of tokens has its
    purpose."""
    nameless = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return nameless.sign(key, None).public_bytes(_PEM)


def public_of(request: bytes) -> Ed25519PublicKey:
    """The public key in a request that is signed with its private key. Raises `AuthorityError`."""
    with suppress(ValueError, TypeError):
        found = x509.load_pem_x509_csr(request)
        key = found.public_key()
        if found.is_signature_valid and isinstance(key, Ed25519PublicKey):
            return key
    raise AuthorityError("this is no request for a certificate of an Ed25519 key")


def fingerprint(certificate: x509.Certificate) -> bytes:
    return certificate.fingerprint(hashes.SHA256())


def fingerprint_of(pem: bytes) -> bytes:
    """Of the first certificate. Raises `ValueError`."""
    return fingerprint(x509.load_pem_x509_certificate(pem))


# -- on the disk ---------------------------------------------------------------------------


def load(folder: Path) -> Authority:
    """Raises `AuthorityError`, `OSError`."""
    path = folder / AUTHORITY
    if not store().exists(path):
        raise AuthorityError(
            f"{folder} has no certificate authority; `anabranch ca init` makes one, --ca names "
            "another folder"
        )
    if store().status(path).st_mode & 0o077:
        raise AuthorityError(
            f"{path} can be read by other users, so its key is no secret any more; make another "
            "authority, or, if you are sure that none has read it, chmod 600 it"
        )
    text = store().read(path)
    try:
        key = serialization.load_pem_private_key(text, None)
        mine, *others = x509.load_pem_x509_certificates(text)
        assert isinstance(key, Ed25519PrivateKey)
        assert key.public_key() == mine.public_key()
    except (ValueError, TypeError, AssertionError):
        raise AuthorityError(f"{path} is damaged; take its copy from where you keep it") from None
    return Authority(key, mine, *others[:2])


def save(folder: Path, authority: Authority) -> None:
    """First what cannot be made again. Raises `OSError`."""
    store().make_folder(folder, 0o700, parents=True)
    replace_file(folder / AUTHORITY, authority.encoded())
    replace_file(folder / CA, authority.trusted)


def make_identity_folder(folder: Path) -> None:
    """Raises `OSError`."""
    store().make_folder(folder, 0o700, parents=True)


def is_identity(folder: Path) -> bool:
    return store().exists(folder / IDENTITY)


def save_identity(folder: Path, key: Ed25519PrivateKey, chain: bytes, trusted: bytes) -> None:
    """In an order in which an agent that reads between the two finds what it can use. Raises
    `OSError`."""
    make_identity_folder(folder)
    replace_file(folder / CA, trusted)
    replace_file(folder / IDENTITY, key_pem(key) + chain)


def key_pem(key: Ed25519PrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, plain)


def pem_of(*certificates: x509.Certificate | None) -> bytes:
    return b"".join(c.public_bytes(_PEM) for c in certificates if c is not None)


def roles_in(certificate: x509.Certificate) -> list[str]:
    found = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    return [str(role.value) for role in found]


def facts_of(chain: bytes, addresses: Sequence[str]) -> dict[str, object]:
    """Of a certificate, to show."""
    made = x509.load_pem_x509_certificate(chain)
    names = made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return {
        "name": names[0].value,
        "roles": roles_in(made),
        "addresses": [*addresses],
        "valid_from": made.not_valid_before_utc.isoformat(),
        "valid_until": made.not_valid_after_utc.isoformat(),
        "fingerprint": fingerprint(made).hex(),
    }


def day(when: dt.datetime) -> str:
    return when.strftime("%Y-%m-%d")


def _now() -> dt.datetime:
    return clock.wall_utc()


def _begun(
    subject: x509.Name, issuer: x509.Name, public: Ed25519PublicKey, until: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - SKEW)
        .not_valid_after(until)
    )


def _authority_certificate(
    subject: x509.Name,
    issuer: x509.Certificate | None,
    public: Ed25519PublicKey,
    until: dt.datetime,
) -> x509.CertificateBuilder:
    """`issuer`: None if it signs itself."""
    signed_by = subject if issuer is None else issuer.subject
    made = (
        _begun(subject, signed_by, public, until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    return made if issuer is None else made.add_extension(_issuer_of(issuer), critical=False)


def _issuer_of(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    found = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general(address: str) -> x509.GeneralName:
    """Raises `ValueError`."""
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(address.strip("[]")))
    if not address or any(c in address for c in ":*/ "):
        raise ValueError(address)
    return x509.DNSName(address)
