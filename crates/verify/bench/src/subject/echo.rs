//! The yardstick.

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
            is_right: |answer| answer.starts_with(b"{") && answer.len() > 500,
            calls: 0,
            enqueues: false,
        }],
        backend: None,
    }]
}
