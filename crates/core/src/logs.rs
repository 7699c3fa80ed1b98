//! Log output: JSON lines in Lambda, readable lines in a terminal.
//!
//! Every line goes through [`scrub::line`], also those of libraries. The functions log at `info`
//! and above; the AWS SDK logs requests and their contents only at `debug` and `trace`, which must
//! be set in `RUST_LOG`.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::domain::scrub;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line, for CloudWatch.
    Json,
    /// One readable line, for a terminal. Written to standard error, so that `--json` output stays
    /// clean.
    Readable,
}

impl Format {
    /// JSON inside Lambda, readable elsewhere.
    pub fn detect() -> Self {
        match std::env::var_os("AWS_LAMBDA_FUNCTION_NAME") {
            Some(_) => Self::Json,
            None => Self::Readable,
        }
    }
}

/// The exit code of a function's process; `what` is its display name. The error is logged on one
/// line: only the log says why a function did not start.
pub fn exit_code<E: std::fmt::Display>(what: &str, result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = error.to_string().replace('\n', " ");
            tracing::error!("{what} cannot run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Installs the process's logger. `RUST_LOG` overrides `default_filter`. A second call changes
/// nothing.
pub fn init(format: Format, default_filter: &str) {
    match format {
        Format::Readable => init_readable(default_filter, io::stderr),
        Format::Json => {
            log_panics();
            // A logger that is already there (tests, an embedding program) is as good as ours.
            let _ = json(filter(default_filter), io::stdout).try_init();
        }
    }
}

/// As [`init`] with [`Format::Readable`], through `writer`, which gets each line in one call.
pub fn init_readable<W: Write + 'static>(default_filter: &str, writer: fn() -> W) {
    let _ = readable(filter(default_filter), writer, io::stderr().is_terminal()).try_init();
}

fn filter(default_filter: &str) -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default_filter))
}

/// JSON lines to `writer`.
pub fn json<W>(filter: EnvFilter, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Scrubbing { writer, colours: false })
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_ansi(false)
        .finish()
}

/// Readable lines to `writer`, perhaps in colours.
pub fn readable<W>(filter: EnvFilter, writer: W, colours: bool) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Scrubbing { writer, colours })
        .with_ansi(colours)
        .with_target(false)
        .compact()
        .finish()
}

/// A panic's message may quote the data being handled, so it is scrubbed like every other line.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        let why = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(at, "panic at {at}: {why}");
    }));
}

/// Scrubs each line on its way to `writer`.
struct Scrubbing<W> {
    writer: W,
    colours: bool,
}

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for Scrubbing<W> {
    type Writer = ScrubbedWriter<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        ScrubbedWriter { writer: self.writer.make_writer(), colours: self.colours }
    }
}

struct ScrubbedWriter<W> {
    writer: W,
    colours: bool,
}

impl<W: Write> Write for ScrubbedWriter<W> {
    /// Takes a whole event: the formatter writes each with one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
        // The formatter's own colours are escape sequences; it has escaped those that values carry.
        let scrubbed: Vec<_> = match self.colours {
            true => text.split('\u{1b}').map(scrub::line).collect(),
            false => vec![scrub::line(text)],
        };
        self.writer.write_all(format!("{}{end}", scrubbed.join("\u{1b}")).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn logged(say: impl FnOnce(), format: Format) -> String {
        let written = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&written);
        let writer = move || Shared(Arc::clone(&writer));
        let filter = EnvFilter::new("trace");
        match format {
            Format::Json => tracing::subscriber::with_default(json(filter, writer), say),
            Format::Readable => tracing::subscriber::with_default(readable(filter, writer, false), say),
        }
        String::from_utf8(written.lock().unwrap().clone()).unwrap()
    }

    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_line_is_scrubbed_and_stays_one_line() {
        for format in [Format::Json, Format::Readable] {
            let say = || {
                let url = "https://user:pw@o.example/a?token=s3cr3t";
                tracing::info!(url, mail = "jane@example.com", "no answer from {url}\r\nforged line\u{85}\u{202e}");
            };
            let line = logged(say, format);
            assert_eq!(line.lines().count(), 1, "{line}");
            for secret in ["s3cr3t", "pw@", "jane", "\u{85}", "\u{202e}", "\r"] {
                assert!(!line.contains(secret), "{secret:?} in {line}");
            }
            assert!(line.contains("https://*@o.example/a?*"), "{line}");
            if format == Format::Json {
                serde_json::from_str::<serde_json::Value>(&line).unwrap();
            }
        }
    }
}
