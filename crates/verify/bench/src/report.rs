//! The results. Absolute times of a shared machine mean little; the ratio to the baseline, measured
//! at the same time, is comparable.

use std::time::Duration;

use serde_json::{Value, json};

use crate::measure::{Cost, Figures, Samples};

/// Two tables. The first function is the baseline.
pub fn text(figures: &[Figures]) -> String {
    let head = ["function", "CPU of", "median", "min", "min × echo", "calls"];
    let mut times = vec![head.map(str::to_owned).to_vec()];
    let mut weights = vec![["function", "binary bytes", "zip bytes", "memory bytes"].map(str::to_owned).to_vec()];
    for function in figures {
        let name = function.name.to_owned();
        for row in rows(function, figures) {
            let calls = row.calls.map_or(String::new(), |calls| format!("{calls:.1}"));
            let (median, min) = (time(row.cpu.median()), time(row.cpu.min()));
            times.push(vec![name.clone(), row.of.to_owned(), median, min, format!("{:.2}", row.ratio), calls]);
        }
        let weight = [function.bytes, function.zip_bytes, function.rss_bytes].map(|bytes| bytes.to_string());
        weights.push([name].into_iter().chain(weight).collect());
    }
    format!("{}\n{}", table(&times, 2), table(&weights, 1))
}

/// Times in microseconds.
pub fn json(figures: &[Figures]) -> Value {
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    let row = |row: Row<'_>| {
        let (median, min) = (micros(row.cpu.median()), micros(row.cpu.min()));
        json!({"of": row.of, "median_us": median, "min_us": min, "ratio": row.ratio, "calls": row.calls})
    };
    let function = |function: &Figures| {
        let Figures { name, bytes, zip_bytes, rss_bytes, .. } = function;
        let cpu: Vec<Value> = rows(function, figures).map(row).collect();
        json!({"name": name, "bytes": bytes, "zip_bytes": zip_bytes, "rss_bytes": rss_bytes, "cpu": cpu})
    };
    json!({"functions": figures.iter().map(function).collect::<Vec<_>>()})
}

/// The start, or one kind of request.
struct Row<'a> {
    of: &'a str,
    cpu: &'a Samples,
    /// Relative to the baseline's start or first kind of request.
    ratio: f64,
    /// Calls to AWS per request.
    calls: Option<f64>,
}

fn rows<'a>(function: &'a Figures, all: &'a [Figures]) -> impl Iterator<Item = Row<'a>> {
    let baseline = all.first();
    let start = baseline.map(|first| &first.init);
    let request = baseline.and_then(|first| first.requests.first()).map(|cost| &cost.cpu);
    // Of the minima: noise only adds.
    let ratio = |samples: &Samples, to: Option<&Samples>| {
        samples.min().as_secs_f64() / to.map_or(f64::NAN, |to| to.min().as_secs_f64())
    };
    let started = Row { of: "start", cpu: &function.init, ratio: ratio(&function.init, start), calls: None };
    let requests = function.requests.iter().map(move |cost| {
        let Cost { label, cpu, calls } = cost;
        Row { of: label, cpu, ratio: ratio(cpu, request), calls: Some(*calls) }
    });
    std::iter::once(started).chain(requests)
}

fn time(time: Duration) -> String {
    let micros = time.as_nanos() as f64 / 1e3;
    if micros < 1e3 { format!("{micros:.1} µs") } else { format!("{:.2} ms", micros / 1e3) }
}

/// Aligns the first `left` columns to the left, the others to the right.
fn table(rows: &[Vec<String>], left: usize) -> String {
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column).unwrap_or(0);
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
