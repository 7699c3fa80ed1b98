//! One instance of the serving function.

use std::sync::Arc;

use everfresh_core::clients::ClientTimeouts;
use everfresh_core::metrics::{Metric, Metrics};
use everfresh_local::faults::{Fault, Faults, On};
use everfresh_local::in_process::InProcess;
use everfresh_serve::http::reply::Reply;
use everfresh_serve::http::request::Request;
use everfresh_serve::{Served, Server, Settings};

use crate::{Sandbox, World};

/// One instance of the serving function, with its own faults.
#[derive(Clone, Debug)]
pub struct Instance {
    pub server: Arc<Server>,
    /// Its connection to the services: injects faults and counts calls.
    pub way: InProcess,
}

impl World {
    /// An instance with default settings.
    pub fn instance(&self) -> Instance {
        self.instance_with(|_| {})
    }

    /// An instance with changed settings.
    pub fn instance_with(&self, change: impl FnOnce(&mut Settings)) -> Instance {
        self.instance_on(InProcess::new(self.engines.clone(), Faults::none()), change)
    }

    /// An instance with changed settings on the given connection.
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

/// A world with an acme page that was just published, the sandbox that published it, and an
/// instance that has not read it yet.
pub async fn published(path: &str) -> (World, Sandbox, Instance) {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(path).await;
    sandbox.invoke().await;
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
    /// Serves the request and then does the work after the reply, as the function does.
    pub async fn serve(&self, request: &Request) -> Reply {
        let Served { reply, enqueues, .. } = self.server.serve(request).await;
        self.server.finish(enqueues).await;
        reply
    }

    /// As [`Self::serve`], with the whole body of a passed answer.
    pub async fn whole(&self, request: &Request) -> Reply {
        let served = self.server.serve(request).await;
        let (reply, enqueues) = self.server.buffered(served).await;
        self.server.finish(enqueues).await;
        reply
    }

    /// Serves a GET of an acme page.
    pub async fn get(&self, path: &str) -> Reply {
        self.serve(&get(path)).await
    }

    /// Injects a fault into calls of this instance.
    pub fn inject(&self, on: On, fault: Fault) {
        self.way.faults().inject(on, fault);
    }

    /// The AWS operations called so far.
    pub fn operations(&self) -> Vec<String> {
        self.way.calls().into_iter().map(|call| call.operation).collect()
    }

    /// The metrics since the last call.
    pub fn metrics(&self) -> Metrics {
        self.server.take_metrics()
    }

    /// The total of a metric since the last call of [`Self::metrics`] or this method.
    pub fn total(&self, metric: Metric) -> u64 {
        self.metrics().total(metric)
    }
}

/// The body as text.
pub fn body(reply: &Reply) -> String {
    String::from_utf8(reply.body.to_vec()).unwrap()
}

/// The `Cache-Status` header without its prefix.
pub fn cache_status(reply: &Reply) -> &str {
    reply.header("cache-status").unwrap_or_default().strip_prefix("everfresh; ").unwrap_or_default()
}
