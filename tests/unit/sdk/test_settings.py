"""Settings: where the address and the API key come from."""

import json
from pathlib import Path

import pytest

from rollbox.errors import InvalidArgument, Unauthenticated
from rollbox.settings import resolve


def written(folder: Path, url: str = "http://127.0.0.1:7420", key: str = "rbx_file") -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "client.json").write_text(json.dumps({"url": url, "api_key": key}))
    return {"ROLLBOX_STATE_DIR": str(folder)}


def test_arguments_go_before_the_process_environment() -> None:
    found = resolve("http://a/", "k", {"ROLLBOX_URL": "http://b", "ROLLBOX_API_KEY": "l"})
    assert (found.url, found.api_key) == ("http://a", "k")
    assert "api_key" not in repr(found)


def test_the_process_environment_goes_before_the_file(tmp_path: Path) -> None:
    found = resolve(environ={**written(tmp_path), "ROLLBOX_URL": "https://b", "ROLLBOX_API_KEY": "l"})
    assert (found.url, found.api_key) == ("https://b", "l")


def test_the_file_that_up_wrote_is_found(tmp_path: Path) -> None:
    found = resolve(environ=written(tmp_path))
    assert (found.url, found.api_key, found.source) == (
        "http://127.0.0.1:7420",
        "rbx_file",
        str(tmp_path / "client.json"),
    )


def test_the_files_key_never_goes_to_another_address(tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated, match="ROLLBOX_API_KEY"):
        resolve("https://elsewhere", environ=written(tmp_path))
    assert resolve("http://127.0.0.1:7420/", environ=written(tmp_path)).api_key == "rbx_file"


def test_without_anything_the_error_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"client\.json") as caught:
        resolve(environ={"ROLLBOX_STATE_DIR": str(tmp_path)})
    assert "rollbox up" in caught.value.hint


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"url": "ftp://x", "api_key": "k"}'])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "client.json").write_text(text)
    with pytest.raises(InvalidArgument):
        resolve(environ={"ROLLBOX_STATE_DIR": str(tmp_path)})


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="http://"):
        resolve("localhost:7420", "k", {})


@pytest.mark.parametrize(
    "url", ["http://", "http://:80", "http://h:port", "http://h:0", "http://h:99999", "http://[::1"]
)
def test_an_address_that_is_no_url_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a URL"):
        resolve(url, "k", {})


@pytest.mark.parametrize("key", ["rbx_secret\n", "rbx_secret ", "rbx_s\u00e9cret"])
def test_a_key_that_no_header_carries_is_refused_and_not_told(key: str) -> None:
    with pytest.raises(InvalidArgument, match="visible ASCII") as caught:
        resolve("http://h", key, {})
    assert "rbx" not in str(caught.value)
