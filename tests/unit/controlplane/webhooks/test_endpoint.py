"""Endpoints as operators write them: what is wrong is refused, and no message has a URL or a key."""

import base64
import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.settings import SettingError, Settings, webhooks
from controlplane.settings.reader import Reader
from controlplane.settings.webhooks import read_webhooks
from controlplane.webhooks import Endpoint, read_endpoints

URL = "https://hooks.example.com/in?token=hidden-word"
KEY = bytes(range(32))


def spec(**more: Any) -> dict[str, Any]:
    return {"name": "ops", "url": URL, "secret_file": "/nowhere", **more}


def written(*specs: dict[str, Any]) -> str:
    return json.dumps(specs)


def test_what_is_not_said_is_closed_and_plain() -> None:
    (one,) = read_endpoints(written(spec()))
    endpoint = Endpoint.of(one, (KEY,))
    assert (endpoint.batch, endpoint.give_up_ms, endpoint.private) == (1, 3_600_000, False)
    assert endpoint.wants("anybody", "end")
    assert URL not in repr(endpoint)
    assert str(KEY) not in repr(endpoint)
    few = Endpoint("few", URL, (), frozenset({"alice"}), frozenset({"end"}))
    assert [few.wants(*one) for one in (("alice", "end"), ("alice", "start"), ("bob", "end"))] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[", "no JSON"),
        ("{}", "no JSON list"),
        ("[1]", "no JSON list"),
        (written(*(spec(name=f"n{number}") for number in range(17))), "may have 16"),
        (written(spec(), spec()), "two endpoints are named ops"),
        (written(spec(name="Ops")), "endpoint 1: name"),
        (written({"name": "ops"}), "url: Field required"),
        (written(spec(url_=1)), "Extra inputs"),
        (written(spec(batch=101)), "batch"),
        (written(spec(batch=True)), "batch"),
        (written(spec(give_up_seconds=0)), "give_up_seconds"),
        (written(spec(owners=[""])), "owners.0"),
        (written(spec(url="ftp://hooks.example.com/hidden-word")), "must be https"),
        (written(spec(url="https:///hidden-word")), "must be https"),
        (written(spec(url="https://[hidden-word")), "url is none"),
        (written(spec(url="https://h.example.com:99999/hidden-word")), "url is none"),
        (written(spec(url="http://hooks.example.com/hidden-word")), "without TLS"),
        (written(spec(url="https://10.1.2.3/hidden-word")), "private address"),
        (written(spec(url="https://127.0.0.1/hidden-word")), "private address"),
        (written(spec(url="https://[::ffff:10.1.2.3]/hidden-word")), "private address"),
        (written(spec(url="http://169.254.169.254/hidden-word", allow_private=True)), "never called"),
        (written(spec(url="http://[fd00:ec2::254]/hidden-word", allow_private=True)), "never called"),
    ],
)
def test_what_is_wrong_is_refused_by_its_rule(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule.replace("[", r"\[")) as caught:
        read_endpoints(text)
    assert "hidden-word" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "openly", "private"),
    [
        ("93.184.216.34", True, True),
        ("10.0.0.1", False, True),
        ("127.0.0.1", False, True),
        ("::1", False, True),
        ("::ffff:10.0.0.1", False, True),
        ("100.64.0.1", False, True),
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("fe80::1", False, False),
        ("100.100.100.200", False, False),
        ("168.63.129.16", False, False),
        ("224.0.0.1", False, False),
        ("0.0.0.0", False, False),
    ],
)
def test_where_an_endpoint_may_be(address: str, openly: bool, private: bool) -> None:
    at = ipaddress.ip_address(address)
    found = [Endpoint("ops", URL, (), private=one).may_be_at(at) for one in (False, True)]
    assert found == [openly, private]


def test_keys_come_from_files_and_what_is_none_stops_the_start_without_being_told(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(f"whsec_{base64.b64encode(KEY).decode()}\n")
    text = written(spec(secret_file=str(key_file)))
    assert webhooks(text)[0].keys == (KEY,)
    variable = "ROLLBOX_CONTROLPLANE_WEBHOOKS"
    assert read_webhooks(Reader({variable: text}))[0].name == "ops"
    assert read_webhooks(Reader({})) == Settings.__dataclass_fields__["webhooks"].default == ()
    key_file.write_text("hidden-word")
    for bad in (text, written(spec()), "hidden-word"):
        with pytest.raises(SettingError) as caught:
            read_webhooks(Reader({variable: bad}))
        assert variable in str(caught.value)
        assert "hidden-word" not in str(caught.value)
