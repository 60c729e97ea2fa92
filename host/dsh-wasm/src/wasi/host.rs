//! Hosts as grants and requests name them, read in one way only: what does not have exactly one meaning is no host.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name, and the longest label of one (RFC 1035, section 2.3.4, without the closing dot).
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// A host: a name in lower case without the closing dot, or an address. An IPv6 address that stands for an IPv4 one is the latter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Name(String),
    Address(IpAddr),
}

impl fmt::Display for Host {
    /// As grants keep it: an IPv6 address without brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl Host {
    /// Reads a name or an IPv4 address.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let labels = || name.split('.');
        if name.is_empty() {
            return Err("a host is missing");
        }
        if !name.is_ascii() {
            return Err("a name with letters beyond ASCII is written in punycode (`xn--…`)");
        }
        let valid = |label: &str| {
            (1..=MAX_LABEL_BYTES).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if name.len() > MAX_NAME_BYTES || !labels().all(valid) {
            return Err("a name has labels of at most 63 letters, digits, `-` and `_`");
        }
        if !labels().next_back().is_some_and(is_number) {
            return Ok(Self::Name(name));
        }
        // What ends in a number is an address to some resolvers, in octal, hexadecimal and with fewer than four numbers.
        match name.parse::<Ipv4Addr>() {
            Ok(address) => Ok(Self::Address(address.into())),
            Err(_) => Err("an IPv4 address is four decimal numbers without leading zeros"),
        }
    }

    /// Reads what stands in brackets: an IPv6 address, without a zone.
    pub(crate) fn parse_bracketed(text: &str) -> Result<Self, &'static str> {
        match text.parse::<Ipv6Addr>() {
            Ok(address) => Ok(Self::Address(IpAddr::V6(address).to_canonical())),
            Err(_) if text.contains('%') => Err("an address has no zone here"),
            Err(_) => Err("in brackets stands an IPv6 address"),
        }
    }

    /// Whether it is a name for this machine (RFC 6761, section 6.3), which is never looked up.
    pub(crate) fn is_localhost(&self) -> bool {
        matches!(self, Self::Name(name) if name == "localhost" || name.ends_with(".localhost"))
    }
}

/// Whether a label would make a resolver take the name for an address (WHATWG URL, "ends in a number").
fn is_number(label: &str) -> bool {
    let hex = |rest: &str| rest.bytes().all(|b| b.is_ascii_hexdigit());
    label.bytes().all(|b| b.is_ascii_digit()) || label.strip_prefix("0x").is_some_and(hex)
}

/// Reads a port: digits that make 1 to 65535.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    let digits = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_meaning_or_none() {
        let check = |text: &str, expect: Result<&str, &str>| {
            assert_eq!(Host::parse(text).map(|host| host.to_string()).as_deref().map_err(|why| *why), expect, "{text}");
        };
        let (octets, labels) = (
            Err("an IPv4 address is four decimal numbers without leading zeros"),
            Err("a name has labels of at most 63 letters, digits, `-` and `_`"),
        );
        check("api.example.com", Ok("api.example.com"));
        check("API.Example.COM.", Ok("api.example.com"));
        check("127.0.0.1", Ok("127.0.0.1"));
        check("127.0.0.1.", Ok("127.0.0.1"));
        check("xn--pple-43d.com", Ok("xn--pple-43d.com"));
        check("1.2.3.4.example", Ok("1.2.3.4.example"));
        for other in
            ["2130706433", "0177.0.0.1", "0x7f.1", "0x7f000001", "127.1", "0x", "1.2.3.4.5", "256.0.0.1", "a.0"]
        {
            check(other, octets);
        }
        for other in ["a..b", ".a", "a.com..", "a b", "a%2eb", "a/b", "a@b", "a:b", "a\0b", "a\r\nb", "*", "fe80::1"] {
            check(other, labels);
        }
        check(&"a".repeat(64), labels);
        check(&["a"; 128].join("."), labels);
        check("", Err("a host is missing"));
        check(".", Err("a host is missing"));
        // The first letter is Cyrillic.
        check("аpple.com", Err("a name with letters beyond ASCII is written in punycode (`xn--…`)"));
    }

    #[test]
    fn an_address_in_brackets_has_one_meaning_or_none() {
        let check = |text: &str, expect: Result<&str, &str>| {
            let host = Host::parse_bracketed(text).map(|host| host.to_string());
            assert_eq!(host.as_deref().map_err(|why| *why), expect, "{text}");
        };
        check("::1", Ok("::1"));
        check("0:0:0:0:0:0:0:1", Ok("::1"));
        check("FE80::0001", Ok("fe80::1"));
        check("::ffff:127.0.0.1", Ok("127.0.0.1"));
        check("::ffff:7f00:1", Ok("127.0.0.1"));
        check("::127.0.0.1", Ok("::7f00:1"));
        check("fe80::1%eth0", Err("an address has no zone here"));
        check("fe80::1%25eth0", Err("an address has no zone here"));
        check("v1.fe80::a", Err("in brackets stands an IPv6 address"));
        check("127.0.0.1", Err("in brackets stands an IPv6 address"));
        check("", Err("in brackets stands an IPv6 address"));
    }

    #[test]
    fn a_port_is_one_to_65535() {
        let check = |text: &str, expect: Option<u16>| assert_eq!(parse_port(text), expect, "{text}");
        check("1", Some(1));
        check("080", Some(80));
        check("65535", Some(65535));
        for other in ["", "0", "00000", "65536", "99999", "+80", "-1", "8o", " 80", "000080", "4294967376"] {
            check(other, None);
        }
    }
}
