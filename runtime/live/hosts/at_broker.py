"""What the agent of a host has to do with a broker, through which hosts are reached that can only
dial out."""

from __future__ import annotations

from pathlib import Path

from anabranch.runtime.hosts.config import AgentConfig, is_brokered, is_loopback
from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.live.hosts.data_folder import FolderError
from anabranch.runtime.live.hosts.door import Door
from anabranch.runtime.mqtt.hosts_broker import keep_broker


def take_broker(config: AgentConfig, folder: Path, log: AgentLog) -> None:
    """Raises `FolderError`."""
    if (broker := config.hosts_broker) is None:
        return

    def told(trouble: str) -> None:
        log.say("broker", trouble or "the broker answers", trouble=trouble)

    try:
        keep_broker(folder, broker, told)
    except OSError as error:
        raise FolderError(f"cannot use the broker: {error.strerror or error}") from None


async def open_door(door: Door, config: AgentConfig) -> str:
    """Listen where others reach this host; the address of its own, with its port. Raises
    `OSError`."""
    address = await door.open(config.bind)
    if is_brokered(config.advertise):
        await door.open(config.advertise)
    return address


def may_dial(config: AgentConfig, address: str) -> bool:
    if is_brokered(address):
        return bool(config.broker)
    return bool(config.tls) or is_loopback(address)
