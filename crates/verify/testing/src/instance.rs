//! One instance of the serving side.

use std::sync::Arc;

use everfresh_core::clients::ClientTimeouts;
use everfresh_core::metrics::{Metric, Metrics};
use everfresh_local::faults::{Fault, Faults, On};
use everfresh_local::in_process::InProcess;
use everfresh_serve::reply::Reply;
use everfresh_serve::request::Request;
use everfresh_serve::{Served, Server, Settings};

use crate::{Sandbox, World};

/// One instance of the serving side, with faults of its own.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The server itself.
    pub server: Arc<Server>,
    /// Its way to the services.
    pub way: InProcess,
}

impl World {
    /// An instance of the usual kind.
    pub fn instance(&self) -> Instance {
        self.instance_with(|_| {})
    }

    /// An instance whose settings differ.
    pub fn instance_with(&self, change: impl FnOnce(&mut Settings)) -> Instance {
        self.instance_on(InProcess::new(self.engines.clone(), Faults::none()), change)
    }

    /// The same with a way to the services of its own.
    pub fn instance_on(&self, way: InProcess, change: impl FnOnce(&mut Settings)) -> Instance {
        let clients = way.clients(self.clock.clone(), ClientTimeouts::READER);
        let settings = Settings::read(|variable| {
            Some(match variable {
                "EVERFRESH_CONFIG" => "unused".to_owned(),
                "FACETHEORY_CACHE_TABLE_NAME" => self.stack.table.clone(),
                "EVERFRESH_BUCKET" => self.stack.bucket.clone(),
                "EVERFRESH_QUEUE_URL" => self.stack.queue.clone(),
                "EVERFRESH_DEPLOY" => "1".to_owned(),
                _ => return None,
            })
        });
        let mut settings = settings.unwrap();
        change(&mut settings);
        let server = Server::new(self.config.clone(), settings, &clients).with_loopback_origins();
        Instance { server: Arc::new(server), way }
    }
}

/// A world in which an acme page was published just now, the sandbox that did it, and an instance that has not seen it yet.
pub async fn published(path: &str) -> (World, Sandbox, Instance) {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(path).await;
    sandbox.turn().await;
    let instance = world.instance();
    (world, sandbox, instance)
}

/// A GET of an acme page.
pub fn get(path: &str) -> Request {
    Request {
        method: "GET".to_owned(),
        target: path.to_owned(),
        headers: vec![("host".to_owned(), "www.acme.example".to_owned())],
        ..Request::default()
    }
}

impl Instance {
    /// Answers, and then does what the visit leaves, as the function does.
    pub async fn serve(&self, request: &Request) -> Reply {
        let Served { reply, wish } = self.server.serve(request).await;
        self.server.finish(wish).await;
        reply
    }

    /// A reader of an acme page.
    pub async fn get(&self, path: &str) -> Reply {
        self.serve(&get(path)).await
    }

    /// Makes a call of this instance go wrong.
    pub fn inject(&self, on: On, fault: Fault) {
        self.way.faults().inject(on, fault);
    }

    /// The operations that this instance has sent so far.
    pub fn operations(&self) -> Vec<String> {
        self.way.calls().into_iter().map(|call| call.operation).collect()
    }

    /// What it has counted since the last time it was asked.
    pub fn metrics(&self) -> Metrics {
        self.server.take_metrics()
    }

    /// One of these figures.
    pub fn total(&self, metric: Metric) -> u64 {
        self.metrics().total(metric)
    }
}

/// The body as text.
pub fn body(reply: &Reply) -> String {
    String::from_utf8(reply.body.to_vec()).unwrap()
}

/// What the answer says about how it was come by.
pub fn cache_status(reply: &Reply) -> &str {
    reply.header("cache-status").unwrap_or_default().strip_prefix("everfresh; ").unwrap_or_default()
}
