//! Sends the same operations to two sides and compares their responses.

pub(crate) mod dynamodb;
mod known;
pub(crate) mod requests;
pub(crate) mod s3;
pub(crate) mod sqs;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use everfresh_core::clients::{ClientTimeouts, Clients};
use everfresh_core::clock::Clock;
use everfresh_local::engines::Engines;
use everfresh_local::gateway::{Gateway, Port};

use self::known::Responses;
use crate::support::{embedded, over_http};

/// URL of the emulator to compare with. Without it the engines are compared with themselves over
/// HTTP.
const ENDPOINT_VARIABLE: &str = "EVERFRESH_CONFORMANCE_ENDPOINT";
/// Number of sequences per service.
const SEQUENCES_VARIABLE: &str = "EVERFRESH_CONFORMANCE_SEQUENCES";
/// Seed of the first sequence; the others count up from it.
const SEED_VARIABLE: &str = "EVERFRESH_CONFORMANCE_SEED";

/// Long enough for a record to be claimed, lost, taken over and completed within one sequence.
const OPERATIONS: usize = 40;

/// The comparable facts of one side's response, by name.
pub(crate) type Facts = BTreeMap<&'static str, String>;

/// The embedded engines and the reference.
pub(crate) struct Pair {
    pub(crate) ours: Clients,
    pub(crate) theirs: Clients,
    name: String,
    // Serves the reference as long as it is not dropped.
    _gateway: Option<Gateway>,
}

impl Pair {
    pub(crate) async fn new() -> Self {
        let ours = embedded().await.clients(Clock::system(), ClientTimeouts::WORKER);
        let (endpoint, name, gateway) = match std::env::var(ENDPOINT_VARIABLE) {
            Ok(endpoint) => (endpoint.clone(), endpoint, None),
            Err(_) => {
                let engines = Engines::memory(Clock::system()).await.unwrap();
                let gateway = Port::bind(0).unwrap().serve(engines).unwrap();
                (gateway.url(), "the embedded engines over HTTP".to_owned(), Some(gateway))
            }
        };
        let theirs = over_http(endpoint);
        Self { ours, theirs, name, _gateway: gateway }
    }
}

/// One service of one side, empty at first.
pub(crate) trait Side: Sized {
    type Operation: Debug;

    async fn new(clients: &Clients) -> Self;

    /// Executes the operation and returns everything that can be compared.
    async fn execute(&mut self, operation: &Self::Operation) -> Facts;
}

/// Runs the sequences that `operations` generates from a seed on both sides.
pub(crate) async fn compare<S: Side, Next: FnMut() -> S::Operation>(
    service: &'static str,
    operations: impl Fn(u64) -> Next,
) {
    let pair = Pair::new().await;
    let mut report = Report::new(service, &pair);
    let sides = async || (S::new(&pair.ours).await, S::new(&pair.theirs).await);
    for seed in report.seeds(20) {
        let (mut ours, mut theirs) = sides().await;
        let mut next = operations(seed);
        for step in report.steps() {
            let operation = next();
            let facts = (ours.execute(&operation).await, theirs.execute(&operation).await);
            match report.compare((seed, step), &operation, &facts.0, &facts.1) {
                Then::Continue => {}
                Then::Restart => (ours, theirs) = sides().await,
                Then::Stop => break,
            }
        }
    }
    report.finish();
}

/// How a sequence continues after a comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    Continue,
    /// With empty tables, buckets and queues: the stored state differs for a known reason, and so
    /// would everything that follows.
    Restart,
    /// An unknown difference, which fails the test.
    Stop,
}

pub(crate) struct Report {
    service: &'static str,
    other: String,
    sequences: usize,
    operations: usize,
    refused: usize,
    known: BTreeMap<&'static str, usize>,
    unknown: BTreeMap<(String, &'static str), (usize, String)>,
}

impl Report {
    pub(crate) fn new(service: &'static str, pair: &Pair) -> Self {
        let (known, unknown) = (BTreeMap::new(), BTreeMap::new());
        Self { service, other: pair.name.clone(), sequences: 0, operations: 0, refused: 0, known, unknown }
    }

    pub(crate) fn seeds(&self, default: u64) -> impl Iterator<Item = u64> + use<> {
        let number =
            |variable, default| std::env::var(variable).map_or(default, |text| text.parse().expect("a whole number"));
        let first = number(SEED_VARIABLE, 1);
        first..first + number(SEQUENCES_VARIABLE, default)
    }

    pub(crate) fn steps(&mut self) -> std::ops::Range<usize> {
        self.sequences += 1;
        0..OPERATIONS
    }

    /// Compares both sides' facts of one operation.
    pub(crate) fn compare(&mut self, at: (u64, usize), operation: &dyn Debug, ours: &Facts, theirs: &Facts) -> Then {
        self.operations += 1;
        self.refused += usize::from(ours.get("outcome").is_some_and(|outcome| outcome != "ok"));
        let shown = format!("{operation:?}");
        // `Put { item: … }` → `Put`
        let name: String = shown.chars().take_while(char::is_ascii_alphanumeric).collect();
        let mut then = Then::Continue;
        // The outcome comes first: if only one side refuses, all other facts differ too.
        let rest = ours.keys().chain(theirs.keys()).copied().filter(|fact| *fact != "outcome");
        for fact in std::iter::once("outcome").chain(rest.collect::<BTreeSet<_>>()) {
            let value = |facts: &Facts| facts.get(fact).cloned().unwrap_or("(nothing)".to_owned());
            let (ours, theirs) = (value(ours), value(theirs));
            if ours == theirs {
                continue;
            }
            let responses = Responses { operation: &shown, ours: &ours, theirs: &theirs };
            let Some(reason) = known::reason(self.service, &name, fact, responses) else {
                let first =
                    format!("seed {}, step {}: {shown}\n      embedded: {ours}\n      other:    {theirs}", at.0, at.1);
                self.unknown.entry((name, fact)).or_insert((0, first)).0 += 1;
                return Then::Stop;
            };
            *self.known.entry(reason).or_default() += 1;
            if known::affects_state(fact) {
                then = Then::Restart;
            }
            if fact == "outcome" {
                break;
            }
        }
        then
    }

    /// Prints the counts. Panics if there is an unknown difference.
    pub(crate) fn finish(self) {
        let Self { service, other, sequences, operations, refused, known, unknown } = self;
        let differences: usize = known.values().sum();
        eprintln!(
            "conformance: {service} with {other}: {sequences} sequences, {operations} operations ({refused} refused), \
             {differences} known differences"
        );
        for (reason, times) in known {
            eprintln!("  {times:>5} × {reason}");
        }
        let shown = unknown.iter().map(|((operation, fact), (times, first))| {
            format!("\n  {times} × {operation}, {fact}; first with {first}")
        });
        let shown: String = shown.collect();
        assert!(unknown.is_empty(), "{service} and {other} differ:{shown}");
    }
}

/// `ok`, or the service's error code.
pub(crate) fn outcome<T, E: ProvideErrorMetadata + Debug>(
    result: &Result<T, SdkError<E, aws_smithy_runtime_api::client::orchestrator::HttpResponse>>,
) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => match (error.code(), error.raw_response()) {
            (Some(code), _) => code.to_owned(),
            // Responses to HEAD and 304 have no body with a code.
            (None, Some(response)) => response.status().as_u16().to_string(),
            (None, None) => format!("{error:?}"),
        },
    }
}
