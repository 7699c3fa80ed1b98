//! Replays the corpus of every fuzz target, and runs the targets on random and mutated inputs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;

use everfresh_fuzzed::TARGETS;
use proptest::prelude::*;

#[test]
fn corpus_keeps_every_property() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus");
    for (name, target) in TARGETS {
        let mut inputs = 0;
        for file in std::fs::read_dir(corpus.join(name)).unwrap() {
            target(&std::fs::read(file.unwrap().path()).unwrap());
            inputs += 1;
        }
        assert!(inputs >= 5, "the corpus of {name} has {inputs} inputs");
    }
}

/// A mutated corpus input: random bytes hardly get past a parser's first character.
fn mutated(name: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(name);
    let mut seeds: Vec<Vec<u8>> =
        std::fs::read_dir(corpus).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    seeds.sort();
    (prop::sample::select(seeds), any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<Vec<u8>>())
        .prop_map(|(mut seed, from, to, bytes)| {
            let (from, to) = (from.index(seed.len() + 1), to.index(seed.len() + 1));
            seed.splice(from.min(to)..from.max(to).min(from.min(to) + 8), bytes.into_iter().take(8));
            seed
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_keep_every_property(bytes: Vec<u8>, text in "\\PC{0,200}") {
        for (_, target) in TARGETS {
            target(&bytes);
            target(text.as_bytes());
        }
    }

    #[test]
    fn mutated_message_keeps_properties(bytes in mutated("message")) { TARGETS[0].1(&bytes); }

    #[test]
    fn mutated_configuration_keeps_properties(bytes in mutated("config")) { TARGETS[1].1(&bytes); }

    #[test]
    fn mutated_key_keeps_properties(bytes in mutated("keys")) { TARGETS[2].1(&bytes); }

    #[test]
    fn mutated_http_event_keeps_properties(bytes in mutated("http")) { TARGETS[3].1(&bytes); }

    #[test]
    fn mutated_conditional_header_keeps_properties(bytes in mutated("conditional")) { TARGETS[4].1(&bytes); }

    #[test]
    fn mutated_gate_input_keeps_properties(bytes in mutated("gate")) { TARGETS[5].1(&bytes); }

    #[test]
    fn mutated_trigger_keeps_properties(bytes in mutated("trigger")) { TARGETS[6].1(&bytes); }

    #[test]
    fn mutated_origin_response_keeps_properties(bytes in mutated("origin")) { TARGETS[7].1(&bytes); }

    #[test]
    fn mutated_rows_keep_properties(bytes in mutated("rows")) { TARGETS[8].1(&bytes); }

    #[test]
    fn mutated_rows_keep_properties_of_the_worker(bytes in mutated("worker_rows")) { TARGETS[9].1(&bytes); }
}
