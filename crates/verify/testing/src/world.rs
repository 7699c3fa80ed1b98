//! The stack around the functions: engines, clock, clients, configuration.

use std::time::{Duration, UNIX_EPOCH};

use everfresh_core::clients::{ClientTimeouts, Clients};
use everfresh_core::clock::Clock;
use everfresh_core::config::{Config, Ladder};
use everfresh_core::domain::page_key::{KeyLayout, PageKey, Tenant};
use everfresh_core::ledger::Ledger;
use everfresh_core::notifier::NotifierSettings;
use everfresh_core::stack::Stack;
use everfresh_local::engines::Engines;
use everfresh_local::faults::Faults;
use everfresh_local::in_process::InProcess;
use everfresh_local::stack;

use crate::{Make, Origin, Sandbox};

/// AWS time at the start of a test.
pub const START_MS: u64 = 1_763_270_000_000;

/// Timeouts of the tests: as in production, with a shorter function timeout.
pub fn ladder() -> Ladder {
    Ladder {
        render_deadline_ms: 50_000,
        function_timeout_ms: 60_000,
        claim_expiry_ms: 65_000,
        visibility_ms: 400_000,
        ..Ladder::default()
    }
}

/// Two tenants: routes with revalidation, with history and with a publish gate.
pub const CONFIG: &str = r#"
[tenant.acme]
hosts  = ["www.acme.example"]
render = { templates = "site/" }

[[tenant.acme.route]]
path       = "/products/{id}"
revalidate = "60s"
max_stale  = "1d"
tags       = ["products", "product-{id}"]

[[tenant.acme.route]]
path       = "/kept/{id}"
revalidate = "60s"
history    = 10

[[tenant.acme.route]]
path       = "/strict"
revalidate = "60s"
gate       = { min_bytes = 20, max_shrink = 0.5, must_contain = "</html>" }

[tenant.globex]
hosts  = ["globex.example"]
render = { templates = "site/" }

[[tenant.globex.route]]
path       = "/products/{id}"
revalidate = "60s"
"#;

/// A stack in memory, without functions.
#[derive(Debug)]
pub struct World {
    /// DynamoDB, S3 and SQS.
    pub engines: Engines,
    /// AWS time.
    pub clock: Clock,
    /// Clients without faults.
    pub clean: Clients,
    /// Names of table, bucket and queues.
    pub stack: Stack,
    /// The site of every tenant.
    pub origin: Origin,
    /// The configuration of new sandboxes and instances.
    pub config: Config,
    /// The notifier of new sandboxes; by default without targets.
    pub notifier: NotifierSettings,
}

impl World {
    /// An empty world with [`CONFIG`].
    pub async fn new() -> Self {
        Self::with_config(CONFIG).await
    }

    /// An empty world with this configuration.
    pub async fn with_config(config: &str) -> Self {
        let started = tokio::time::Instant::now();
        let clock = Clock::new(move || UNIX_EPOCH + Duration::from_millis(START_MS) + started.elapsed());
        let engines = Engines::memory(clock.clone()).await.unwrap();
        let clean = InProcess::new(engines.clone(), Faults::none()).clients(clock.clone(), ClientTimeouts::WORKER);
        let visibility_s = u32::try_from(ladder().visibility_ms / 1000).unwrap();
        let stack = stack::provision(&clean, visibility_s).await.unwrap();
        let config = Config::parse(config).unwrap();
        Self { engines, clock, clean, stack, origin: Origin::default(), config, notifier: NotifierSettings::default() }
    }

    /// A sandbox with default options.
    pub async fn sandbox(&self) -> Sandbox {
        self.sandbox_with(Make::default())
    }

    pub fn sandbox_with(&self, make: Make) -> Sandbox {
        self.sandbox_on(make, self.clock.skewed_by_ms(make.skew_ms))
    }

    /// A sandbox with this clock instead of `make.skew_ms`.
    pub fn sandbox_on(&self, make: Make, clock: Clock) -> Sandbox {
        Sandbox::new(self, make, clock)
    }

    /// A ledger without faults.
    pub fn ledger(&self) -> Ledger {
        Ledger::new(&self.clean, &self.stack.table, KeyLayout::default())
    }

    /// An acme page.
    pub fn page(&self, path: &str) -> PageKey {
        let acme = self.config.tenant(&Tenant::parse("acme").unwrap()).unwrap();
        acme.resolve(path).unwrap().page
    }

    /// The partition of an acme page.
    pub fn pk(&self, path: &str) -> String {
        self.page(path).pk(KeyLayout::default())
    }

    /// The present AWS time.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }
}
