//! Which deployment a command uses: the `dev` that runs on this machine, or a stack on AWS, which
//! must always be named.

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

pub(crate) struct Target {
    pub(crate) clients: Clients,
    pub(crate) stack: Stack,
    /// As shown to the user.
    pub(crate) name: String,
    pub(crate) layout: KeyLayout,
    /// Number of the running deployment: pages of an older one are stale.
    pub(crate) deploy: u64,
    /// Clock error: times closer than this cannot be ordered.
    pub(crate) epsilon_ms: u64,
    /// The worker's timeouts, where `dev` says them. A stack's are in its functions.
    pub(crate) ladder: Option<Ladder>,
    /// Of a stack.
    pub(crate) functions: Option<Functions>,
    /// Location of the configuration: a file, or `s3://bucket/key`.
    config: String,
}

/// Names of a stack's functions.
#[derive(Debug)]
pub(crate) struct Functions {
    pub(crate) worker: String,
    pub(crate) serving: String,
    pub(crate) maintenance: String,
}

/// Written by a running `dev` into its data folder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Endpoints {
    /// URL of DynamoDB, S3 and SQS.
    pub(crate) aws: String,
    /// URL of the pages.
    pub(crate) pages: String,
    pub(crate) region: String,
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    pub(crate) stack: Stack,
    pub(crate) config: PathBuf,
    pub(crate) single_tenant: bool,
    pub(crate) raw_keys: bool,
    pub(crate) deploy: u64,
    pub(crate) epsilon_ms: u64,
    pub(crate) ladder: Ladder,
}

impl Target {
    /// Resolves the deployment and prints its name to standard error.
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

    /// The worker's configuration.
    pub(crate) async fn config(&self) -> anyhow::Result<Config> {
        if !self.config.starts_with("s3://") {
            return config::load(Path::new(&self.config));
        }
        let loaded = Config::load(&self.config, self.layout, &self.clients).await;
        loaded.map_err(|error| {
            let error = error.to_string();
            anyhow!("{}: {}; name a local copy with --config FILE to go on without it", self.name, error.trim_end())
        })
    }

    pub(crate) fn config_location(&self) -> &str {
        &self.config
    }

    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::new(&self.clients, &self.stack.table, self.layout)
    }

    /// S3 URL of the object that a row's `s3_key` refers to, or why it is not read.
    pub(crate) fn shown_object(&self, tenant: &Tenant, s3_key: &str) -> String {
        let bucket = &self.stack.bucket;
        match locate(s3_key, bucket, tenant, self.layout) {
            Ok(key) => format!("s3://{bucket}/{key}"),
            Err(error) => format!("{s3_key} (not read: {error})"),
        }
    }

    fn on_this_machine(data: &Path) -> anyhow::Result<Self> {
        let folder = data.display();
        if !DataDir::is_in_use(data) {
            bail!(
                "no `everfresh dev` is running in {folder}: start it with `everfresh dev`, or name a deployed stack with --stack NAME"
            );
        }
        let file = DataDir::endpoints_file(data);
        let json = DataDir::read_endpoints(data).with_context(|| {
            format!(
                "`everfresh dev` in {folder} is still starting, {} is missing: try again in a moment",
                file.display()
            )
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
        let Endpoints { stack, single_tenant, raw_keys, deploy, epsilon_ms, ladder, .. } = endpoints;
        Ok(Self {
            clients,
            stack,
            name,
            layout: KeyLayout { single_tenant, raw_keys },
            deploy,
            epsilon_ms,
            ladder: Some(ladder),
            functions: None,
            config: endpoints.config.display().to_string(),
        })
    }

    async fn on_aws(name: &str) -> anyhow::Result<Self> {
        let config = aws_sdk_config(ClientTimeouts::WORKER, Network::Workstation).await;
        let Some(region) = config.region().cloned() else {
            bail!("--stack {name}: no AWS region is set: set AWS_REGION, or `region` in your AWS profile");
        };
        describe(&config, name, format!("AWS stack {name} in {region}")).await
    }
}

/// Reads the stack's outputs, and the parameters that define key layout and deployment number.
async fn describe(config: &SdkConfig, name: &str, shown_name: String) -> anyhow::Result<Target> {
    let cloudformation = aws_sdk_cloudformation::Client::new(config);
    let described = cloudformation.describe_stacks().stack_name(name).send().await;
    let described = described
        .map_err(|error| anyhow!("--stack {name}: CloudFormation DescribeStacks failed: {}", explain(&error)))?;
    let stack = described.stacks().first().with_context(|| format!("--stack {name}: no such stack"))?;
    let output = |key: &str| {
        let found = stack.outputs().iter().find(|output| output.output_key() == Some(key));
        let value = found.and_then(|output| output.output_value()).map(str::to_owned);
        value.with_context(|| {
            format!("--stack {name}: the stack has no output `{key}`, so it is not an Everfresh stack")
        })
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
        name: shown_name,
        layout: KeyLayout {
            single_tenant: parameter("SingleTenant") == "true",
            raw_keys: parameter("RawKeys") == "true",
        },
        deploy: parameter("DeployNumber").parse().unwrap_or_default(),
        epsilon_ms: Ladder::default().epsilon_ms,
        ladder: None,
        functions: Some(Functions {
            worker: output("WorkerFunctionName").unwrap_or_else(|_| format!("{name}-worker")),
            serving: output("ServeFunctionName").unwrap_or_else(|_| format!("{name}-serve")),
            maintenance: output("MaintenanceFunctionName").unwrap_or_else(|_| format!("{name}-maintenance")),
        }),
        config: output("ConfigLocation")?,
    })
}
