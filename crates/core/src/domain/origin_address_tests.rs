use super::*;
use proptest::prelude::*;

fn class(text: &str) -> AddressClass {
    classify(text.parse().unwrap()).0
}

#[test]
fn addresses_are_classified() {
    let cases: [(AddressClass, &[&str]); 4] = [
        (Public, &["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255"]),
        (Public, &["172.15.255.255", "172.32.0.0", "223.255.255.255", "2600:1f18::1", "2a05:d018::1", "3fff:1000::1"]),
        (
            Private,
            &["10.0.0.0", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fc00::1"],
        ),
        (Loopback, &["127.0.0.1", "127.255.255.255", "::1", "::ffff:7f00:1", "::ffff:127.8.9.10"]),
    ];
    for (expected, addresses) in cases {
        for address in addresses {
            assert_eq!(class(address), expected, "{address}");
        }
    }
}

#[test]
fn metadata_and_sandbox_addresses_are_never_allowed() {
    let everything = AddressPolicy { private_network: true, loopback: true };
    for address in [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "169.254.100.1",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fe80::1",
        "fec0::1",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "240.0.0.1",
        "192.0.0.192",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "2001:db8::1",
        "3fff::1",
        "64:ff9b:1::1",
        "100::1",
        "4000::1",
    ] {
        let refused = everything.check(address.parse().unwrap()).unwrap_err();
        assert!(refused.to_string().ends_with("requests there are never allowed"), "{refused}");
    }
}

#[test]
fn refusals_say_what_would_allow_them() {
    let refused = |address: &str| AddressPolicy::default().check(address.parse().unwrap()).unwrap_err().to_string();
    assert_eq!(
        refused("10.0.0.5"),
        "10.0.0.5 is a private network (RFC 1918): allowed only if the tenant's render says private_network = true"
    );
    assert_eq!(refused("127.0.0.1"), "127.0.0.1 is this machine: allowed only in `everfresh dev`");
}

#[test]
fn each_setting_allows_its_own_class_only() {
    let private = AddressPolicy { private_network: true, loopback: false };
    let loopback = AddressPolicy { private_network: false, loopback: true };
    let allowed = |policy: AddressPolicy, address: &str| policy.check(address.parse().unwrap()).is_ok();
    assert!(allowed(private, "10.0.0.5") && allowed(private, "fd12::1") && allowed(private, "::ffff:10.0.0.5"));
    assert!(!allowed(private, "127.0.0.1") && !allowed(private, "::1"));
    assert!(allowed(loopback, "127.0.0.1") && allowed(loopback, "::1"));
    assert!(!allowed(loopback, "10.0.0.5"));
}

#[test]
fn public_ipv4_behind_nat64_is_public() {
    assert_eq!(class("64:ff9b::101:101"), Public);
    assert_eq!(class("64:ff9b::a00:5"), Never);
    assert_eq!(class("64:ff9b::7f00:1"), Never);
}

/// Every way in which an IPv6 address can carry an IPv4 address: the RFCs' prefixes, and the places
/// that RFC 6052 gives it below the local NAT64 prefix.
fn embeddings(address: Ipv4Addr) -> Vec<(&'static str, Ipv6Addr)> {
    let bits = u128::from(address.to_bits());
    let at = |prefix: [u16; 8], shift: u32| Ipv6Addr::from_bits(Ipv6Addr::from(prefix).to_bits() | (bits << shift));
    let [a, b, c, d] = address.octets().map(u16::from);
    vec![
        ("mapped", at([0, 0, 0, 0, 0, 0xffff, 0, 0], 0)),
        ("compatible", at([0; 8], 0)),
        ("translated (SIIT)", at([0, 0, 0, 0, 0xffff, 0, 0, 0], 0)),
        ("NAT64", at([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 0)),
        ("local NAT64, /96", at([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 0)),
        ("local NAT64, /48", Ipv6Addr::new(0x64, 0xff9b, 1, a << 8 | b, c, d << 8, 0, 0)),
        ("local NAT64, /56", Ipv6Addr::new(0x64, 0xff9b, 1, a, b, c << 8 | d, 0, 0)),
        ("local NAT64, /64", Ipv6Addr::new(0x64, 0xff9b, 1, 0, a, b << 8 | c, d << 8, 0)),
        ("6to4", at([0x2002, 0, 0, 0, 0, 0, 0, 0], 80)),
        ("Teredo server", at([0x2001, 0, 0, 0, 0, 0, 0, 0], 64)),
        (
            "Teredo client",
            Ipv6Addr::from_bits(Ipv6Addr::from([0x2001, 0, 0, 0, 0, 0, 0, 0]).to_bits() | (bits ^ 0xffff_ffff)),
        ),
    ]
}

proptest! {
    #[test]
    fn refused_ipv4_is_refused_in_every_ipv6_embedding(
        range in prop::sample::select((0..IPV4.len()).collect::<Vec<_>>()),
        host in any::<u32>(),
        private_network in any::<bool>(),
        loopback in any::<bool>(),
    ) {
        let range = &IPV4[range];
        let host_bits = u32::MAX.checked_shr(range.prefix_bits).unwrap_or(0);
        let address = Ipv4Addr::from_bits(range.network.to_bits() | (host & host_bits));
        let policy = AddressPolicy { private_network, loopback };
        prop_assert!(AddressPolicy::default().check(address.into()).is_err(), "{address}");
        if policy.check(address.into()).is_err() {
            for (way, embedded) in embeddings(address) {
                prop_assert!(policy.check(embedded.into()).is_err(), "{address} as {way}: {embedded}");
            }
        }
    }

    #[test]
    fn mapped_address_is_treated_as_its_ipv4_address(bits in any::<u32>()) {
        let address = Ipv4Addr::from_bits(bits);
        prop_assert_eq!(classify(address.into()), classify(address.to_ipv6_mapped().into()));
    }

    #[test]
    fn no_setting_allows_class_never(bits in any::<u128>(), bits_v4 in any::<u32>()) {
        let everything = AddressPolicy { private_network: true, loopback: true };
        for address in [IpAddr::V6(Ipv6Addr::from_bits(bits)), IpAddr::V4(Ipv4Addr::from_bits(bits_v4))] {
            prop_assert_eq!(everything.check(address).is_err(), classify(address).0 == Never);
        }
    }
}
