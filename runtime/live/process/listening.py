"""At which address a process listens on its host."""

from __future__ import annotations

from anabranch.runtime.ports import clock

NAME_BYTES = 8


def address_on(host: str) -> str:
    """Any that is free. `host`: an address of a network, or `mqtt:NAME` of a host that others reach
    through a broker."""
    if host.startswith("mqtt:"):
        return f"{host}/{clock.secret(NAME_BYTES).hex()}"
    return f"tcp:{host}:0"


def take_broker() -> None:
    """From now on this process reaches hosts through the broker of its host, if that has one.
    Raises `OSError`."""
    from anabranch.runtime.mqtt.hosts_broker import use_broker

    use_broker()
