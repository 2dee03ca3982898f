"""The gateway in this process, and the Rust side of the contract for comparison."""

from collections.abc import Mapping
from typing import TypedDict

class ErrorRow(TypedDict):
    """One row of the error table: every column of contract/errors.toml, and the code itself."""

    code: str
    http: int
    grpc: str
    fault: str
    retry: str
    mask_sample: bool
    title: str
    hint: str

class ClaimsDict(TypedDict):
    """The claims of a verified token; the names are those of the Rust type."""

    sandbox_id: str
    owner: str
    scopes: list[str]
    expires_at_s: int
    settings: str | None

def serve() -> int:
    """Run the gateway with the ROLLBOX_GATEWAY_* settings until SIGTERM or SIGINT.

    Blocks, without holding the GIL. Takes over the two signals for the rest of the process's life.

    Returns:
        The exit status for the process: 0, 64 for settings that cannot be used, 1 for any other failure.
    """

def error_table() -> list[ErrorRow]:
    """Return the error table as Rust has it, in the order of the contract."""

def encode_problem(
    code: str, detail: str, details: Mapping[str, str], request_id: str, retry_after_ms: int | None
) -> str:
    """Return the body of an application/problem+json answer, as JSON.

    Raises:
        ValueError: `code` is not in the table.
    """

def encode_details(code: str, detail: str, details: Mapping[str, str]) -> bytes:
    """Return the details of a gRPC status that carry this problem.

    Raises:
        ValueError: `code` is not in the table.
    """

def decode_details(details: bytes) -> tuple[str, str, dict[str, str]] | None:
    """Return code, detail and details of a problem in a gRPC status; None when there is none."""

def verify_token(public_key: str, token: str, now_unix_s: int) -> ClaimsDict | str:
    """Return the claims of a token at the Unix time `now_unix_s` (seconds), or the refusal as problem JSON.

    Args:
        public_key: raw Ed25519 key, 32 bytes in base64url without padding.
        token: the compact form, header.claims.signature.
        now_unix_s: the time that the expiry is compared with.

    Raises:
        ValueError: `public_key` is not such a key.
    """

def check_exec_request(body: bytes) -> str | None:
    """Return None for the body of an exec request that the gateway accepts, else the refusal as problem JSON."""
