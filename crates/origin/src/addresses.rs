//! Resolves a host and refuses forbidden addresses.

use std::env;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use everfresh_core::domain::origin_address::AddressPolicy;
use tokio::net::lookup_host;

use crate::error::OriginError;

/// Address from which a Lambda function gets its events. A request there would consume and expose
/// an event.
const RUNTIME_API_VARIABLE: &str = "AWS_LAMBDA_RUNTIME_API";

/// All addresses of `host` (a name, or an address without brackets). Fails if any of them is
/// forbidden.
pub(crate) async fn resolve(
    host: &str,
    port: u16,
    policy: AddressPolicy,
    runtime_api: Option<&RuntimeApi>,
) -> Result<Vec<SocketAddr>, OriginError> {
    let addresses = lookup(host, port).await?;
    check(host, &addresses, policy)?;
    if let Some(api) = runtime_api {
        let forbidden = lookup(&api.host, api.port).await?;
        if addresses.iter().any(|address| forbidden.iter().any(|api| is_same_server(*address, *api))) {
            return Err(OriginError::RuntimeApi { host: host.to_owned() });
        }
    }
    Ok(addresses)
}

/// Uses the system's resolver, which also parses literal addresses in all their forms.
async fn lookup(host: &str, port: u16) -> Result<Vec<SocketAddr>, OriginError> {
    let failed = |source| OriginError::Resolve { host: host.to_owned(), source };
    let addresses: Vec<SocketAddr> = lookup_host((host, port)).await.map_err(failed)?.collect();
    if addresses.is_empty() {
        return Err(failed(io::Error::new(ErrorKind::NotFound, "the host name has no address")));
    }
    Ok(addresses)
}

/// One forbidden address is enough: otherwise chance would decide which one is used.
fn check(host: &str, addresses: &[SocketAddr], policy: AddressPolicy) -> Result<(), OriginError> {
    for address in addresses {
        let refused = |refused| OriginError::Address { host: host.to_owned(), refused };
        policy.check(address.ip()).map_err(refused)?;
    }
    Ok(())
}

/// A server on one loopback address may listen on all of them.
fn is_same_server(left: SocketAddr, right: SocketAddr) -> bool {
    let (left_ip, right_ip) = (left.ip().to_canonical(), right.ip().to_canonical());
    left.port() == right.port() && (left_ip == right_ip || (left_ip.is_loopback() && right_ip.is_loopback()))
}

/// The Lambda Runtime API of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeApi {
    host: String,
    port: u16,
}

impl RuntimeApi {
    /// `None` if this process is not a Lambda function.
    pub(crate) fn from_env() -> Option<Self> {
        env::var(RUNTIME_API_VARIABLE).ok().map(|text| Self::parse(&text))
    }

    /// Lambda sets `127.0.0.1:9001`, some emulators a whole URL. A value that cannot be parsed
    /// becomes the host: it does not resolve, and then every fetch fails.
    fn parse(text: &str) -> Self {
        let text = text.strip_prefix("http://").unwrap_or(text);
        let authority = text.split('/').next().unwrap_or(text);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok()),
            None => (authority, Some(80)),
        };
        match port {
            Some(port) => Self { host: host.trim_matches(['[', ']']).to_owned(), port },
            None => Self { host: authority.to_owned(), port: 80 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLIC: &str = "1.1.1.1:80";

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn name_with_one_forbidden_address_is_refused() {
        let policy = AddressPolicy::default();
        assert!(check("origin.acme.example", &addresses(&[PUBLIC, "[2606:4700::1111]:80"]), policy).is_ok());
        for forbidden in ["10.0.0.5:80", "169.254.169.254:80", "[::1]:80", "[64:ff9b::a00:5]:80"] {
            for mixed in [[PUBLIC, forbidden], [forbidden, PUBLIC]] {
                let refused = check("origin.acme.example", &addresses(&mixed), policy).unwrap_err();
                assert!(refused.to_string().starts_with("origin.acme.example: "), "{refused}");
            }
        }
    }

    #[tokio::test]
    async fn every_address_form_is_checked_after_resolution() {
        let spellings =
            ["127.0.0.1", "0177.0.0.1", "2130706433", "127.1", "0x7f.1", "::1", "::ffff:7f00:1", "localhost"];
        for host in spellings {
            let refused = resolve(host, 80, AddressPolicy::default(), None).await.unwrap_err();
            assert!(matches!(refused, OriginError::Address { .. }), "{host}: {refused}");
            let policy = AddressPolicy { loopback: true, ..AddressPolicy::default() };
            assert!(resolve(host, 80, policy, None).await.unwrap().iter().all(|address| address.port() == 80));
        }
        let everything = AddressPolicy { private_network: true, loopback: true };
        for host in ["0", "::", "0.0.0.0", "169.254.169.254", "0xa9fea9fe", "::ffff:a9fe:a9fe", "fd00:ec2::254"] {
            let refused = resolve(host, 80, everything, None).await.unwrap_err();
            assert!(matches!(refused, OriginError::Address { .. }), "{host}: {refused}");
        }
    }

    #[tokio::test]
    async fn private_addresses_need_private_network() {
        let vpc = AddressPolicy { private_network: true, loopback: false };
        for host in ["10.0.0.5", "100.64.1.1", "192.168.1.1", "fd12:3456::1", "::ffff:10.0.0.5"] {
            assert_eq!(resolve(host, 80, vpc, None).await.unwrap().len(), 1);
            let refused = resolve(host, 80, AddressPolicy::default(), None).await.unwrap_err();
            assert!(refused.to_string().contains("private_network = true"), "{refused}");
        }
    }

    #[test]
    fn runtime_api_is_parsed_in_all_forms() {
        let api = |host: &str, port| RuntimeApi { host: host.to_owned(), port };
        assert_eq!(RuntimeApi::parse("127.0.0.1:9001"), api("127.0.0.1", 9001));
        assert_eq!(RuntimeApi::parse("http://127.0.0.1:9000/.rt/worker"), api("127.0.0.1", 9000));
        assert_eq!(RuntimeApi::parse("[::1]:9001"), api("::1", 9001));
        assert_eq!(RuntimeApi::parse("sandbox.localdomain"), api("sandbox.localdomain", 80));
        assert_eq!(RuntimeApi::parse("a:b"), api("a:b", 80));
    }

    #[tokio::test]
    async fn runtime_api_is_refused_under_every_policy() {
        let everything = AddressPolicy { private_network: true, loopback: true };
        for (api, host) in [
            ("127.0.0.1:9001", "127.0.0.1"),
            ("127.0.0.1:9001", "localhost"),
            ("127.0.0.1:9001", "::ffff:7f00:1"),
            ("localhost:9001", "127.0.0.2"),
            ("10.9.8.7:9001", "10.9.8.7"),
            ("10.9.8.7:9001", "::ffff:10.9.8.7"),
            ("1.1.1.1:9001", "1.1.1.1"),
        ] {
            let api = RuntimeApi::parse(api);
            let refused = resolve(host, 9001, everything, Some(&api)).await.unwrap_err();
            assert!(matches!(refused, OriginError::RuntimeApi { .. }), "{api:?} {host}: {refused}");
            assert!(resolve(host, 9002, everything, Some(&api)).await.is_ok(), "another port is another server");
        }
    }

    #[tokio::test]
    async fn unresolvable_runtime_api_refuses_every_origin() {
        let api = RuntimeApi::parse("not a host:x");
        assert!(resolve("1.1.1.1", 80, AddressPolicy::default(), Some(&api)).await.is_err());
    }
}
