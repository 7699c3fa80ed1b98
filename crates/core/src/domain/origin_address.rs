//! Which network addresses a tenant's origin may have.
//!
//! The configuration names an origin. Its author, or the owner of a DNS zone in it, must not be
//! able to make a function send requests to itself, its neighbours or AWS's credential endpoints.
//! So every address is checked before it is connected to:
//!
//! | Class | Allowed |
//! |---|---|
//! | [`AddressClass::Public`] | always |
//! | [`AddressClass::Private`] | for a tenant whose `render` says `private_network = true` |
//! | [`AddressClass::Loopback`] | on a developer's machine (`everfresh dev`), and in tests |
//! | [`AddressClass::Never`] | never, under no setting |
//!
//! An IPv4 address inside an IPv6 address does not hide: a mapped one is treated as the IPv4
//! address that the system connects to, and one behind the well-known NAT64 prefix must be public.
//! All other ways to embed one (compatible, 6to4, Teredo, local NAT64 prefixes) are obsolete or
//! lead to an unknown host, and are never allowed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    Public,
    /// Within an organisation's own network, such as a VPC.
    Private,
    /// This machine.
    Loopback,
    /// This machine's environment (link-local, metadata), or no host at all.
    Never,
}

use AddressClass::{Loopback, Never, Private, Public};

/// Addresses with one prefix, what they are, and why they are not simply public.
struct Range<A> {
    network: A,
    prefix_bits: u32,
    class: AddressClass,
    reason: &'static str,
}

const fn v4(network: [u8; 4], prefix_bits: u32, class: AddressClass, reason: &'static str) -> Range<Ipv4Addr> {
    let [a, b, c, d] = network;
    Range { network: Ipv4Addr::new(a, b, c, d), prefix_bits, class, reason }
}

const fn v6(network: [u16; 4], prefix_bits: u32, class: AddressClass, reason: &'static str) -> Range<Ipv6Addr> {
    let [a, b, c, d] = network;
    Range { network: Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), prefix_bits, class, reason }
}

/// From IANA's registry of special-purpose IPv4 addresses, and the multicast and reserved blocks.
/// What is not here is public.
const IPV4: [Range<Ipv4Addr>; 16] = [
    v4([0, 0, 0, 0], 8, Never, "\"this\" network, which systems take for this machine"),
    v4([10, 0, 0, 0], 8, Private, "a private network (RFC 1918)"),
    v4([100, 64, 0, 0], 10, Private, "a provider's or VPC's shared network (RFC 6598)"),
    v4([127, 0, 0, 0], 8, Loopback, "this machine"),
    v4([169, 254, 0, 0], 16, Never, "link-local: instance metadata, credentials, the Lambda sandbox"),
    v4([172, 16, 0, 0], 12, Private, "a private network (RFC 1918)"),
    v4([192, 0, 0, 0], 24, Never, "IETF protocol assignments"),
    v4([192, 0, 2, 0], 24, Never, "for documentation"),
    v4([192, 88, 99, 0], 24, Never, "6to4 relays"),
    v4([192, 168, 0, 0], 16, Private, "a private network (RFC 1918)"),
    v4([198, 18, 0, 0], 15, Never, "for benchmarks"),
    v4([198, 51, 100, 0], 24, Never, "for documentation"),
    v4([203, 0, 113, 0], 24, Never, "for documentation"),
    v4([224, 0, 0, 0], 4, Never, "multicast"),
    v4([255, 255, 255, 255], 32, Never, "broadcast"),
    v4([240, 0, 0, 0], 4, Never, "reserved"),
];

/// Within 2000::/3, the addresses that are not public; and outside of it, those that are not
/// [`Never`]. The first match counts.
const IPV6: [Range<Ipv6Addr>; 7] = [
    v6([0xfd00, 0xec2, 0, 0], 32, Never, "AWS's services on the instance: metadata, credentials, DNS"),
    v6([0xfc00, 0, 0, 0], 7, Private, "a private network (RFC 4193)"),
    v6([0x2001, 0, 0, 0], 23, Never, "IETF protocol assignments, Teredo among them"),
    v6([0x2001, 0xdb8, 0, 0], 32, Never, "for documentation"),
    v6([0x2002, 0, 0, 0], 16, Never, "6to4"),
    v6([0x3fff, 0, 0, 0], 20, Never, "for documentation"),
    v6([0x2000, 0, 0, 0], 3, Public, "public"),
];

/// The well-known prefix of NAT64: the last four bytes are an IPv4 address.
const NAT64: Range<Ipv6Addr> = v6([0x64, 0xff9b, 0, 0], 96, Public, "an IPv4 address behind NAT64");

impl Range<Ipv4Addr> {
    fn contains(&self, address: Ipv4Addr) -> bool {
        (address.to_bits() ^ self.network.to_bits()) >> (32 - self.prefix_bits) == 0
    }
}

impl Range<Ipv6Addr> {
    fn contains(&self, address: Ipv6Addr) -> bool {
        (address.to_bits() ^ self.network.to_bits()) >> (128 - self.prefix_bits) == 0
    }
}

/// The address's class, and why it is not public.
pub fn classify(address: IpAddr) -> (AddressClass, &'static str) {
    match address.to_canonical() {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn classify_v4(address: Ipv4Addr) -> (AddressClass, &'static str) {
    let range = IPV4.iter().find(|range| range.contains(address));
    range.map_or((Public, "public"), |range| (range.class, range.reason))
}

/// Of an address that is not a mapped one.
fn classify_v6(address: Ipv6Addr) -> (AddressClass, &'static str) {
    if address == Ipv6Addr::LOCALHOST {
        return (Loopback, "this machine");
    }
    if NAT64.contains(address) {
        let [.., a, b, c, d] = address.octets();
        return match classify_v4(Ipv4Addr::new(a, b, c, d)) {
            (Public, _) => (Public, NAT64.reason),
            // Such an address belongs to the translator's network, not to the tenant's.
            (Private | Loopback | Never, _) => (Never, "an IPv4 address behind NAT64 that is not public"),
        };
    }
    let range = IPV6.iter().find(|range| range.contains(address));
    range.map_or((Never, "outside of the public IPv6 addresses, 2000::/3"), |range| (range.class, range.reason))
}

/// Which addresses one tenant's origin may have. Public ones always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Private ones too. It comes from the tenant's configuration.
    pub private_network: bool,
    /// This machine too. It comes from the command that runs, never from a configuration file.
    pub loopback: bool,
}

/// An address to which no request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {reason}: {}", advice(*class))]
pub struct AddressRefused {
    pub address: IpAddr,
    class: AddressClass,
    reason: &'static str,
}

fn advice(class: AddressClass) -> &'static str {
    match class {
        Private => "allowed only if the tenant's render says private_network = true",
        Loopback => "allowed only in `everfresh dev`",
        Never | Public => "requests there are never allowed",
    }
}

impl AddressPolicy {
    pub fn check(self, address: IpAddr) -> Result<(), AddressRefused> {
        let (class, reason) = classify(address);
        let allowed = match class {
            Public => true,
            Private => self.private_network,
            Loopback => self.loopback,
            Never => false,
        };
        if allowed { Ok(()) } else { Err(AddressRefused { address, class, reason }) }
    }
}

#[cfg(test)]
#[path = "origin_address_tests.rs"]
mod tests;
