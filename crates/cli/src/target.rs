//! Which Everfresh a command talks to: the `dev` that runs on this machine, or a stack on AWS that was named. Never one by accident.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use aws_types::SdkConfig;
use everfresh_core::clients::{ClientTimeouts, Clients, Explicit, Network, aws_sdk_config, plain_http_client};
use everfresh_core::clock::Clock;
use everfresh_core::config::{Config, Ladder};
use everfresh_core::domain::artifact::locate;
use everfresh_core::domain::page_key::{KeyLayout, Tenant};
use everfresh_core::ledger::Ledger;
use everfresh_core::stack::Stack;
use everfresh_enqueue::explain;
use everfresh_local::data_dir::DataDir;
use serde::{Deserialize, Serialize};

use crate::args::TargetArgs;
use crate::config;
use crate::output::note;

/// An Everfresh that can be talked to.
pub(crate) struct Target {
    pub(crate) clients: Clients,
    pub(crate) stack: Stack,
    /// For people: which one it is.
    pub(crate) name: String,
    /// How its table's keys are laid out.
    pub(crate) layout: KeyLayout,
    /// The deployment that it runs: pages of an older one are stale.
    pub(crate) deploy: u64,
    /// Moments closer than this are not told apart.
    pub(crate) epsilon_ms: u64,
    /// Where the configuration is that it goes by: a file, or `s3://bucket/key`.
    config: String,
}

/// What a running `dev` writes into its data folder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Endpoints {
    /// Where DynamoDB, S3 and SQS answer.
    pub(crate) aws: String,
    /// Where readers get their pages.
    pub(crate) pages: String,
    pub(crate) region: String,
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    pub(crate) stack: Stack,
    /// The configuration that the worker goes by.
    pub(crate) config: PathBuf,
    /// How the table's keys are laid out.
    pub(crate) single_tenant: bool,
    pub(crate) raw_keys: bool,
    /// The deployment's number.
    pub(crate) deploy: u64,
    pub(crate) epsilon_ms: u64,
}

impl Target {
    /// Finds it, and says on standard error which one it is.
    pub(crate) async fn resolve(args: &TargetArgs) -> anyhow::Result<Self> {
        let mut target = match &args.stack {
            Some(name) => Self::on_aws(name).await?,
            None => Self::on_this_machine(&args.data)?,
        };
        if let Some(file) = &args.config {
            target.config = file.display().to_string();
        }
        note!("→ {}", target.name);
        Ok(target)
    }

    /// The configuration that its worker goes by.
    pub(crate) async fn config(&self) -> anyhow::Result<Config> {
        if !self.config.starts_with("s3://") {
            return config::load(Path::new(&self.config));
        }
        let loaded = Config::load(&self.config, self.layout, &self.clients).await;
        loaded.with_context(|| format!("{}: or name its configuration with --config FILE", self.name))
    }

    /// The ledger, as its functions see it.
    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::new(&self.clients, &self.stack.table, self.layout)
    }

    /// Where the object is that a row's `s3_key` stands for; or why it stands for none.
    pub(crate) fn shown_object(&self, tenant: &Tenant, s3_key: &str) -> String {
        let bucket = &self.stack.bucket;
        match locate(s3_key, bucket, tenant, self.layout) {
            Ok(key) => format!("s3://{bucket}/{key}"),
            Err(refusal) => format!("{s3_key} (not read: {refusal})"),
        }
    }

    fn on_this_machine(data: &Path) -> anyhow::Result<Self> {
        let folder = data.display();
        if !DataDir::is_in_use(data) {
            bail!(
                "no `everfresh dev` is running on {folder}: start one with `everfresh dev`, or name a deployed stack with --stack NAME"
            );
        }
        let file = DataDir::endpoints_file(data);
        let json = DataDir::read_endpoints(data).with_context(|| {
            format!("`everfresh dev` on {folder} is still starting: {} is not there yet", file.display())
        })?;
        let endpoints: Endpoints = serde_json::from_str(&json)
            .with_context(|| format!("{} cannot be read: restart `everfresh dev`", file.display()))?;
        let name = format!("dev in {folder} at {}", endpoints.aws);
        let clients = Clients::explicit(Explicit {
            http: plain_http_client(),
            endpoint: endpoints.aws,
            region: endpoints.region,
            access_key: endpoints.access_key,
            secret_key: endpoints.secret_key,
            timeouts: ClientTimeouts::WORKER,
            clock: Clock::system(),
            retry_partition: None,
        });
        let Endpoints { stack, single_tenant, raw_keys, deploy, epsilon_ms, .. } = endpoints;
        let config = endpoints.config.display().to_string();
        Ok(Self { clients, stack, name, layout: KeyLayout { single_tenant, raw_keys }, deploy, epsilon_ms, config })
    }

    async fn on_aws(name: &str) -> anyhow::Result<Self> {
        let config = aws_sdk_config(ClientTimeouts::WORKER, Network::Workstation).await;
        let Some(region) = config.region().cloned() else {
            bail!("--stack {name}: no AWS region is set: set AWS_REGION, or `region` in your AWS profile");
        };
        describe(&config, name, format!("AWS stack {name} in {region}")).await
    }
}

/// Reads the stack's outputs, and those of its parameters by which its functions see the table.
async fn describe(config: &SdkConfig, name: &str, known_as: String) -> anyhow::Result<Target> {
    let cloudformation = aws_sdk_cloudformation::Client::new(config);
    let described = cloudformation.describe_stacks().stack_name(name).send().await;
    let described = described
        .map_err(|error| anyhow!("--stack {name}: CloudFormation did not describe it: {}", explain(&error)))?;
    let stack = described.stacks().first().with_context(|| format!("--stack {name}: no such stack"))?;
    let output = |key: &str| {
        let found = stack.outputs().iter().find(|output| output.output_key() == Some(key));
        let value = found.and_then(|output| output.output_value()).map(str::to_owned);
        value.with_context(|| format!("--stack {name}: it has no output `{key}`, so it is not an Everfresh stack"))
    };
    let parameter = |key: &str| {
        let found = stack.parameters().iter().find(|parameter| parameter.parameter_key() == Some(key));
        found.and_then(|parameter| parameter.parameter_value()).unwrap_or_default()
    };
    Ok(Target {
        clients: Clients::aws(config),
        stack: Stack {
            table: output("TableName")?,
            bucket: output("BucketName")?,
            queue: output("QueueUrl")?,
            low_priority_queue: output("LowPriorityQueueUrl")?,
            dead_letter_queue: output("DeadLetterQueueUrl")?,
        },
        name: known_as,
        layout: KeyLayout {
            single_tenant: parameter("SingleTenant") == "true",
            raw_keys: parameter("RawKeys") == "true",
        },
        deploy: parameter("DeployNumber").parse().unwrap_or_default(),
        epsilon_ms: Ladder::default().epsilon_ms,
        config: output("ConfigLocation")?,
    })
}
