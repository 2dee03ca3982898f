//! What is the sandbox itself: its loopback, its addresses and its name, in the notations that programs use. Pure but for
//! [`Itself::here`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::unistd::gethostname;

/// Names of loopback in usual hosts files; and whatever is below `localhost` (RFC 6761).
const LOOPBACK: [&str; 8] = [
    "localhost",
    "localhost.localdomain",
    "localhost4",
    "localhost4.localdomain4",
    "localhost6",
    "localhost6.localdomain6",
    "ip6-localhost",
    "ip6-loopback",
];
const BELOW_LOCALHOST: &str = ".localhost";
const LOOPBACKS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The name and the addresses of a sandbox.
#[derive(Debug, Clone, Default)]
pub struct Itself {
    /// In small letters; empty: it is not known.
    name: String,
    /// Of its interfaces, loopback's too. The port is 0.
    addresses: Vec<SocketAddr>,
}

impl Itself {
    /// That of the namespaces of this process. What the kernel does not tell is missing.
    pub fn here() -> Self {
        let name = gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
        let found = getifaddrs().into_iter().flatten().filter_map(|one| {
            let address = one.address?;
            let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
        });
        Self { name: name.to_ascii_lowercase(), addresses: found.collect() }
    }

    /// Its name; empty: it is not known.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The addresses of its interfaces that are not loopback's and need no zone.
    pub fn outer(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(SocketAddr::ip).filter(|ip| !ip.is_loopback() && !is_link_local(*ip))
    }

    /// Where a server is met under `host` and `port`, in the order in which to try; empty: `host` is not the sandbox.
    pub fn places(&self, host: &str, port: u16) -> Vec<SocketAddr> {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let at = |ips: &[IpAddr]| ips.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        match address(&host) {
            Some(ip) if ip.is_loopback() => at(&[ip]),
            // To the kernel too: what is not specified is loopback.
            Some(IpAddr::V4(ip)) if ip.is_unspecified() => at(&LOOPBACKS[..1]),
            Some(ip) if ip.is_unspecified() => at(&LOOPBACKS[1..]),
            Some(ip) => self.of(|own| own.ip() == ip, port),
            None if LOOPBACK.contains(&&*host) || host.ends_with(BELOW_LOCALHOST) => at(&LOOPBACKS),
            None if self.is_name(&host) => {
                let mut places = self.of(|own| !own.ip().is_loopback(), port);
                places.extend(LOOPBACKS.map(|ip| SocketAddr::new(ip, port)));
                places
            }
            None => Vec::new(),
        }
    }

    fn of(&self, wanted: impl Fn(&SocketAddr) -> bool, port: u16) -> Vec<SocketAddr> {
        let own = self.addresses.iter().filter(|own| wanted(own)).copied();
        own.map(|mut own| {
            own.set_port(port);
            own
        })
        .collect()
    }

    /// The name of a sandbox is nobody else's, so that it is told with any domain.
    fn is_name(&self, host: &str) -> bool {
        let first = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        !self.name.is_empty() && (host == self.name || first(host) == self.name || host == first(&self.name))
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// An address in any notation that the C library or a browser reads; that of version 6 without brackets.
fn address(host: &str) -> Option<IpAddr> {
    if host.contains(':') {
        let (ip, _zone) = host.split_once('%').unwrap_or((host, ""));
        let ip: Ipv6Addr = ip.parse().ok()?;
        return Some(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4));
    }
    v4(host).map(IpAddr::V4)
}

/// One to four numbers, decimal, octal (`0177`) or hexadecimal (`0x7f`), of which the last fills what is left
/// (`inet_aton`).
fn v4(host: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u32> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    if first.len() > 3 || first.iter().any(|part| *part > 0xff) {
        return None;
    }
    let left_bits = 32 - 8 * u32::try_from(first.len()).ok()?;
    if left_bits < 32 && *last >> left_bits != 0 {
        return None;
    }
    let high = first.iter().zip([24, 16, 8]).map(|(part, shift)| part << shift).sum::<u32>();
    Some(Ipv4Addr::from(high | last))
}

fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    // Rust's parser would take a sign.
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    if plain { u32::from_str_radix(digits, radix).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn itself() -> Itself {
        let addresses = ["127.0.0.1:0", "[::1]:0", "10.0.1.9:0", "[fd00::9]:0", "[fe80::1%3]:0"];
        Itself { name: "sb-1".into(), addresses: addresses.map(|one| one.parse().unwrap()).to_vec() }
    }

    fn places(host: &str) -> String {
        let places: Vec<String> = itself().places(host, 80).iter().map(ToString::to_string).collect();
        places.join(" ")
    }

    #[test]
    fn the_sandbox_itself_is_told_in_every_notation() {
        for (hosts, expected) in [
            (
                "127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7F.1 0177.0.0.01 017700000001 127.0.0.1.",
                "127.0.0.1:80",
            ),
            ("::ffff:127.0.0.1 ::ffff:7f00:1 0.0.0.0 0 0.0 0x0 00 ::ffff:0.0.0.0", "127.0.0.1:80"),
            ("127.8.9.10 127.526602", "127.8.9.10:80"),
            ("::1 0:0:0:0:0:0:0:1 ::0001 ::1%lo :: 0::0 ::%25lo", "[::1]:80"),
            (
                "localhost LOCALHOST localhost. a.localhost App.Localhost. ip6-localhost",
                "127.0.0.1:80 [::1]:80",
            ),
            ("10.0.1.9 0xa000109 10.265 ::ffff:10.0.1.9", "10.0.1.9:80"),
            ("fd00::9 FD00:0::9", "[fd00::9]:80"),
            ("fe80::1 fe80::1%eth0", "[fe80::1%3]:80"),
            (
                "sb-1 SB-1 sb-1. sb-1.shard-0.sandboxes.svc.cluster.local",
                "10.0.1.9:80 [fd00::9]:80 [fe80::1%3]:80 127.0.0.1:80 [::1]:80",
            ),
        ] {
            for host in hosts.split(' ') {
                assert_eq!(places(host), expected, "{host}");
            }
        }
    }

    #[test]
    fn what_is_elsewhere_is_not_the_sandbox() {
        for host in [
            "",
            ".",
            "example.org",
            "localhost.example.org",
            "notlocalhost",
            "sb-10",
            "a.sb-1",
            "10.0.1.8",
            "1.0.0.127",
            "128.0.0.1",
            "126.255.255.255",
            "127.0.0.256",
            "127.0.0.0.1",
            "127.16777216",
            "4294967296",
            "08",
            "0x",
            "+127.1",
            "127.0.0.1x",
            "fd00::8",
            "::2",
            "::ffff:8.8.8.8",
            "0.0.0.1",
        ] {
            assert_eq!(places(host), "", "{host}");
        }
        assert_eq!(Itself::default().places("sb-1", 80), []);
        assert_eq!(Itself::default().places("", 80), []);
    }

    #[test]
    fn the_addresses_of_this_machine_are_found() {
        let here = Itself::here();
        assert!(!here.name().is_empty());
        assert!(here.addresses.iter().any(|one| one.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST)), "{here:?}");
        let outer: Vec<String> = itself().outer().map(|ip| ip.to_string()).collect();
        assert_eq!(outer, ["10.0.1.9", "fd00::9"]);
    }

    proptest! {
        #[test]
        fn an_address_of_four_decimal_numbers_is_what_the_standard_library_reads(ip: [u8; 4]) {
            let ip = Ipv4Addr::from(ip);
            prop_assert_eq!(v4(&ip.to_string()), Some(ip));
            prop_assert_eq!(v4(&u32::from(ip).to_string()), Some(ip));
        }

        #[test]
        fn any_text_is_read(host in "[0-9a-fxA-F.:%\\[\\]]{0,24}") {
            let _ = itself().places(&host, 1);
        }
    }
}
