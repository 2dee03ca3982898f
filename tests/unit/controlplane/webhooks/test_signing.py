"""Signatures, as the published library of Standard Webhooks verifies them."""

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from controlplane.webhooks import read_keys, signed
from controlplane.webhooks.signing import message_id


def secret(key: bytes) -> str:
    return f"whsec_{base64.b64encode(key).decode()}"


KEY, OTHER = bytes(range(32)), bytes(range(40, 72))


@given(st.binary(min_size=24, max_size=64), st.text(max_size=200))
def test_the_published_library_takes_what_is_signed(key: bytes, text: str) -> None:
    body = text.encode(errors="replace")
    headers = signed(read_keys(secret(key)), "sb-1_7_end", int(time.time()), body)
    Webhook(secret(key)).verify(body, {**headers}, json_parse=False)


def test_the_example_of_the_library_has_the_same_signature() -> None:
    body, at_s = b'{"test": 2432232314}', 1_614_265_330
    headers = signed(read_keys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), "msg_p5jXN8AQM9LWM0D4loKWxJek", at_s, body)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_a_key_is_replaced_receivers_of_both_take_it_and_others_do_not() -> None:
    headers = signed(read_keys(f"{secret(KEY)}\n{secret(OTHER)}\n"), "id", int(time.time()), b"{}")
    for key in (KEY, OTHER):
        Webhook(secret(key)).verify(b"{}", {**headers})
    for body, key in ((b"{}", bytes(32)), (b"[]", KEY)):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret(key)).verify(body, {**headers})


def test_an_id_is_the_same_again_and_has_no_dot() -> None:
    assert message_id(["sb-1.7.end"]) == "sb-1_7_end"
    several = message_id(["sb-1.7.end", "sb-2.8.end"])
    assert several == message_id(["sb-1.7.end", "sb-2.8.end"]) != message_id(["sb-2.8.end", "sb-1.7.end"])
    assert "." not in several


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        secret(KEY).removeprefix("whsec_"),
        "whsec_!",
        secret(bytes(23)),
        secret(bytes(65)),
        "\n".join([secret(KEY)] * 3),
    ],
)
def test_what_is_no_key_is_refused_without_being_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"key") as caught:
        read_keys(text)
    assert len(text) < 4 or text.split("\n", maxsplit=1)[0] not in str(caught.value)
