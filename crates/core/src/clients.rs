//! The one place that builds SDK clients.
//!
//! All three clients share one HTTP client, so they share one connection pool, and carry explicit
//! timeouts: the SDK's own default is a connect timeout only, under which a dead dependency would
//! hold an invocation until Lambda kills it. Retries are the SDK's (standard mode, jittered). Above
//! it only what the SDK does not retry is sent again: a cancelled transaction, and an upload that
//! met another one.

use std::time::Duration;

use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_dynamodb::config::retry::{RetryConfig, RetryPartition};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region, SharedAsyncSleep};
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_async::time::SharedTimeSource;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_http_client::{Builder as HttpBuilder, Connector};
use aws_smithy_runtime_api::client::http::{HttpConnectorSettings, SharedHttpClient};
use aws_types::SdkConfig;

use crate::aws_time::AwsTime;
use crate::clock::Clock;

/// The roots that AWS endpoints chain to. Trusting only these makes init cheaper (parsing the
/// system's whole store costs several milliseconds of CPU at each cold start) and refuses
/// everything that is not AWS.
const AMAZON_ROOTS: &[u8] = include_bytes!("amazon_roots.pem");

/// The clients of the three services, over one HTTP client.
#[derive(Clone, Debug)]
pub struct Clients {
    pub dynamodb: aws_sdk_dynamodb::Client,
    pub s3: aws_sdk_s3::Client,
    pub sqs: aws_sdk_sqs::Client,
    /// AWS's time, estimated from the responses to all three.
    pub time: AwsTime,
    shared: SdkConfig,
    partition: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct ClientTimeouts {
    pub connect: Duration,
    /// One attempt, from the request to the last byte of the response.
    pub attempt: Duration,
    /// The whole operation, its retries and their pauses included.
    pub operation: Duration,
    /// Attempts in all, the first one included.
    pub attempts: u32,
}

impl ClientTimeouts {
    /// For the worker and for operators: the request is on a queue, so the call may take its time.
    pub const WORKER: Self = Self {
        connect: Duration::from_secs(1),
        attempt: Duration::from_secs(3),
        operation: Duration::from_secs(10),
        attempts: 4,
    };

    /// For the serving function: a reader waits for the call, and memory may have the page anyway.
    pub const READER: Self = Self {
        connect: Duration::from_millis(500),
        attempt: Duration::from_millis(700),
        operation: Duration::from_millis(1500),
        attempts: 2,
    };

    fn time_outs(self) -> TimeoutConfig {
        TimeoutConfig::builder()
            .connect_timeout(self.connect)
            .operation_attempt_timeout(self.attempt)
            .operation_timeout(self.operation)
            .build()
    }

    fn retries(self) -> RetryConfig {
        RetryConfig::standard().with_max_attempts(self.attempts).with_initial_backoff(Duration::from_millis(100))
    }
}

/// Clients that leave nothing to the environment: every setting is given here.
#[derive(Clone, Debug)]
pub struct Explicit {
    /// [`plain_http_client`], or an in-process one.
    pub http: SharedHttpClient,
    /// Endpoint of all three services.
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    pub access_key: String,
    pub secret_key: String,
    pub timeouts: ClientTimeouts,
    /// The time that requests are signed with.
    pub clock: Clock,
    /// Clients of one partition share the SDK's retry token bucket, which is otherwise one for the
    /// whole process: a test that runs many workers in a process gives each its own.
    pub retry_partition: Option<String>,
}

/// Trusted certificates and the use of the machine's proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Inside AWS: Amazon's roots only, no proxy.
    Lambda,
    /// From an operator's machine: its own certificate store and its proxy variables, as a company
    /// may have set them.
    Workstation,
}

impl Clients {
    /// Clients for AWS over a configuration from [`aws_sdk_config`].
    pub fn aws(shared: &SdkConfig) -> Self {
        Self::from_shared(shared, Clock::system(), None)
    }

    /// Clients that read no variable, no profile and no file.
    pub fn explicit(settings: Explicit) -> Self {
        let credentials = Credentials::new(settings.access_key, settings.secret_key, None, None, "everfresh");
        let shared = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(settings.http)
            .endpoint_url(settings.endpoint)
            .region(Region::new(settings.region))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .timeout_config(settings.timeouts.time_outs())
            .retry_config(settings.timeouts.retries())
            .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
            .time_source(SharedTimeSource::new(settings.clock.clone()))
            .build();
        Self::from_shared(&shared, settings.clock, settings.retry_partition)
    }

    /// The configuration for clients of further services, so that they share the connections too.
    pub fn shared(&self) -> &SdkConfig {
        &self.shared
    }

    /// The retry partition of a further service's client; none for that of the process.
    pub fn retry_partition(&self, service: &str) -> Option<RetryPartition> {
        self.partition.as_deref().map(|name| partition(name, service))
    }

    fn from_shared(shared: &SdkConfig, clock: Clock, retry_partition: Option<String>) -> Self {
        let time = AwsTime::new(clock);
        // Bucket names in the host name work on AWS only; any other endpoint is addressed by path.
        let path_style = shared.endpoint_url().is_some();
        let mut dynamodb = aws_sdk_dynamodb::config::Builder::from(shared).interceptor(time.clone());
        let mut s3 = aws_sdk_s3::config::Builder::from(shared).force_path_style(path_style).interceptor(time.clone());
        let mut sqs = aws_sdk_sqs::config::Builder::from(shared).interceptor(time.clone());
        let own = |service: &str| retry_partition.as_deref().map(|name| partition(name, service));
        dynamodb.set_retry_partition(own("dynamodb"));
        s3.set_retry_partition(own("s3"));
        sqs.set_retry_partition(own("sqs"));
        Self {
            dynamodb: aws_sdk_dynamodb::Client::from_conf(dynamodb.build()),
            s3: aws_sdk_s3::Client::from_conf(s3.build()),
            sqs: aws_sdk_sqs::Client::from_conf(sqs.build()),
            time,
            shared: shared.clone(),
            partition: retry_partition,
        }
    }
}

fn partition(name: &str, service: &str) -> RetryPartition {
    // Custom: a named one would stay in a process-wide table for ever.
    RetryPartition::custom(format!("{name}/{service}")).build()
}

/// The configuration of every client that talks to AWS: credentials and region come from the
/// environment (a function's role, which is in its variables; an operator's profile), and
/// `AWS_ENDPOINT_URL` and its like are honoured, as any tool does.
pub async fn aws_sdk_config(timeouts: ClientTimeouts, network: Network) -> SdkConfig {
    let config = aws_config::defaults(BehaviorVersion::latest())
        .http_client(tls_http_client(network))
        .timeout_config(timeouts.time_outs())
        .retry_config(timeouts.retries());
    let config = match network {
        // A function's role is in its variables. The default chain would build clients for STS and
        // IMDS at each start.
        Network::Lambda => config.credentials_provider(EnvironmentVariableCredentialsProvider::new()),
        Network::Workstation => config,
    };
    config.load().await
}

/// An HTTP client for plain-text endpoints on this machine. It knows no proxy.
pub fn plain_http_client() -> SharedHttpClient {
    HttpBuilder::new().build_http()
}

fn tls_http_client(network: Network) -> SharedHttpClient {
    HttpBuilder::new().build_with_connector_fn(move |settings, _components| {
        let trust = match (settings, network) {
            // Each SDK client builds one without settings to validate it, and drops it: the roots
            // are not parsed for that.
            (None, _) => TrustStore::empty(),
            (Some(_), Network::Lambda) => TrustStore::empty().with_pem_certificate(AMAZON_ROOTS),
            (Some(_), Network::Workstation) => TrustStore::empty().with_native_roots(true),
        };
        let proxy = match network {
            Network::Lambda => ProxyConfig::disabled(),
            Network::Workstation => ProxyConfig::from_env(),
        };
        tls_connector(settings, trust, proxy)
    })
}

fn tls_connector(settings: Option<&HttpConnectorSettings>, trust: TrustStore, proxy: ProxyConfig) -> Connector {
    let mut connector = Connector::builder();
    connector.set_connector_settings(settings.cloned());
    connector.set_proxy_config(Some(proxy));
    let connector = connector.tls_provider(Provider::Rustls(CryptoMode::Ring));
    match TlsContext::builder().with_trust_store(trust).build() {
        Ok(context) => connector.tls_context(context).build(),
        // Only with a malformed certificate, and a test parses those that are compiled in.
        Err(_) => connector.build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn amazons_roots_parse() {
        let pem = String::from_utf8_lossy(AMAZON_ROOTS);
        assert_eq!(pem.matches("BEGIN CERTIFICATE").count(), 5);
        // Panics inside the TLS library if a certificate is malformed.
        tls_connector(None, TrustStore::empty().with_pem_certificate(AMAZON_ROOTS), ProxyConfig::disabled());
    }

    /// What [`tls_http_client`] relies on: without roots, no call to AWS would succeed.
    #[tokio::test]
    async fn connector_that_is_used_is_built_with_settings() {
        let with_settings = Arc::new(Mutex::new(Vec::new()));
        let built = with_settings.clone();
        let http = HttpBuilder::new().build_with_connector_fn(move |settings, _components| {
            built.lock().unwrap().push(settings.is_some());
            Connector::builder().build_http()
        });
        let refusing = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let clients = Clients::explicit(Explicit {
            http,
            endpoint: format!("http://{refusing}"),
            region: "us-east-1".to_owned(),
            access_key: "x".to_owned(),
            secret_key: "x".to_owned(),
            timeouts: ClientTimeouts { attempts: 1, ..ClientTimeouts::WORKER },
            clock: Clock::system(),
            retry_partition: None,
        });
        assert_eq!(*with_settings.lock().unwrap(), [false, false, false]);
        assert!(clients.dynamodb.list_tables().send().await.is_err());
        assert!(clients.s3.list_buckets().send().await.is_err());
        assert_eq!(*with_settings.lock().unwrap(), [false, false, false, true], "one for all three");
    }
}
