//! The worker. Only its weight and its start: what a batch costs is mostly what its renders cost.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Backend, Subject, WORKER};

pub(super) fn subjects(binary: PathBuf, backend: Arc<Backend>) -> Vec<Subject> {
    let environment = backend.environment();
    vec![Subject { name: WORKER, binary, environment, requests: Vec::new(), backend: Some(backend) }]
}
