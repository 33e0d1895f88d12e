"""Settings of an agent: a wrong one is told with its place and what was expected."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.runtime.hosts.config import (
    ENVIRONMENT,
    IN_FILE_ONLY,
    SETTINGS,
    AgentConfig,
    ConfigError,
    config_of,
    has_no_port,
    host_in,
    instances_at,
    is_loopback,
    of_environment,
    of_file,
    stream_address,
    with_port,
)

USUAL: dict[str, Any] = {
    "name": "press",
    "region": "",
    "labels": {},
    "cores": 2,
    "memory_mb": 512,
    "bind": "127.0.0.1:7433",
    "seeds": [],
    "data": "/data",
    "warm": 2,
    "log": "plain",
}

WHOLE = """
name = "press-1"
region = "plant-2"
labels = { camera = "north" }
cores = 4
memory_mb = 2048
bind = "127.0.0.1:9000"
advertise = "localhost:9000"
seeds = ["127.0.0.1:7434"]
data = "/var/lib/anabranch"
warm = 3
tls = "/etc/anabranch/tls"
mdns = true
log = "json"
broker = "mqtts://b.plant/fog"
broker_login = "file:/etc/anabranch/login"
broker_ca = "/etc/anabranch/ca.pem"
broker_cert = "/etc/anabranch/b.pem"
broker_key = "/etc/anabranch/b.key"
"""


def config(text: str = "", environment: dict[str, str] | None = None) -> AgentConfig:
    given = of_file(text, "agent.toml") | of_environment(environment or {})
    return config_of(given, USUAL)


def test_a_file_sets_all_that_can_be_set() -> None:
    found = config(WHOLE)
    assert found.name == "press-1"
    assert found.labels == {"camera": "north"}
    assert (found.cores, found.memory_mb, found.warm) == (4, 2048, 3)
    assert found.mdns
    assert (found.bind, found.advertise) == ("127.0.0.1:9000", "localhost:9000")
    assert found.log == "json"
    assert found.hosts_broker is not None
    broker, prefix = found.hosts_broker.parsed()
    assert (broker.name, prefix) == ("mqtts://b.plant:8883", "fog")
    assert (broker.login, broker.key_file) == (found.broker_login, found.broker_key)
    assert of_file(WHOLE, "agent.toml").keys() == SETTINGS.keys() - {IN_FILE_ONLY}


def test_what_is_not_given_is_as_usual_and_others_reach_the_agent_where_it_listens() -> None:
    found = config('bind = "127.0.0.1:9001"')
    assert (found.name, found.cores, found.advertise) == ("press", 2, "127.0.0.1:9001")


def test_the_environment_counts_more_than_the_file() -> None:
    texts = {
        "ANABRANCH_NAME": "press-2",
        "ANABRANCH_LABELS": "camera=south, rack=2",
        "ANABRANCH_CORES": "8",
        "ANABRANCH_SEEDS": "127.0.0.1:1, 127.0.0.1:2",
    }
    found = config(WHOLE, texts)
    assert found.name == "press-2"
    assert found.labels == {"camera": "south", "rack": "2"}
    assert found.cores == 8
    assert found.seeds == ["127.0.0.1:1", "127.0.0.1:2"]
    assert found.region == "plant-2"
    assert len(ENVIRONMENT) == len(SETTINGS) - 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('\nregoin = "x"', "agent.toml:2: no setting 'regoin'; did you mean 'region'?"),
        ("[label]\na = 'b'", "agent.toml:1: no setting 'label'; did you mean 'labels'?"),
        ("zzz = 1", "agent.toml:1: no setting 'zzz'; known: name, region"),
        ("name = ", "agent.toml: no TOML: "),
        ('name = "a b"', "agent.toml:1: name: expected letters, digits, '.', '_' and '-'"),
        (
            '\n\ncores = "four"',
            "agent.toml:3: cores: expected a whole number from 1 on",
        ),
        ("cores = 0", "agent.toml:1: cores: expected a whole number from 1 on; got 0"),
        ("memory_mb = 1.5", "agent.toml:1: memory_mb: expected a whole number"),
        ('bind = "here"', "agent.toml:1: bind: expected HOST:PORT, such as 127.0.0.1:7433"),
        ('seeds = "127.0.0.1:1"', "agent.toml:1: seeds: expected at most 64 addresses"),
        ("[labels]\ncamera = 3", "agent.toml:1: labels: expected at most 16 texts by name"),
        ('log = "jsno"', "agent.toml:1: log: expected plain or json; got 'jsno'"),
        ("warm = 65", "agent.toml:1: warm: expected a number from 0 to 64; got 65"),
        ('mdns = "yes"', "agent.toml:1: mdns: expected true or false; got 'yes'"),
        ('bind = "127.0.0.1:65536"', "agent.toml:1: bind: expected HOST:PORT, such as"),
        ('advertise = "127.0.0.1:99999"', "agent.toml:1: advertise: expected HOST:PORT, such as"),
        ('seeds = ["127.0.0.1:0"]', "agent.toml:1: seeds: 127.0.0.1:0: expected a port above 0"),
        ('advertise = "[::1]:0"', "agent.toml:1: advertise: [::1]:0: expected a port above 0"),
        (r'region = "\u001b[2J"', "agent.toml:1: region: expected a text of at most 63"),
        (r'labels = { a = "\u202e" }', "agent.toml:1: labels: expected at most 16 texts by name"),
        (r'data = "a\u0000b"', "agent.toml:1: data: expected the path of a folder"),
    ],
)
def test_a_wrong_setting_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config(text)
    assert str(raised.value).startswith(told)


def test_a_wrong_variable_of_the_environment_is_named() -> None:
    with pytest.raises(ConfigError, match="ANABRANCH_CORES: expected a whole number"):
        config("", {"ANABRANCH_CORES": "many"})
    with pytest.raises(ConfigError, match="ANABRANCH_LABELS: expected at most 16 texts"):
        config("", {"ANABRANCH_LABELS": "camera"})
    for name in ("REGION", "DATA", "LABELS"):
        with pytest.raises(ConfigError, match=f"ANABRANCH_{name}: expected"):
            config("", {f"ANABRANCH_{name}": "a=\udcff"})


@pytest.mark.parametrize(
    "setting",
    [
        'bind = "0.0.0.0:7433"',
        'advertise = "press-1.plant:7433"',
        'seeds = ["127.0.0.1:1", "10.0.0.3:7433"]',
    ],
)
def test_an_address_beyond_this_machine_is_refused_with_the_reason(setting: str) -> None:
    with pytest.raises(
        ConfigError, match="other machines are reached with certificates only; `anabranch ca"
    ):
        config(setting)
    advertise = "" if "advertise" in setting else '\nadvertise = "10.0.0.1:7433"'
    assert config(f'{setting}{advertise}\ntls = "tls"').tls == "tls"


def test_an_agent_that_listens_anywhere_says_where_others_reach_it() -> None:
    for anywhere in ("0.0.0.0:7433", "[::]:7433"):
        with pytest.raises(ConfigError, match="give one with --advertise HOST:PORT"):
            config(f'bind = "{anywhere}"\ntls = "tls"')


def test_loopback_is_what_only_this_machine_reaches() -> None:
    assert all(map(is_loopback, ["127.0.0.1:1", "127.3.2.1:1", "localhost:1", "[::1]:1"]))
    assert not any(map(is_loopback, ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "press:1", ":1"]))


def test_labels_that_are_too_long_to_be_told_to_others_are_refused() -> None:
    labels = ", ".join(f'"{n:060}" = "{n:060}"' for n in range(8))
    with pytest.raises(ConfigError, match="at most 512 are told to other hosts; shorten"):
        config(f"labels = {{ {labels} }}")


def test_an_agent_that_is_asked_listens_at_the_usual_port_unless_another_one_is_given() -> None:
    assert with_port("127.0.0.1") == "127.0.0.1:7433"
    assert with_port("localhost:65535") == "localhost:65535"
    assert with_port("::1") == with_port("[::1]") == "[::1]:7433"
    for wrong in ("127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:0", "", "a b"):
        with pytest.raises(ConfigError, match=r"expected HOST\[:PORT\], such as"):
            with_port(wrong)


PROVIDER = """
[provider]
kind = "command"
name = "cloud-"
hosts_max = 8
boot_s = 120
open = ["cloud", "create", "{name}", "{seed}"]
close = ["cloud", "delete", "{name}"]
"""


def test_a_provider_of_hosts_is_a_table_of_the_file() -> None:
    found = config(PROVIDER).provider
    assert found is not None
    assert (found.kind, found.name, found.hosts_max, found.boot_s) == ("command", "cloud-", 8, 120)
    assert found.open == ["cloud", "create", "{name}", "{seed}"]
    assert config().provider is None
    assert "provider" not in ENVIRONMENT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('provider = 3', "provider: expected a table with kind = fixed, local or command"),
        ('[provider]\nkind = "lokal"', "agent.toml:1: provider: Invalid enum value 'lokal'"),
        ('[provider]\nkind = "local"\nhost_max = 1', "'host_max'; did you mean 'hosts_max'"),
        ('[provider]\nkind = "local"\nhosts_max = -1', "provider: Expected `int` >= 0"),
        ('[provider]\nkind = "command"\nopen = ["a"]', "provider: expected both commands"),
        ('[provider]\nkind = "local"\nopen = ["a"]', "open and close are of kind = 'command'"),
        ('tls = "x"\n[provider]\nkind = "local"', "no certificates of their own"),
    ],
)  # fmt: skip
def test_a_wrong_provider_is_told(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as told:
        config(text)
    assert message in str(told.value)


def test_a_host_that_can_only_dial_out_is_reached_at_the_broker() -> None:
    found = config('name = "press-4"\nadvertise = "broker"\nbroker = "mqtt://localhost"')
    assert found.advertise == "mqtt:press-4/agent"
    assert found.hosts_broker is not None
    assert found.hosts_broker.parsed()[1] == "anabranch"
    assert host_in(found.advertise) == "press-4"
    assert instances_at(found.advertise) == "mqtt:press-4"
    assert stream_address(found.advertise) == found.advertise
    assert not has_no_port(found.advertise)
    assert not is_loopback(found.advertise)
    assert with_port(found.advertise) == found.advertise
    assert stream_address("mqtt:7433") == "tcp:mqtt:7433"  # a host of that name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('advertise = "broker"', "agent.toml:1: advertise: needs a broker: --broker mqtts://HOST"),
        ('seeds = ["mqtt:b/agent"]', "agent.toml:1: seeds: needs a broker"),
        ('broker_login = "file:/x"', "agent.toml:1: broker_login: needs a broker"),
        ('broker = "mqtt://b.plant"', "without certificates the broker must be on this machine"),
        ('broker = "b.plant"', "expected a URL that begins with mqtt://"),
        ('broker = "mqtt://u:p@localhost"', "a URL with a password would be shown"),
        ('broker = "mqtt://localhost/a/#"', "wildcards are for subscriptions"),
        ('broker = "mqtt://localhost"\nbroker_ca = "/x"', "are for mqtts://"),
        ('bind = "mqtt:b/agent"', "bind: expected HOST:PORT"),
        ('broker = "mqtt://localhost"\nadvertise = "broker"\nmdns = true', "found on a LAN"),
        ('seeds = ["mqtt:b/i7"]', "expected at most 64 addresses"),
    ],
)
def test_a_wrong_setting_of_the_broker_is_told(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config(text)
    assert told in str(raised.value)
