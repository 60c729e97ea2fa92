//! Which addresses a name may lead to by itself: those that are globally reachable, and not part of somebody's own network.
//!
//! The tables follow IANA's special-purpose address registries for IPv4 and IPv6 (RFC 6890 and its successors; read in 2026). Of IPv6,
//! only what is given out as global unicast counts at all, so that a block that nobody uses yet is refused, not allowed. Where a registry
//! says "globally reachable" of a block for protocols (anycast of AS112 and the like), it is refused with the block around it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A block of addresses, and what it is for.
type Block<A> = (A, u32, &'static str);

const V4: [Block<Ipv4Addr>; 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "shared by a provider's customers"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "for protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a relay to 6to4"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(255, 255, 255, 255), 32, "broadcast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
    // Azure's virtual machines reach their host there. It looks public and is in no registry.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's own"),
];

/// What of IPv6 has a name of its own; everything else outside of [`GLOBAL_UNICAST`] is reserved.
const V6: [Block<Ipv6Addr>; 13] = [
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::UNSPECIFIED, 96, "an IPv4 address in disguise"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "a translation of private IPv4"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "discarded"),
    // Teredo, benchmarks, ORCHID and others.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "for protocols"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "for documentation"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "for documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "an IPv4 address in disguise"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "private"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "private"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

const GLOBAL_UNICAST: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// In networks without IPv4 a translator makes these of what public names lead to (RFC 6052): they are what is in them.
const TRANSLATED: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Why a name that was granted does not reach `address` by that alone; none when it does.
pub(crate) fn why_special(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => v6(address),
    }
}

fn v4(address: Ipv4Addr) -> Option<&'static str> {
    let within = |(block, bits, _): &&Block<Ipv4Addr>| (block.to_bits() ^ address.to_bits()).leading_zeros() >= *bits;
    V4.iter().find(within).map(|(_, _, why)| *why)
}

fn v6(address: Ipv6Addr) -> Option<&'static str> {
    let within = |block: Ipv6Addr, bits: u32| (block.to_bits() ^ address.to_bits()).leading_zeros() >= bits;
    if within(TRANSLATED.0, TRANSLATED.1) {
        let [.., a, b, c, d] = address.octets();
        return v4(Ipv4Addr::new(a, b, c, d));
    }
    match V6.iter().find(|(block, bits, _)| within(*block, *bits)) {
        Some((_, _, why)) => Some(why),
        None => (!within(GLOBAL_UNICAST.0, GLOBAL_UNICAST.1)).then_some("reserved"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_global_addresses_are_reached_by_a_name() {
        let check = |why: Option<&str>, addresses: &[&str]| {
            for address in addresses {
                assert_eq!(why_special(address.parse().expect("an address")), why, "{address}");
            }
        };
        check(None, &["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255"]);
        check(None, &["128.0.0.0", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255"]);
        check(None, &["198.17.255.255", "198.20.0.0", "223.255.255.255", "168.63.129.15", "168.63.129.17"]);
        check(Some("loopback"), &["127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1"]);
        check(Some("unspecified"), &["0.0.0.0", "0.255.255.255", "::", "::ffff:0.0.0.0", "64:ff9b::"]);
        check(Some("private"), &["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "::ffff:10.1.2.3"]);
        check(Some("private"), &["fc00::1", "fd00:ec2::254", "fd20:ce::254", "fec0::1", "64:ff9b::a00:1"]);
        check(
            Some("link-local"),
            &["169.254.169.254", "169.254.170.2", "fe80::1", "febf::1", "::ffff:169.254.169.254"],
        );
        check(Some("link-local"), &["64:ff9b::a9fe:a9fe"]);
        check(Some("shared by a provider's customers"), &["100.64.0.1", "100.100.100.200", "100.127.255.255"]);
        check(Some("for protocols"), &["192.0.0.1", "192.0.0.192", "2001::1", "2001:0:4136:e378::", "2001:2::1"]);
        check(Some("for protocols"), &["2001:10::1", "2001:1ff:ffff::"]);
        check(Some("for documentation"), &["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"]);
        check(Some("for benchmarks"), &["198.18.0.1", "198.19.255.255"]);
        check(Some("a relay to 6to4"), &["192.88.99.1"]);
        check(Some("multicast"), &["224.0.0.1", "239.255.255.255", "ff02::1"]);
        check(Some("broadcast"), &["255.255.255.255"]);
        check(Some("reserved"), &["240.0.0.1", "5f00::1", "4000::", "1000::", "64:ff9b:2::", "fe00::"]);
        check(Some("a cloud's own"), &["168.63.129.16", "64:ff9b::a83f:8110"]);
        check(Some("an IPv4 address in disguise"), &["::7f00:1", "::1.1.1.1", "2002:7f00:1::", "2002:101:101::"]);
        check(Some("a translation of private IPv4"), &["64:ff9b:1::1.1.1.1"]);
        check(Some("discarded"), &["100::1"]);
        check(None, &["2606:4700:4700::1111", "2a00::", "3ffe::1", "64:ff9b::1.1.1.1", "2001:200::", "2003::"]);
    }
}
