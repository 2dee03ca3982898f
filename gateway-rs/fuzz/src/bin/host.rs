//! Hosts as programs write them: none is a name here and an address to the system, and no notation leads past a block.
#![no_main]
#![allow(unsafe_code, reason = "the system's own reader of addresses is the judge")]

use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use egress::policy::{Blocked, Host, Target, index};

fn check(bytes: &[u8]) {
    match bytes {
        [0, octets @ .., a, b, c, d] => notations(Ipv4Addr::new(*a, *b, *c, *d), octets),
        [_, text @ ..] => drop(std::str::from_utf8(text).map(check_text)),
        [] => {}
    }
}

fn check_text(text: &str) {
    let parsed = Host::parse(text);
    if let (Some(address), Ok(host)) = (as_the_system_reads_it(text), &parsed) {
        assert_eq!(host, &Host::Address(address), "{text:?}");
    }
    if let Ok(host) = &parsed {
        let written = host.to_string();
        assert!(written.bytes().all(|byte| byte.is_ascii_graphic()), "{text:?}");
        assert_eq!((&Host::parse(&written), &Host::parse(&text.to_ascii_uppercase())), (&parsed, &parsed));
    }
    for port in [None, Some(80)] {
        if let Ok(target) = Target::parse(text, port) {
            assert_eq!(Target::parse(&target.to_string(), None), Ok(target));
        }
    }
    if let Ok(host) = index(text) {
        assert_eq!(as_a_server_reads_it(text), host.to_string().into_bytes(), "{text:?}");
    }
}

/// An address of version 4 in other notations, whose numbers have the bases that `styles` say.
fn notations(address: Ipv4Addr, styles: &[u8]) {
    let bits = address.to_bits();
    let style = |at: usize| styles.get(at).copied().unwrap_or_default();
    let cut = |parts: usize| {
        let octets = (0..parts - 1).map(|at| number(u32::from(address.octets()[at]), style(at)));
        let rest = u64::from(bits) & ((1 << (8 * (5 - parts))) - 1);
        octets.chain([number(rest as u32, style(parts))]).collect::<Vec<_>>().join(".")
    };
    let [high, low] = [bits >> 16, bits & 0xffff];
    let carriers = [
        format!("::ffff:{address}"),
        format!("::{address}"),
        format!("0:0:0:0:0:FFFF:{high:x}:{low:04X}"),
        format!("64:ff9b::{address}"),
        format!("2002:{high:x}:{low:x}::{:x}", style(0)),
    ];
    let blocked = |address: IpAddr| Blocked::default().class(address).is_some();
    for text in (1..=4).map(cut).chain(carriers) {
        check_text(&text);
        match Host::parse(&text) {
            Ok(Host::Address(found)) => assert!(blocked(found) || !blocked(address.into()), "{text}"),
            Ok(Host::Name(_)) => panic!("{text} is a name"),
            Err(_) => {}
        }
        assert!(text.parse::<Ipv6Addr>().map_or(true, |carrier| blocked(carrier.into())), "{text}");
    }
}

fn number(number: u32, style: u8) -> String {
    match style % 4 {
        0 => number.to_string(),
        1 => format!("0x{number:x}"),
        2 => format!("0X{number:012X}"),
        _ => format!("0{number:o}"),
    }
}

/// The address that a text is without any look-up (getaddrinfo(3)).
fn as_the_system_reads_it(text: &str) -> Option<IpAddr> {
    let text = CString::new(text).ok()?;
    // SAFETY: zeroes are valid hints; the list is read before it is freed, and an entry has an address of its family.
    unsafe {
        let mut hints: libc::addrinfo = std::mem::zeroed();
        (hints.ai_flags, hints.ai_socktype) = (libc::AI_NUMERICHOST, libc::SOCK_STREAM);
        let mut found = std::ptr::null_mut();
        if libc::getaddrinfo(text.as_ptr(), std::ptr::null(), &raw const hints, &raw mut found) != 0 {
            return None;
        }
        let address = match (*found).ai_family {
            libc::AF_INET => {
                let address = (*found).ai_addr.cast::<libc::sockaddr_in>();
                IpAddr::from((*address).sin_addr.s_addr.to_ne_bytes())
            }
            _ => IpAddr::from((*(*found).ai_addr.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr),
        };
        libc::freeaddrinfo(found);
        Some(address)
    }
}

/// The first folder of a path: escapes are resolved first, then segments that lead upwards.
fn as_a_server_reads_it(path: &str) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, more @ ..] = rest {
        let escape = path.get(path.len() - more.len()..path.len() - more.len() + 2);
        let byte = escape.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &more[2..] } else { more };
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in decoded.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(kept.pop()),
            other => kept.push(other),
        }
    }
    kept.first().map(|first| first.to_vec()).unwrap_or_default()
}

fuzz::target!(
    [
        b"\x01a-b.test.".as_slice(),
        b"\x01[2001:db8::1]:443",
        b"\x01192.0.2.7:80",
        b"\x010x7f.1",
        b"\x01/pypi.org/simple/%41/",
        b"\0\x01\x02\x03\x00\x7f\0\0\x01",
        b"\0\xa9\xfe\xa9\xfe",
    ],
    check
);
