//! The environment variables by which programs find the proxy. Pure.

use super::frame::OsBytes;
use crate::itself::Itself;

/// The schemes' variables. That for all schemes has `http://` too: many clients do not know `socks5://`.
const SCHEMES: [&str; 3] = ["http_proxy", "https_proxy", "all_proxy"];
/// What is in the sandbox itself is asked directly: in each of the forms that some program reads (suffixes with and without
/// a dot, networks), and in none that breaks another one (`httpx` fails at `[::1]`, and at a network of version 6). What a
/// program sends to the proxy nevertheless, the relay connects within the sandbox.
const WITHOUT: &str = "no_proxy";
const LOOPBACK: &str = "localhost,.localhost,127.0.0.1,127.0.0.0/8,0.0.0.0,::1,::";

/// The package cache, as `egress::policy::PACKAGES` has it; its paths begin with the name of the index.
const PACKAGES: &str = "packages.rollbox.internal";

/// Adds them to the image's, for a proxy on `port` of the sandbox `itself`, and a package cache that has `packages`.
pub(super) fn add(environ: &mut Vec<(OsBytes, OsBytes)>, port: u16, itself: &Itself, packages: &[String]) {
    // Of two the later one counts: what an image sets for its programs stays, and its proxies are not reached from here.
    environ.splice(..0, settings(port).into_iter().chain(indexes(packages)));
    environ.extend(variables(port, itself));
}

/// For programs that do not read the variables. Only what says nothing by itself: `JAVA_TOOL_OPTIONS` would reach all
/// of Java, and writes a line to stderr for each program.
fn settings(port: u16) -> [(OsBytes, OsBytes); 2] {
    let java =
        ["http", "https"].map(|name| format!("-D{name}.proxyHost=127.0.0.1 -D{name}.proxyPort={port}"));
    [("MAVEN_OPTS".into(), java.join(" ").into()), ("NODE_USE_ENV_PROXY".into(), "1".into())]
}

/// For package managers that take their index from a variable. They ask it by name, so that a policy without the index
/// refuses it as it would refuse the index itself.
fn indexes(packages: &[String]) -> Vec<(OsBytes, OsBytes)> {
    let url = |index: &str, path: &str| format!("http://{PACKAGES}/{index}{path}");
    let host = || PACKAGES.to_owned();
    let of = |index: &String| match index.as_str() {
        "pypi.org" => vec![
            ("PIP_INDEX_URL", url(index, "/simple/")),
            ("PIP_TRUSTED_HOST", host()),
            ("UV_DEFAULT_INDEX", url(index, "/simple/")),
            ("UV_INSECURE_HOST", host()),
        ],
        "registry.npmjs.org" => vec![("npm_config_registry", url(index, "/"))],
        "proxy.golang.org" => vec![("GOPROXY", url(index, ""))],
        _ => Vec::new(),
    };
    packages.iter().flat_map(of).map(|(name, value)| (name.into(), value.into())).collect()
}

/// In both cases: some programs read the one, some the other.
fn variables(port: u16, itself: &Itself) -> Vec<(OsBytes, OsBytes)> {
    let proxy = format!("http://127.0.0.1:{port}");
    let without = without(itself);
    let all = SCHEMES.map(|name| (name, &*proxy)).into_iter().chain([(WITHOUT, &*without)]);
    all.flat_map(|(name, value)| {
        [name.to_owned(), name.to_uppercase()].map(|name| (name.into(), value.into()))
    })
    .collect()
}

fn without(itself: &Itself) -> String {
    let mut without = LOOPBACK.to_owned();
    let name = Some(itself.name().to_owned()).filter(|name| !name.is_empty());
    for own in name.into_iter().chain(itself.outer().map(|ip| ip.to_string())) {
        without.push(',');
        without.push_str(&own);
    }
    without
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_keeps_its_settings_and_not_its_proxies() {
        let pair = |name: &str, value: &str| (OsBytes::from(name), OsBytes::from(value));
        let mut environ = vec![pair("MAVEN_OPTS", "-Xmx1g"), pair("http_proxy", "http://10.0.0.1:80")];
        environ.push(pair("PIP_INDEX_URL", "http://index.test/"));
        add(
            &mut environ,
            3128,
            &Itself::default(),
            &["pypi.org".into(), "registry.npmjs.org".into(), "a.test".into()],
        );
        let last = |name: &str| {
            environ.iter().rfind(|(found, _)| found == name.as_bytes()).map(|(_, value)| value.as_slice())
        };
        assert_eq!(last("MAVEN_OPTS"), Some(&b"-Xmx1g"[..]));
        assert_eq!(last("NODE_USE_ENV_PROXY"), Some(&b"1"[..]));
        assert_eq!(last("PIP_INDEX_URL"), Some(&b"http://index.test/"[..]));
        assert_eq!(last("UV_DEFAULT_INDEX"), Some(&b"http://packages.rollbox.internal/pypi.org/simple/"[..]));
        assert_eq!(
            last("npm_config_registry"),
            Some(&b"http://packages.rollbox.internal/registry.npmjs.org/"[..])
        );
        assert_eq!(last("GOPROXY"), None);
        assert_eq!(last("http_proxy"), Some(&b"http://127.0.0.1:3128"[..]));
    }

    #[test]
    fn both_cases_name_the_proxy_and_loopback_is_excepted() {
        let found = variables(3128, &Itself::default());
        assert_eq!(found.len(), 8);
        for (name, value) in [
            ("http_proxy", "http://127.0.0.1:3128"),
            ("HTTPS_PROXY", "http://127.0.0.1:3128"),
            ("ALL_PROXY", "http://127.0.0.1:3128"),
            ("NO_PROXY", "localhost,.localhost,127.0.0.1,127.0.0.0/8,0.0.0.0,::1,::"),
        ] {
            assert!(found.contains(&(name.into(), value.into())), "{name}");
        }
    }
}
