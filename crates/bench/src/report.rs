//! The figures. Absolute times of a shared machine mean little; the ratio to the yardstick, measured in the same minute, does.

use std::time::Duration;

use serde_json::{Value, json};

use crate::measure::{Figures, Samples};

/// For people. The first subject is the yardstick.
pub fn text(figures: &[Figures]) -> String {
    let mut times = vec![["function", "CPU of", "median", "min", "× echo"].map(str::to_owned).to_vec()];
    let mut weights = vec![["function", "binary bytes", "zip bytes", "memory bytes"].map(str::to_owned).to_vec()];
    for subject in figures {
        for (what, samples, ratio) in rows(subject, figures) {
            let name = subject.name.clone();
            times.push(vec![name, what.to_owned(), time(samples.median()), time(samples.min()), format!("{ratio:.2}")]);
        }
        let weight = [subject.bytes, subject.zip_bytes, subject.rss_bytes].map(|bytes| bytes.to_string());
        weights.push([subject.name.clone()].into_iter().chain(weight).collect());
    }
    format!("{}\n{}", table(&times, 2), table(&weights, 1))
}

/// For machines: times in microseconds.
pub fn json(figures: &[Figures]) -> Value {
    let subject = |subject: &Figures| {
        let cpu: Vec<Value> = rows(subject, figures)
            .map(|(what, samples, ratio)| {
                let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
                json!({"of": what, "median_us": micros(samples.median()), "min_us": micros(samples.min()), "ratio": ratio})
            })
            .collect();
        json!({
            "name": subject.name, "bytes": subject.bytes, "zip_bytes": subject.zip_bytes, "rss_bytes": subject.rss_bytes,
            "cpu": cpu,
        })
    };
    json!({"functions": figures.iter().map(subject).collect::<Vec<_>>()})
}

/// The start and each kind of request, and how many times the yardstick's own start or first kind of request it takes.
fn rows<'a>(subject: &'a Figures, all: &'a [Figures]) -> impl Iterator<Item = (&'a str, &'a Samples, f64)> {
    let yardstick = all.first();
    let start = yardstick.map(|first| &first.init);
    let request = yardstick.and_then(|first| first.requests.first()).map(|(_, samples)| samples);
    let ratio = |samples: &Samples, to: Option<&Samples>| {
        samples.median().as_secs_f64() / to.map_or(f64::NAN, |to| to.median().as_secs_f64())
    };
    let requests = subject.requests.iter().map(move |(label, s)| (label.as_str(), s, ratio(s, request)));
    std::iter::once(("start", &subject.init, ratio(&subject.init, start))).chain(requests)
}

fn time(time: Duration) -> String {
    let micros = time.as_nanos() as f64 / 1e3;
    if micros < 1e3 { format!("{micros:.1} µs") } else { format!("{:.2} ms", micros / 1e3) }
}

/// Aligned: the first `left` columns to the left, the figures to the right.
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
