//! Addresses of a port: as its server sees them, and as clients do. Both are parsed as URLs, as browsers do.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use url::{Host, Position, Url};

use super::credential::TOKEN_NAME;
use super::place::Place;

/// Names of loopback in usual hosts files.
const LOOPBACK: [&str; 4] = ["localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"];

/// How a client reached the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outside {
    pub(super) host: String,
    /// `https` where the gateway, or what is before it, terminates TLS.
    pub(super) scheme: &'static str,
}

impl Outside {
    pub(super) fn of(head: &Parts) -> Self {
        let named = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = named.or(head.uri.authority().map(|authority| authority.as_str())).unwrap_or_default();
        let schemes = head.headers.get("x-forwarded-proto").and_then(|schemes| schemes.to_str().ok());
        // Of several proxies the first is the client's.
        let first = schemes.and_then(|schemes| schemes.split(',').next()).unwrap_or_default();
        let secure = Self { host: host.to_owned(), scheme: "https" };
        // A load balancer of TCP connections says nothing of its TLS, but the page's own origin does.
        let page = head.headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
        if first.trim().eq_ignore_ascii_case("https") || page.is_some_and(|page| secure.is(page)) {
            secure
        } else {
            Self { scheme: "http", ..secure }
        }
    }

    /// Without a default port, as browsers write it; `None` where the host is no valid one.
    pub(super) fn origin(&self) -> Option<String> {
        let url = Url::parse(&format!("{}://{}", self.scheme, self.host)).ok()?;
        Some(url.origin().ascii_serialization())
    }

    /// Whether a URL is of this origin.
    pub(super) fn is(&self, url: &str) -> bool {
        let found = Url::parse(url).ok().filter(Url::has_host).map(|url| url.origin().ascii_serialization());
        found.is_some() && found == self.origin()
    }
}

/// Whether an absolute URL is at the server's own address.
pub(super) fn is_server(url: &str, place: &Place) -> bool {
    Url::parse(url).is_ok_and(|url| is_own(&url, place))
}

/// Whether a page is below the gateway's address, but not one of this port.
pub(super) fn is_of_another(page: &[u8], place: &Place, outside: &Outside) -> bool {
    std::str::from_utf8(page).is_ok_and(|page| outside.is(page) && inside(page, place, outside).is_none())
}

/// The address that the server knows a page by; `None` for a page that is not its own.
pub(super) fn inside(page: &str, place: &Place, outside: &Outside) -> Option<String> {
    if !outside.is(page) {
        return None;
    }
    let mut url = Url::parse(page).ok()?;
    // Some pages tell their origin alone.
    let path = if url.path() == "/" { "/" } else { below(url.path(), &place.prefix)? }.to_owned();
    url.set_path(&path);
    let left = url.query().map(|query| {
        let ours = |pair: &&str| pair.split('=').next() == Some(TOKEN_NAME);
        query.split('&').filter(|pair| !ours(pair)).collect::<Vec<_>>().join("&")
    });
    url.set_query(left.as_deref().filter(|query| !query.is_empty()));
    Some(format!("{}{}", place.origin(), &url[Position::BeforePath..Position::AfterQuery]))
}

/// The address that clients know a URL of the server by; `None` for one that is right as it is. The server may write its
/// own address in any way that browsers take for it, and with the prefix or without.
pub(super) fn outside(to: &str, place: &Place, outside: &Outside) -> Option<String> {
    if to.trim().is_empty() {
        return None;
    }
    let base = Url::parse(&format!("{}{}", place.origin(), place.path)).ok()?;
    let url = base.join(to).ok().filter(|url| is_own(url, place))?;
    let known = below(url.path(), &place.prefix).is_some();
    let prefix = if known { "" } else { &place.prefix };
    let path = format!("{prefix}{}", &url[Position::BeforePath..]);
    // On its own it would name another host.
    let origin = if path.starts_with("//") { outside.origin()? } else { String::new() };
    Some(origin + &path)
}

/// The same for `SECONDS; url=URL`.
pub(super) fn refresh(value: &str, place: &Place, outside_: &Outside) -> Option<String> {
    let at = value.to_ascii_lowercase().find("url=")? + "url=".len();
    let (before, to) = value.split_at(at);
    Some(before.to_owned() + &outside(to.trim().trim_matches(['"', '\'']), place, outside_)?)
}

/// The same for each `<URL>` of a `Link`.
pub(super) fn links(value: &str, place: &Place, outside_: &Outside) -> Option<String> {
    let mut known = value.split('<').map(|link| {
        let translated =
            link.split_once('>').and_then(|(to, rest)| Some(outside(to, place, outside_)? + ">" + rest));
        translated.unwrap_or_else(|| link.to_owned())
    });
    let first = known.next()?;
    Some(known.fold(first, |links, link| links + "<" + &link))
}

/// The rest of a path below a prefix.
pub(super) fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    match path.strip_prefix(prefix)? {
        "" => Some("/"),
        rest => rest.starts_with('/').then_some(rest),
    }
}

/// Without a port too: servers that are told of a host and a port often write the host alone.
fn is_own(url: &Url, place: &Place) -> bool {
    let web = matches!(url.scheme(), "http" | "https");
    web && url.port().is_none_or(|port| port == place.port)
        && url.host().is_some_and(|host| is_here(&host, place))
}

fn is_here(host: &Host<&str>, place: &Place) -> bool {
    let ip = match host {
        Host::Domain(name) => return is_name(name.strip_suffix('.').unwrap_or(name), place),
        Host::Ipv4(ip) => IpAddr::V4(*ip),
        Host::Ipv6(ip) => IpAddr::V6(*ip).to_canonical(),
    };
    ip.is_loopback() || ip.is_unspecified() || Some(ip) == place.ip
}

/// The URL's parser has made small letters of it.
fn is_name(name: &str, place: &Place) -> bool {
    let own = name.split('.').next().is_some_and(|first| first.eq_ignore_ascii_case(&place.sandbox_id));
    own || name.ends_with(".localhost") || LOOPBACK.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "/v1/sandboxes/sb-1/ports/8000/http";

    fn place(prefix: &str) -> Place {
        Place {
            sandbox_id: "sb-1".into(),
            port: 8000,
            prefix: prefix.into(),
            path: "/a/b".into(),
            ip: Some([10, 0, 1, 9].into()),
        }
    }

    fn gateway() -> Outside {
        Outside { host: "gw.example.com".into(), scheme: "https" }
    }

    #[test]
    fn every_spelling_of_the_servers_own_address_stays_within_the_port() {
        for (to, path) in [
            ("/login?x=/y#z", "/login?x=/y#z"),
            ("/", "/"),
            ("next", "/a/next"),
            ("?page=2", "/a/b?page=2"),
            ("/../../x", "/x"),
            ("../../../x", "/x"),
            ("/%2e%2e/x", "/x"),
            ("http://localhost:8000/c", "/c"),
            ("http://localhost:8000", "/"),
            ("https://localhost:8000/c", "/c"),
            ("HTTP://LOCALHOST:8000/c", "/c"),
            ("//localhost:8000/c", "/c"),
            ("\\\\localhost:8000\\c", "/c"),
            ("http://127.0.0.1:8000/c", "/c"),
            ("http://127.1:8000/c", "/c"),
            ("http://127.0.1.1:8000/c", "/c"),
            ("http://0.0.0.0:8000/c", "/c"),
            ("http://[::1]:8000/c", "/c"),
            ("http://[::]:8000/c", "/c"),
            ("http://[::ffff:127.0.0.1]:8000/c", "/c"),
            ("http://sb-1:8000/c", "/c"),
            ("http://SB-1.:8000/c", "/c"),
            ("http://sb-1.shard-0.sandboxes.svc.cluster.local:8000/c", "/c"),
            ("http://10.0.1.9:8000/c", "/c"),
            ("http://[::ffff:10.0.1.9]:8000/c", "/c"),
            ("http://ip6-localhost:8000/c", "/c"),
            ("http://app.localhost:8000/c", "/c"),
            ("http://localhost/c", "/c"),
            ("https://localhost/c", "/c"),
            ("//127.0.0.1/c", "/c"),
            ("https://sb-1/c", "/c"),
        ] {
            let prefixed = format!("{PREFIX}{path}");
            assert_eq!(outside(to, &place(PREFIX), &gateway()), Some(prefixed), "{to}");
            assert_eq!(outside(to, &place(""), &gateway()).as_deref(), Some(path), "{to}");
        }
    }

    #[test]
    fn other_addresses_pass_as_they_are() {
        for to in [
            "http://localhost:8001/a",
            "https://127.0.0.1:8443/",
            "http://10.0.1.8:8000/",
            "https://example.com/",
            "//example.com/",
            "/\\example.com",
            "http://localhost.example.com:8000/",
            "http://sb-2:8000/",
            "mailto:a@localhost",
            "myapp://localhost:8000/a",
            "http://[bad",
            "",
        ] {
            assert_eq!(outside(to, &place(PREFIX), &gateway()), None, "{to}");
        }
    }

    #[test]
    fn a_server_that_honours_the_prefix_does_not_get_it_twice() {
        for (to, expected) in [
            (format!("{PREFIX}/a?b=c"), format!("{PREFIX}/a?b=c")),
            (PREFIX.to_owned(), PREFIX.to_owned()),
            (format!("http://localhost:8000{PREFIX}/a"), format!("{PREFIX}/a")),
            (format!("{PREFIX}s/a"), format!("{PREFIX}{PREFIX}s/a")),
        ] {
            assert_eq!(outside(&to, &place(PREFIX), &gateway()), Some(expected), "{to}");
        }
    }

    #[test]
    fn a_path_of_two_slashes_does_not_become_a_host() {
        let found = outside("http://localhost:8000//example.com/", &place(""), &gateway());
        assert_eq!(found.as_deref(), Some("https://gw.example.com//example.com/"));
    }

    #[test]
    fn a_refresh_is_a_redirect_too() {
        for (value, expected) in [
            ("0; url=/c", Some(format!("0; url={PREFIX}/c"))),
            ("5;URL='http://127.0.0.1:8000/c'", Some(format!("5;URL={PREFIX}/c"))),
            ("5", None),
            ("5; url=https://example.com/", None),
        ] {
            assert_eq!(refresh(value, &place(PREFIX), &gateway()), expected, "{value}");
        }
    }

    #[test]
    fn links_of_an_answer_lead_to_the_port() {
        for (value, expected) in [
            ("</a.css>; rel=preload", format!("<{PREFIX}/a.css>; rel=preload")),
            (
                "<http://localhost:8000/?page=2>; rel=\"next\", <https://example.com/x>; rel=\"help\", <?page=9>; rel=last",
                format!(
                    "<{PREFIX}/?page=2>; rel=\"next\", <https://example.com/x>; rel=\"help\", <{PREFIX}/a/b?page=9>; rel=last"
                ),
            ),
            ("/a; rel=x", "/a; rel=x".to_owned()),
            ("<", "<".to_owned()),
        ] {
            assert_eq!(links(value, &place(PREFIX), &gateway()), Some(expected), "{value}");
        }
    }

    #[test]
    fn a_page_of_the_same_host_tells_of_tls_that_no_proxy_told_of() {
        for (origin, expected) in [
            ("https://gw.example.com", "https"),
            ("https://gw.example.com:443", "https"),
            ("https://example.com", "http"),
            ("http://gw.example.com", "http"),
            ("null", "http"),
        ] {
            let request = http::Request::get("/").header("host", "gw.example.com").header("origin", origin);
            let (head, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(Outside::of(&head).scheme, expected, "{origin}");
        }
    }

    #[test]
    fn the_clients_proxy_says_whether_there_is_tls() {
        for (schemes, expected) in
            [("https", "https"), ("HTTPS, http", "https"), ("http, https", "http"), ("", "http")]
        {
            let request =
                http::Request::get("/").header("host", "gw:7420").header("x-forwarded-proto", schemes);
            let (head, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(Outside::of(&head), Outside { host: "gw:7420".into(), scheme: expected }, "{schemes}");
        }
    }
}
