//! The worker. Only size and start are measured: the cost of a batch is mostly the cost of its
//! renders.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Backend, Subject, WORKER};

pub(super) fn subjects(binary: PathBuf, backend: Arc<Backend>) -> Vec<Subject> {
    let environment = backend.environment();
    vec![Subject { name: WORKER, binary, environment, requests: Vec::new(), backend: Some(backend) }]
}
