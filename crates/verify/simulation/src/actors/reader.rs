//! Readers of the serving function, one instance after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everfresh_core::clients::ClientTimeouts;
use everfresh_serve::http::Reply;
use everfresh_serve::http::request::Request;
use everfresh_serve::{Served, Server, Settings};

use super::pause;
use crate::check::Actor;
use crate::faults::RunFault;
use crate::run::Sim;

/// Reads after the chaos phase.
const CALM_READS: u32 = 6;

/// Reads during the chaos phase and for some time after it.
pub(crate) async fn reader(sim: Arc<Sim>, index: u64) {
    let mut rng = sim.rng(200 + index);
    let Some(mut server) = instance(&sim, &mut rng) else { return };
    let mut memory = Memory::default();
    let mut calm_reads = 0;
    while calm_reads < CALM_READS {
        if sim.is_calm() {
            calm_reads += 1;
            tokio::time::sleep(Duration::from_secs(60)).await;
        } else {
            pause(&sim, &mut rng, 200, 15_000).await;
        }
        if rng.u8(0..30) == 0 {
            sim.count_fault(RunFault::InstanceReplaced);
            let Some(fresh) = instance(&sim, &mut rng) else { return };
            (server, memory) = (fresh, Memory::default());
        }
        let page = sim.pages.any(&mut rng).clone();
        let Some(host) = sim.config.tenant(page.tenant()).and_then(|tenant| tenant.hosts.first().cloned()) else {
            return;
        };
        let request = Request {
            method: "GET".to_owned(),
            target: page.path().as_str().to_owned(),
            headers: vec![("host".to_owned(), host)],
            ..Request::default()
        };
        let Served { reply, enqueues, .. } = server.serve(&request).await;
        sim.count_read();
        let name = page.to_string();
        sim.checker.read(&name, reply.status, &reply.body, memory.served.get(&name).map(String::as_str));
        memory.check(&sim, &name, &reply);
        server.finish(enqueues).await;
    }
}

/// What an instance has served, and what it has seen taken down.
#[derive(Default)]
struct Memory {
    /// The last version of each page that was served.
    served: BTreeMap<String, String>,
    /// The last version that was served before the page was seen taken down.
    withdrawn: BTreeMap<String, String>,
}

impl Memory {
    fn check(&mut self, sim: &Sim, page: &str, reply: &Reply) {
        let status = reply.header("cache-status").unwrap_or_default();
        if reply.status == 410 || status.contains("fwd=bypass") {
            if let Some(served) = self.served.remove(page) {
                self.withdrawn.insert(page.to_owned(), served);
            }
            return;
        }
        let debug = reply.header("x-everfresh-debug").unwrap_or_default();
        let version = debug.split("version=").nth(1).and_then(|rest| rest.split(';').next());
        // A foreign row has no version.
        let Some(version) = version.filter(|version| reply.status == 200 && *version != "foreign") else { return };
        if let Some(before) = self.withdrawn.get(page) {
            sim.checker.served_after_withdrawal(page, version, before);
        }
        self.served.insert(page.to_owned(), version.to_owned());
    }
}

fn instance(sim: &Sim, rng: &mut fastrand::Rng) -> Option<Server> {
    let stack = &sim.queues.stack;
    let settings = Settings::read(|variable| {
        Some(match variable {
            "EVERFRESH_CONFIG" => "unused".to_owned(),
            "FACETHEORY_CACHE_TABLE_NAME" => stack.table.clone(),
            "EVERFRESH_BUCKET" => stack.bucket.clone(),
            "EVERFRESH_QUEUE_URL" => stack.queue.clone(),
            "EVERFRESH_DEPLOY" => "1".to_owned(),
            // Names the version that was served.
            "EVERFRESH_DEBUG_HEADER" => "true".to_owned(),
            _ => return None,
        })
    });
    let skew_ms = rng.i64(-60_000..=60_000);
    let clients = sim.clients(Actor::Server, rng.u64(..), sim.clock.skewed_by_ms(skew_ms), ClientTimeouts::READER);
    Some(Server::new(sim.config.clone(), settings.ok()?, &clients))
}
