//! A tenant's HTTP origin, and the addresses it may have.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;

use serde::Deserialize;

use super::RenderError;
use crate::domain::origin_address::{AddressPolicy, AddressRefused};

/// An HTTP origin: scheme, host and perhaps a port; never a user, a path, a query or a fragment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpOrigin {
    url: String,
    /// Its address may be a private one: the origin is in a VPC that the functions are connected
    /// to.
    pub private_network: bool,
    /// Connections are reused. Otherwise every page costs a new one.
    pub keep_alive: bool,
    /// Sent as `Host`. The site's public host is sent as `x-forwarded-host` in any case.
    pub host: SentHost,
    /// Requests that run at the same time, of one process: a function's sandbox, or `everfresh
    /// dev`.
    pub concurrency: NonZeroU32,
}

const DEFAULT_CONCURRENCY: NonZeroU32 = NonZeroU32::new(50).unwrap();

/// Which host a request to an origin names in its `Host` header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SentHost {
    /// The host of the origin's own URL.
    #[default]
    Origin,
    /// The public host of the site, for origins that build links from `Host` or serve several sites
    /// at one address.
    Public,
}

impl HttpOrigin {
    /// An origin with default settings, without its final slash. Its address is checked at each
    /// request: a name may resolve to another one by then.
    pub fn parse(text: &str) -> Result<Self, RenderError> {
        let url = text.strip_suffix('/').unwrap_or(text);
        let (host, port) = authority(url).and_then(split_port).ok_or(RenderError::Origin)?;
        let in_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        let valid = match ipv6(host) {
            Some(text) => text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()),
            None => !host.is_empty() && host.bytes().all(in_host),
        };
        let port_valid = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        if !valid || !port_valid {
            return Err(RenderError::Origin);
        }
        // Resolvers read "127.1" and "0x7f000001" as addresses.
        if ends_in_number(host) && literal(host).is_none() {
            return Err(RenderError::OddAddress);
        }
        Ok(Self {
            url: url.to_owned(),
            private_network: false,
            keep_alive: true,
            host: SentHost::default(),
            concurrency: DEFAULT_CONCURRENCY,
        })
    }

    /// Like `https://origin.acme.example`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Which addresses this origin may have, on a machine where it may be the machine itself or
    /// not.
    pub fn address_policy(&self, loopback: bool) -> AddressPolicy {
        AddressPolicy { private_network: self.private_network, loopback }
    }

    /// Refuses an origin at an address to which no request may be sent. A name passes, except those
    /// that are always this machine (RFC 6761): its addresses are checked at each request.
    pub fn check_address(&self, loopback: bool) -> Result<(), AddressRefused> {
        let host = authority(&self.url).and_then(split_port).map_or("", |(host, _)| host);
        let address = literal(host).or_else(|| is_localhost(host).then_some(Ipv4Addr::LOCALHOST.into()));
        address.map_or(Ok(()), |address| self.address_policy(loopback).check(address))
    }
}

fn authority(url: &str) -> Option<&str> {
    url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))
}

/// Host and port. None if the port is not all digits, or something else follows.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    let end_of_host = authority.find(']').map_or(0, |at| at + 1);
    match authority[end_of_host..].split_once(':') {
        None => Some((authority, None)),
        Some((host, port)) => {
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| (&authority[..end_of_host + host.len()], Some(port)))
        }
    }
}

fn ipv6(host: &str) -> Option<&str> {
    host.strip_prefix('[')?.strip_suffix(']')
}

fn is_localhost(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether the host is always this machine, whatever a resolver says.
pub(super) fn is_this_machine(host: &str) -> bool {
    is_localhost(host) || literal(host).is_some_and(|address| address.is_loopback())
}

fn literal(host: &str) -> Option<IpAddr> {
    ipv6(host).unwrap_or(host).parse().ok()
}

/// Whether a resolver may read the host as an IPv4 address in one of its many spellings. No name
/// ends like that.
fn ends_in_number(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_accepted_without_their_final_slash() {
        for (text, url) in [
            ("https://origin.acme.example", "https://origin.acme.example"),
            ("https://origin.acme.example.", "https://origin.acme.example."),
            ("http://127.0.0.1:3000/", "http://127.0.0.1:3000"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("https://[2001:db8::1]", "https://[2001:db8::1]"),
            ("https://10.acme.example", "https://10.acme.example"),
            ("https://0x7f.example", "https://0x7f.example"),
        ] {
            assert_eq!(HttpOrigin::parse(text).unwrap().url(), url);
        }
    }

    #[test]
    fn urls_that_could_lead_elsewhere_are_refused() {
        for text in [
            "",
            "origin.acme.example",
            "file:///etc/passwd",
            "gopher://x",
            "HTTPS://x",
            "https://",
            "https:///x",
            "https://user@x",
            "https://user:pw@x",
            "https://x\\@y",
            "https://x/path",
            "https://x?q",
            "https://x#f",
            "https://x:",
            "https://x:0",
            "https://x:99999",
            "https://x:80:80",
            "https://x:+80",
            "https://a b",
            "https://x\r\ny",
            "https://[::1",
            "https://[]",
            "https://[::1]x",
            "https://[127.0.0.1]",
            "https://[fe80::1%eth0]",
            "https://[1:2]",
        ] {
            assert_eq!(HttpOrigin::parse(text), Err(RenderError::Origin), "{text:?}");
        }
    }

    #[test]
    fn odd_spellings_of_ipv4_addresses_are_refused() {
        for host in
            ["0177.0.0.1", "2130706433", "127.1", "0x7f.1", "0x7f000001", "0", "127.0.0.1.", "1.2.3.4.5", "a.0x"]
        {
            let text = format!("http://{host}:9001");
            assert_eq!(HttpOrigin::parse(&text), Err(RenderError::OddAddress), "{text}");
        }
    }

    #[test]
    fn literal_addresses_and_localhost_are_checked() {
        let check = |text: &str, loopback| HttpOrigin::parse(text).unwrap().check_address(loopback).is_ok();
        assert!(check("https://origin.acme.example", false) && check("https://localhost.acme.example", false));
        for host in ["localhost", "LocalHost.", "app.localhost"] {
            let text = format!("http://{host}:3000");
            assert!(!check(&text, false) && check(&text, true), "{text}");
        }
        assert!(check("https://1.1.1.1", false) && check("http://[2606:4700::1111]:8080", false));
        assert!(!check("http://10.0.0.5", true) && !check("http://[::ffff:a9fe:a9fe]", true));
        assert!(!check("http://127.0.0.1:3000", false) && check("http://127.0.0.1:3000", true));
        let vpc = HttpOrigin { private_network: true, ..HttpOrigin::parse("http://10.0.0.5").unwrap() };
        assert_eq!(vpc.check_address(false), Ok(()));
    }
}
