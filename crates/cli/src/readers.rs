//! The HTTP server of `dev`: serves the pages on a loopback port, for a browser.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use everfresh_core::clients::Clients;
use everfresh_core::config::{Config, Sends, host_name};
use everfresh_core::domain::page_key::Tenant;
use everfresh_local::gateway::{Gateway, Port, ResponseBody, full};
use everfresh_serve::http::request::Request;
use everfresh_serve::{Served, Server, Settings, Stream};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;

use crate::config;

/// Host names of this machine.
const LOOPBACK: [&str; 2] = ["localhost", "127.0.0.1"];
/// Not a host name, so it cannot be in a configuration.
const LOOPBACK_V6: &str = "[::1]";

/// How long a passed request may take: a framework's dev server keeps event streams open.
const PASS_DEADLINE_MS: u64 = 3_600_000;

/// Serves the pages of the configuration text `config` on `port`.
pub(crate) async fn open(port: Port, config: &str, clients: &Clients, settings: Settings) -> anyhow::Result<Gateway> {
    let settings = Settings { pass_deadline_ms: PASS_DEADLINE_MS, ..settings };
    let (server, hosts) = server(config, clients, settings).await?;
    let answer = move |request| answer(server.clone(), hosts.clone(), request);
    port.serve_streams(answer).context("starting the HTTP server for pages")
}

/// The server as deployed, except that loopback origins are allowed.
async fn server(
    config: &str,
    clients: &Clients,
    settings: Settings,
) -> anyhow::Result<(Arc<Server>, Arc<HostAliases>)> {
    let mut config = with_local_names(config).context("adding loopback host names to the configuration")?;
    config::read_secrets(&mut config, Sends::Passes).await?;
    let hosts = Arc::new(HostAliases::of(&config));
    Ok((Arc::new(Server::new(config, settings, clients).with_loopback_origins()), hosts))
}

async fn answer(
    server: Arc<Server>,
    hosts: Arc<HostAliases>,
    mut request: http::Request<Bytes>,
) -> http::Response<ResponseBody> {
    let Served { reply, stream, enqueues } = server.serve(&hosts.request(&request)).await;
    // Unlike a Lambda function, this process is not frozen after the reply.
    tokio::spawn(async move {
        server.finish(enqueues).await;
        // Metrics are not reported here and must not accumulate.
        server.take_metrics();
    });
    let mut response = http::Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    let body = match stream {
        None => full(reply.body),
        Some(Stream { body, upgraded: None }) => body.map_err(Into::into).boxed_unsync(),
        Some(Stream { upgraded: Some(origin), .. }) => {
            tokio::spawn(connect(hyper::upgrade::on(&mut request), origin));
            full(Bytes::new())
        }
    };
    response.body(body).unwrap_or_else(|error| {
        tracing::error!(%error, "HTTP response cannot be built; answered 500");
        let mut response = http::Response::new(full(Bytes::new()));
        *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// Copies between the visitor's connection and the origin's until one side closes: a WebSocket.
async fn connect(visitor: hyper::upgrade::OnUpgrade, origin: hyper::upgrade::Upgraded) {
    match visitor.await {
        Ok(visitor) => {
            let (mut visitor, mut origin) = (TokioIo::new(visitor), TokioIo::new(origin));
            // Either side may end at any time.
            if let Err(error) = tokio::io::copy_bidirectional(&mut visitor, &mut origin).await {
                tracing::debug!(%error, "WebSocket closed");
            }
        }
        Err(error) => tracing::warn!(%error, "the connection of a WebSocket could not be taken over"),
    }
}

/// The configuration with loopback host names added to each tenant, because the tenant's own hosts
/// resolve to other machines: `<tenant>.localhost`, and the loopback names if there is one tenant.
/// They are hosts like any other: a signed request is signed for the name that the client uses.
fn with_local_names(text: &str) -> anyhow::Result<Config> {
    let config = Config::parse(text)?;
    let loopback = if config.tenants().count() == 1 { &LOOPBACK[..] } else { &[] };
    let mut file: toml::Table = text.parse()?;
    for tenant in config.tenants() {
        let names = std::iter::once(local_name(&tenant.tenant)).chain(loopback.iter().map(|&name| name.to_owned()));
        // The file may already give a name to a tenant.
        let names = names.filter(|name| host_name(name).is_some() && config.tenant_of_host(name).is_none());
        let in_file = file.get_mut("tenant").and_then(|tenants| tenants.get_mut(tenant.tenant.as_str()));
        let hosts = in_file.and_then(|tenant| tenant.get_mut("hosts")).and_then(toml::Value::as_array_mut);
        hosts.context("a tenant without hosts")?.extend(names.map(toml::Value::from));
    }
    Ok(Config::parse(&file.to_string())?)
}

fn local_name(tenant: &Tenant) -> String {
    format!("{tenant}.localhost")
}

/// Names of this machine that are not valid host names, with the configured host of each. A
/// signature for such a name never verifies.
struct HostAliases(Vec<(String, String)>);

impl HostAliases {
    fn of(config: &Config) -> Self {
        let mut aliases = vec![(LOOPBACK_V6.to_owned(), LOOPBACK[0].to_owned())];
        for tenant in config.tenants() {
            // A tenant name with an underscore is not a valid host name.
            let name = local_name(&tenant.tenant);
            if host_name(&name).is_none() {
                aliases.push((name, tenant.hosts.first().cloned().unwrap_or_default()));
            }
        }
        Self(aliases)
    }

    fn request(&self, request: &http::Request<Bytes>) -> Request {
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let names = request.headers().keys();
        let mut headers: Vec<(String, String)> = names
            .map(|name| {
                let values: Vec<String> = request.headers().get_all(name).iter().map(text).collect();
                (name.as_str().to_owned(), values.join(", "))
            })
            .collect();
        // HTTP/2 sends the host as the authority, which takes precedence over `Host`.
        if let Some(authority) = request.uri().authority() {
            headers.retain(|(name, _)| name != "host");
            headers.push(("host".to_owned(), authority.to_string()));
        }
        for (name, value) in &mut headers {
            if name == "host"
                && let Some(host) = self.resolve(value)
            {
                *value = host.to_owned();
            }
        }
        let cookies = request.headers().get_all("cookie").iter().map(text);
        let cookies = cookies.flat_map(|line| line.split(';').map(|part| part.trim().to_owned()).collect::<Vec<_>>());
        Request {
            method: request.method().as_str().to_owned(),
            target: request.uri().path_and_query().map_or("/", |target| target.as_str()).to_owned(),
            cookies: cookies.collect(),
            body: request.body().clone(),
            headers,
            // Only programs of this machine can connect.
            client: Some("127.0.0.1".to_owned()),
            is_encrypted: false,
            is_upgrade: request.extensions().get::<hyper::upgrade::OnUpgrade>().is_some()
                && request.headers().contains_key("upgrade"),
        }
    }

    /// The configured host of an alias. Other names are left alone; the server refuses unknown
    /// ones.
    fn resolve(&self, host: &str) -> Option<&str> {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) | None => host,
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        self.0.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map(|(_, host)| host.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everfresh_core::clients::ClientTimeouts;
    use everfresh_core::clock::Clock;
    use everfresh_local::engines::Engines;
    use everfresh_local::faults::Faults;
    use everfresh_local::in_process::InProcess;
    use everfresh_local::stack;

    fn config(tenants: &[&str]) -> Config {
        let text: String = tenants
            .iter()
            .map(|name| {
                format!("[tenant.{name}]\nhosts = [\"www.{name}.example\"]\nrender = {{ templates = \"site/\" }}\n")
            })
            .collect();
        with_local_names(&text).unwrap()
    }

    /// The tenant that a `Host` header selects.
    fn reached<'c>(config: &'c Config, host: &str) -> Option<&'c str> {
        let hosts = HostAliases::of(config);
        let tenant = config.tenant_of_host(hosts.resolve(host).unwrap_or(host));
        tenant.map(|tenant| tenant.tenant.as_str())
    }

    #[tokio::test]
    async fn unreported_metrics_do_not_accumulate() {
        let engines = Engines::memory(Clock::system()).await.unwrap();
        let clients = InProcess::new(engines, Faults::none()).clients(Clock::system(), ClientTimeouts::READER);
        let stack = stack::provision(&clients, 60).await.unwrap();
        let config = "[tenant.acme]\nhosts = [\"www.acme.example\"]\nrender = { templates = \"site/\" }\n";
        let mut settings = crate::settings::Settings::from_env().unwrap();
        settings.provide(&stack, "everfresh.toml".to_owned());
        let (server, hosts) = server(config, &clients, settings.serving).await.unwrap();
        for _ in 0..3 {
            let request = http::Request::builder().uri("/nowhere").header("host", "localhost");
            let response = answer(server.clone(), hosts.clone(), request.body(Bytes::new()).unwrap()).await;
            assert_eq!(response.status(), 404);
        }
        // Wait for the tasks that run after the replies.
        while Arc::strong_count(&server) > 1 {
            tokio::task::yield_now().await;
        }
        assert!(server.take_metrics().is_empty());
    }

    #[test]
    fn loopback_names_reach_the_only_tenant() {
        let one = config(&["acme"]);
        for name in ["localhost", "localhost:3000", "127.0.0.1:3000", "[::1]:3000", "[::1]", "acme.localhost:3000"]
            .into_iter()
            .chain(["LOCALHOST:3000", "localhost.", "localhost.:3000", "Acme.Localhost.", "www.acme.example"])
        {
            assert_eq!(reached(&one, name), Some("acme"), "{name}");
        }
        for name in
            ["evil.example", "127.0.0.1.evil.example", "xlocalhost", "", ":", "]:", "localhost:abc", "[::1]:abc"]
                .into_iter()
                .chain([
                    "localhost:3000:3000",
                    "localhost..",
                    "user@localhost",
                    "[::1]x",
                    "acme.localhost.evil.example",
                ])
        {
            assert_eq!(reached(&one, name), None, "{name}");
        }
    }

    #[test]
    fn configured_host_stays_first_for_origins() {
        let one = config(&["acme"]);
        let hosts = &one.tenants().next().unwrap().hosts;
        assert_eq!(hosts, &["www.acme.example", "acme.localhost", "localhost", "127.0.0.1"]);
    }

    #[test]
    fn tenant_with_underscore_is_reached_by_its_local_name() {
        let text = "[tenant.my_shop]\nhosts = [\"a.example\"]\nrender = { templates = \"site/\" }\n";
        let config = with_local_names(text).unwrap();
        for name in ["my_shop.localhost:3000", "a.example", "localhost"] {
            assert_eq!(reached(&config, name), Some("my_shop"), "{name}");
        }
    }

    #[test]
    fn loopback_names_in_the_file_keep_their_tenant() {
        let text = "[tenant.a]\nhosts = [\"b.localhost\", \"localhost\"]\nrender = { templates = \"site/\" }\n\
                    [tenant.b]\nhosts = [\"b.example\"]\nrender = { templates = \"site/\" }\n";
        let two = with_local_names(text).unwrap();
        for name in ["b.localhost", "localhost", "a.localhost", "[::1]"] {
            assert_eq!(reached(&two, name), Some("a"), "{name}");
        }
        assert_eq!(reached(&two, "b.example"), Some("b"));
    }

    #[test]
    fn http_2_authority_takes_precedence_over_host() {
        let one = config(&["acme"]);
        let request = http::Request::builder().uri("http://localhost:3000/about").header("host", "evil.example");
        let request = HostAliases::of(&one).request(&request.body(Bytes::new()).unwrap());
        assert_eq!((request.header("host"), request.target.as_str()), (Some("localhost:3000"), "/about"));
        assert_eq!(request.headers.len(), 1);
    }

    #[test]
    fn several_tenants_are_reached_by_name() {
        let two = config(&["acme", "globex"]);
        assert_eq!(reached(&two, "globex.localhost:3000"), Some("globex"));
        assert_eq!(reached(&two, "localhost:3000"), None);
    }
}
