//! The baseline: a function that returns its payload.

use std::path::PathBuf;

use super::{ECHO, Request, Subject, event};

pub(super) fn subjects(binary: PathBuf) -> Vec<Subject> {
    vec![Subject {
        name: ECHO,
        binary,
        environment: Vec::new(),
        requests: vec![Request {
            label: "echo",
            events: vec![event("/products/figs", &[])],
            is_expected: |response| response.starts_with(b"{") && response.len() > 500,
            calls: 0,
            enqueues: false,
        }],
        backend: None,
    }]
}
