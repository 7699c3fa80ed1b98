//! `dev`'s front door: the serving side on a loopback port, for a browser.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use everfresh_core::clients::Clients;
use everfresh_core::config::Config;
use everfresh_core::stack::Stack;
use everfresh_local::gateway::{Gateway, Port};
use everfresh_serve::request::Request;
use everfresh_serve::{Served, Server, Settings};

/// Names by which a browser on this machine reaches it.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Serves the pages of `config` on `port`.
pub(crate) fn open(port: Port, config: Config, clients: &Clients, stack: &Stack) -> anyhow::Result<Gateway> {
    let (server, hosts) = server(config, clients, stack)?;
    let answer = move |request| answer(server.clone(), hosts.clone(), request);
    port.serve_with(answer).context("serving readers")
}

/// The serving side as a deployment has it, and the names by which this machine reaches it.
fn server(config: Config, clients: &Clients, stack: &Stack) -> anyhow::Result<(Arc<Server>, Arc<Hosts>)> {
    let settings = Settings::read(|variable| {
        Some(match variable {
            // Loaded already.
            "EVERFRESH_CONFIG" => "everfresh.toml".to_owned(),
            "FACETHEORY_CACHE_TABLE_NAME" => stack.table.clone(),
            "EVERFRESH_BUCKET" => stack.bucket.clone(),
            "EVERFRESH_QUEUE_URL" => stack.queue.clone(),
            "EVERFRESH_DEBUG_HEADER" => "true".to_owned(),
            "EVERFRESH_PREVIEW_KEYS" | "EVERFRESH_REVALIDATE_KEYS" => return std::env::var(variable).ok(),
            _ => return None,
        })
    })?;
    let hosts = Arc::new(Hosts::of(&config));
    Ok((Arc::new(Server::new(config, settings, clients)), hosts))
}

async fn answer(server: Arc<Server>, hosts: Arc<Hosts>, request: http::Request<Bytes>) -> http::Response<Bytes> {
    let Served { reply, wish } = server.serve(&hosts.request(&request)).await;
    // Nobody freezes this process, so it may be done beside the reply.
    tokio::spawn(async move {
        server.finish(wish).await;
        // Nobody reads the figures here, and they must not pile up.
        server.take_metrics();
    });
    let mut response = http::Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(reply.body).unwrap_or_else(|error| {
        tracing::error!(%error, "an answer cannot be written");
        let mut response = http::Response::default();
        *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// How a tenant is reached from this machine, where its own names lead elsewhere.
struct Hosts {
    /// The tenant behind the loopback names, if there is but one.
    only: Option<String>,
    /// `<tenant>.localhost` for each, and its first own name.
    local: Vec<(String, String)>,
}

impl Hosts {
    fn of(config: &Config) -> Self {
        let first = |tenant: &everfresh_core::config::TenantConfig| tenant.hosts.first().cloned().unwrap_or_default();
        let local: Vec<_> =
            config.tenants().map(|tenant| (format!("{}.localhost", tenant.tenant), first(tenant))).collect();
        let only = match local.as_slice() {
            [(_, host)] => Some(host.clone()),
            _ => None,
        };
        Self { only, local }
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
        for (name, value) in &mut headers {
            if name == "host"
                && let Some(host) = self.own_name(value)
            {
                *value = host;
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
        }
    }

    /// The tenant's own name for a name of this machine. Every other name stays what it is, and is refused if nobody has it.
    fn own_name(&self, host: &str) -> Option<String> {
        let end_of_name = host.rfind(']').map_or(0, |at| at + 1);
        let name = match host[end_of_name..].split_once(':') {
            Some((name, _port)) => &host[..end_of_name + name.len()],
            None => host,
        };
        if LOOPBACK.contains(&name) {
            return self.only.clone();
        }
        self.local.iter().find(|(local, _)| local == name).map(|(_, host)| host.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everfresh_core::clients::Patience;
    use everfresh_core::clock::Clock;
    use everfresh_local::engines::Engines;
    use everfresh_local::faults::Faults;
    use everfresh_local::in_process::InProcess;
    use everfresh_local::stack;

    fn hosts(tenants: &[&str]) -> Hosts {
        let text: String = tenants
            .iter()
            .map(|name| {
                format!("[tenant.{name}]\nhosts = [\"www.{name}.example\"]\nrender = {{ templates = \"site/\" }}\n")
            })
            .collect();
        Hosts::of(&Config::parse(&text).unwrap())
    }

    #[tokio::test]
    async fn figures_that_nobody_reads_do_not_pile_up() {
        let engines = Engines::memory(Clock::system()).await.unwrap();
        let clients = InProcess::new(engines, Faults::none()).clients(Clock::system(), Patience::READER);
        let stack = stack::provision(&clients, 60).await.unwrap();
        let config = "[tenant.acme]\nhosts = [\"www.acme.example\"]\nrender = { templates = \"site/\" }\n";
        let config = Config::parse(config).unwrap();
        let (server, hosts) = server(config, &clients, &stack).unwrap();
        for _ in 0..3 {
            let request = http::Request::builder().uri("/nowhere").header("host", "localhost");
            let response = answer(server.clone(), hosts.clone(), request.body(Bytes::new()).unwrap()).await;
            assert_eq!(response.status(), 404);
        }
        // What is done beside the replies ends when it is let.
        while Arc::strong_count(&server) > 1 {
            tokio::task::yield_now().await;
        }
        assert!(server.take_metrics().is_empty());
    }

    #[test]
    fn loopback_names_reach_the_only_tenant() {
        let one = hosts(&["acme"]);
        for name in ["localhost", "localhost:3000", "127.0.0.1:3000", "[::1]:3000", "[::1]", "acme.localhost:3000"] {
            assert_eq!(one.own_name(name).as_deref(), Some("www.acme.example"), "{name}");
        }
        for name in ["evil.example", "www.acme.example", "127.0.0.1.evil.example", "xlocalhost", "", ":", "]:"] {
            assert_eq!(one.own_name(name), None, "{name}");
        }
    }

    #[test]
    fn several_tenants_are_reached_by_their_names() {
        let two = hosts(&["acme", "globex"]);
        assert_eq!(two.own_name("globex.localhost:3000").as_deref(), Some("www.globex.example"));
        assert_eq!(two.own_name("localhost:3000"), None);
    }
}
