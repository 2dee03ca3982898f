use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Addresses that are never reached, whatever a policy says, by class (the IANA registries of special-purpose
/// addresses). Names of classes are told in refusals.
const V4: [(Ipv4Net, &str); 18] = [
    v4([0, 0, 0, 0], 8, "reserved"),
    v4([10, 0, 0, 0], 8, "private"),
    v4([100, 64, 0, 0], 10, "shared"),
    v4([127, 0, 0, 0], 8, "loopback"),
    // Clouds answer there on every node with the node's credentials.
    v4([168, 63, 129, 16], 32, "metadata"),
    v4([169, 254, 169, 254], 32, "metadata"),
    v4([169, 254, 0, 0], 16, "link-local"),
    v4([172, 16, 0, 0], 12, "private"),
    v4([192, 0, 0, 0], 24, "reserved"),
    v4([192, 0, 2, 0], 24, "reserved"),
    v4([192, 31, 196, 0], 24, "reserved"),
    v4([192, 88, 99, 0], 24, "reserved"),
    v4([192, 168, 0, 0], 16, "private"),
    v4([198, 18, 0, 0], 15, "reserved"),
    v4([198, 51, 100, 0], 24, "reserved"),
    v4([203, 0, 113, 0], 24, "reserved"),
    v4([224, 0, 0, 0], 4, "multicast"),
    v4([240, 0, 0, 0], 4, "reserved"),
];

/// Of version 6 only what is global unicast is reached, less these; addresses that carry one of version 4 are not.
const V6: [(Ipv6Net, &str); 13] = [
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback"),
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "mapped"),
    v6([0, 0, 0, 0, 0, 0, 0, 0], 96, "mapped"),
    v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "mapped"),
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "mapped"),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "mapped"),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "mapped"),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "reserved"),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "reserved"),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "reserved"),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "private"),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local"),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast"),
];

const GLOBAL: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, "").0;

const fn v4(octets: [u8; 4], length: u8, class: &'static str) -> (Ipv4Net, &'static str) {
    let [a, b, c, d] = octets;
    (Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length), class)
}

const fn v6(groups: [u16; 8], length: u8, class: &'static str) -> (Ipv6Net, &'static str) {
    let [a, b, c, d, e, f, g, h] = groups;
    (Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length), class)
}

/// Which addresses are never reached in this installation.
#[derive(Debug, Clone, Default)]
pub struct Blocked {
    platform: Vec<IpNet>,
    excepted: Vec<IpNet>,
}

impl Blocked {
    /// The addresses that nobody reaches, and `platform`'s: the cluster's and the operator's own. `excepted` are
    /// reached although they are among either.
    pub fn new(platform: Vec<IpNet>, excepted: Vec<IpNet>) -> Self {
        Self { platform, excepted }
    }

    /// Whether the operator lets an address be reached, whatever it is.
    pub fn is_excepted(&self, address: IpAddr) -> bool {
        self.excepted.iter().any(|net| net.contains(&address))
    }

    /// Returns the class of an address that is never reached; `None` for all others.
    pub fn class(&self, address: IpAddr) -> Option<&'static str> {
        if self.is_excepted(address) {
            return None;
        }
        if self.platform.iter().any(|net| net.contains(&address)) {
            return Some("platform");
        }
        match address {
            IpAddr::V4(address) => V4.iter().find(|(net, _)| net.contains(&address)).map(|(_, class)| *class),
            IpAddr::V6(address) => {
                let special = V6.iter().find(|(net, _)| net.contains(&address)).map(|(_, class)| *class);
                special.or((!GLOBAL.contains(&address)).then_some("reserved"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn class(text: &str) -> Option<&'static str> {
        Blocked::default().class(text.parse().unwrap())
    }

    #[test]
    fn special_addresses_have_their_class() {
        for (address, expected) in [
            ("0.0.0.0", "reserved"),
            ("10.255.255.255", "private"),
            ("100.100.100.200", "shared"),
            ("127.8.9.10", "loopback"),
            ("168.63.129.16", "metadata"),
            ("169.254.169.254", "metadata"),
            ("169.254.170.2", "link-local"),
            ("172.31.0.1", "private"),
            ("192.168.0.1", "private"),
            ("198.19.255.255", "reserved"),
            ("239.1.1.1", "multicast"),
            ("255.255.255.255", "reserved"),
            ("::", "mapped"),
            ("::1", "loopback"),
            ("::7f00:1", "mapped"),
            ("::ffff:127.0.0.1", "mapped"),
            ("::ffff:8.8.8.8", "mapped"),
            ("64:ff9b::a9fe:a9fe", "mapped"),
            ("64:ff9b:1::1", "mapped"),
            ("2002:7f00:1::", "mapped"),
            ("2001:0:1::1", "mapped"),
            ("2001:db8::1", "reserved"),
            ("fd00:ec2::254", "private"),
            ("fe80::1", "link-local"),
            ("ff02::1", "multicast"),
            ("4000::1", "reserved"),
            ("1::1", "reserved"),
        ] {
            assert_eq!(class(address), Some(expected), "{address}");
        }
        for address in [
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:4860::8888",
        ] {
            assert_eq!(class(address), None, "{address}");
        }
    }

    #[test]
    fn the_platform_is_blocked_and_an_exception_is_one_notation_alone() {
        let nets = |text: &str| vec![text.parse().unwrap()];
        let blocked = Blocked::new(nets("8.8.8.0/24"), nets("127.0.0.0/8"));
        assert_eq!(blocked.class("8.8.8.8".parse().unwrap()), Some("platform"));
        assert_eq!(blocked.class("127.0.0.1".parse().unwrap()), None);
        assert_eq!(blocked.class("::ffff:127.0.0.1".parse().unwrap()), Some("mapped"));
    }

    proptest! {
        #[test]
        fn no_form_that_carries_an_address_of_version_4_is_reached(address: u32, low: u64) {
            let [high, rest] = [address >> 16, address & 0xffff].map(u128::from);
            for carrier in [
                0xffff_0000_0000 | u128::from(address),
                u128::from(address),
                0x0064_ff9b << 96 | u128::from(address),
                0x2002 << 112 | high << 96 | rest << 80 | u128::from(low),
                0x2001_0000 << 96 | u128::from(low),
            ] {
                let blocked = Blocked::default().class(Ipv6Addr::from_bits(carrier).into());
                prop_assert!(blocked.is_some());
            }
        }
    }
}
