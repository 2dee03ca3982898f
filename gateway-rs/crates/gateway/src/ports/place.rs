use std::net::IpAddr;

use http::Uri;
use wire::{Code, Problem};

/// Which port of which sandbox a request means, and the path that its server sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) sandbox_id: String,
    pub(super) port: u16,
    /// The path before the server's own; empty for a request by host name.
    pub(super) prefix: String,
    /// The path as the server sees it.
    pub(super) path: String,
    /// The sandbox's address in a network, once its route is known; on an engine it has none.
    pub(super) ip: Option<IpAddr>,
}

impl Place {
    /// Parses `/v1/sandboxes/{id}/ports/{port}` and what is below it. Nothing is percent-decoded: no id and no port
    /// needs it, and the rest is the server's.
    ///
    /// # Errors
    /// `invalid_argument`: the port is not a number from 1 to 65535.
    pub(super) fn of_path(path: &str) -> Result<Self, Problem> {
        let mut parts = path.splitn(8, '/').skip(3);
        let mut part = || parts.next().unwrap_or_default().to_owned();
        let (sandbox_id, _, port, kind, rest) = (part(), part(), part(), part(), part());
        let prefix = format!("/v1/sandboxes/{sandbox_id}/ports/{port}/{kind}");
        Ok(Self { port: number(&port)?, sandbox_id, prefix, path: format!("/{rest}"), ip: None })
    }

    /// Parses `PORT-ID.DOMAIN`, with or without the port of the gateway; `None` for another host.
    ///
    /// # Errors
    /// `invalid_argument`: below the domain, but not of that form.
    pub(super) fn of_host(host: &str, path: &str, domain: &str) -> Result<Option<Self>, Problem> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
        let Some(label) = name.strip_suffix(domain).and_then(|label| label.strip_suffix('.')) else {
            return Ok(None);
        };
        let named = label.split_once('-').filter(|(_, id)| !id.is_empty() && !id.contains('.'));
        let Some((port, id)) = named else {
            let detail = format!("the host {host:?} is not PORT-ID.{domain}");
            return Err(Problem::new(Code::InvalidArgument, detail).with("field", "host"));
        };
        let place = Self {
            sandbox_id: id.to_owned(),
            port: number(port)?,
            prefix: String::new(),
            path: path.to_owned(),
            ip: None,
        };
        Ok(Some(place))
    }

    /// The host that the server is told: without a default port, as a browser on its machine would write it.
    pub(super) fn host(&self) -> String {
        if self.port == 80 { "localhost".to_owned() } else { format!("localhost:{}", self.port) }
    }

    /// The origin that the server is told.
    pub(super) fn origin(&self) -> String {
        format!("http://{}", self.host())
    }

    /// The target of the request to the server; `query` is the query without the token.
    ///
    /// # Errors
    /// `invalid_argument`: path and query are not a valid target.
    pub(super) fn target(&self, query: Option<&str>) -> Result<Uri, Problem> {
        let path = query.map_or_else(|| self.path.clone(), |query| format!("{}?{query}", self.path));
        Uri::try_from(&path).map_err(|e| {
            let detail = format!("the path {path:?} cannot be read: {e}");
            Problem::new(Code::InvalidArgument, detail).with("field", "path")
        })
    }
}

fn number(text: &str) -> Result<u16, Problem> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| plain && *port != 0).ok_or_else(|| {
        let detail = format!("port {text:?} is not a number from 1 to 65535");
        Problem::new(Code::InvalidArgument, detail).with("field", "port")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(prefix: &str, path: &str) -> Place {
        Place { sandbox_id: "sb-1".into(), port: 80, prefix: prefix.into(), path: path.into(), ip: None }
    }

    #[test]
    fn a_path_names_the_sandbox_the_port_and_what_the_server_sees() {
        let prefix = "/v1/sandboxes/sb-1/ports/80/http";
        for (rest, path) in
            [("", "/"), ("/", "/"), ("/a/b%2F/", "/a/b%2F/"), ("//x", "//x"), ("/../../x", "/../../x")]
        {
            assert_eq!(Place::of_path(&format!("{prefix}{rest}")), Ok(place(prefix, path)), "{rest}");
        }
    }

    #[test]
    fn a_host_name_does_the_same() {
        for host in ["80-sb-1.p.example.com", "80-SB-1.P.example.com:7420"] {
            assert_eq!(Place::of_host(host, "/a", "p.example.com"), Ok(Some(place("", "/a"))), "{host}");
        }
        for host in ["p.example.com", "80-sb-1.example.com", "80-sb-1p.example.com", "127.0.0.1:7420", ""] {
            assert_eq!(Place::of_host(host, "/a", "p.example.com"), Ok(None), "{host}");
        }
        for host in ["x.p.example.com", "a-b.p.example.com", "0-sb-1.p.example.com", "80-a.b.p.example.com"] {
            assert!(Place::of_host(host, "/a", "p.example.com").is_err(), "{host}");
        }
    }

    #[test]
    fn what_is_no_port_is_refused() {
        for port in ["0", "65536", "+80", "8e1", "", "99999999999"] {
            let problem = Place::of_path(&format!("/v1/sandboxes/sb-1/ports/{port}/http/")).unwrap_err();
            assert_eq!(problem.code, Code::InvalidArgument, "{port}");
        }
    }

    #[test]
    fn a_target_keeps_its_query() {
        assert_eq!(place("", "/a").target(Some("b=c")).unwrap(), "/a?b=c");
        assert_eq!(place("", "//a").target(None).unwrap(), "//a");
    }
}
