use wire::{Code, Problem};

/// The token of an `Authorization: Bearer TOKEN` header or metadata entry; `None` stands for an absent header.
///
/// # Errors
/// `unauthenticated` when the header is absent or names no bearer token.
pub fn bearer(header: Option<&[u8]>) -> Result<&str, Problem> {
    let header = header.ok_or_else(|| refused("the Authorization header is missing"))?;
    let text = std::str::from_utf8(header).map_err(|_| refused("the Authorization header is not text"))?;
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    let token = token.trim_matches(' ');
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Err(refused("the Authorization header is not of the form `Bearer TOKEN`"));
    }
    Ok(token)
}

fn refused(detail: &str) -> Problem {
    Problem::new(Code::Unauthenticated, detail)
}

#[cfg(test)]
mod tests {
    use super::bearer;

    #[test]
    fn the_scheme_is_case_insensitive_and_the_token_is_taken_as_it_is() {
        for header in ["Bearer a.b.c", "bearer a.b.c", "BEARER  a.b.c "] {
            assert_eq!(bearer(Some(header.as_bytes())), Ok("a.b.c"), "{header}");
        }
    }

    #[test]
    fn everything_else_is_unauthenticated() {
        for header in
            [None, Some(&b"Basic abc"[..]), Some(b"Bearer"), Some(b"Bearer "), Some(b""), Some(b"\xff")]
        {
            assert_eq!(bearer(header).unwrap_err().code, wire::Code::Unauthenticated, "{header:?}");
        }
    }
}
