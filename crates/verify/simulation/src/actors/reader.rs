//! Readers of the serving function, one instance after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everfresh_core::clients::ClientTimeouts;
use everfresh_core::domain::page_key::PageKey;
use everfresh_serve::http::Reply;
use everfresh_serve::http::request::Request;
use everfresh_serve::{Served, Server, Settings};

use super::pause;
use crate::faults::RunFault;
use crate::run::Sim;

/// Reads after the chaos phase.
const CALM_READS: u32 = 6;

/// Reads during the chaos phase and for some time after it.
pub(crate) async fn reader(sim: Arc<Sim>, index: u64) {
    let mut rng = sim.rng(200 + index);
    let mut memory = Memory::default();
    let Some(mut server) = instance(&sim, &mut rng, &memory) else { return };
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
            memory = Memory::default();
            let Some(fresh) = instance(&sim, &mut rng, &memory) else { return };
            server = fresh;
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
        memory.check(&sim, &page, &reply);
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
    /// The paths of the bodies that it has requested.
    bodies: Arc<Mutex<BTreeSet<String>>>,
}

impl Memory {
    fn check(&mut self, sim: &Sim, key: &PageKey, reply: &Reply) {
        let page = &key.to_string();
        let status = reply.header("cache-status").unwrap_or_default();
        // Purged, withdrawn, or the site says that the page does not exist.
        if matches!(reply.status, 404 | 410) || status.contains("fwd=bypass") {
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
        sim.checker.served(page, version, &self.versions(key));
        self.served.insert(page.to_owned(), version.to_owned());
    }

    /// The versions of the page whose bodies the instance has requested.
    fn versions(&self, page: &PageKey) -> BTreeSet<String> {
        let start = format!("/{}/{}/", page.tenant(), page.hash());
        let bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.iter().filter_map(|path| path.split_once(&start)).map(|(_, version)| version.to_owned()).collect()
    }
}

fn instance(sim: &Sim, rng: &mut fastrand::Rng, memory: &Memory) -> Option<Server> {
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
    let faults = sim.faults(rng.u64(..));
    let connection = sim.wire.connect_instance(faults, memory.bodies.clone());
    let clients = connection.clients(sim.clock.skewed_by_ms(skew_ms), ClientTimeouts::READER);
    Some(Server::new(sim.config.clone(), settings.ok()?, &clients))
}
