//! The Lambda functions contain neither the local engines nor the command line.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::process::Command;

/// Packages for local use only.
const LOCAL_ONLY: [&str; 9] = [
    "clap",
    "dynoxide-rs",
    "everfresh",
    "everfresh-local",
    "libsqlite3-sys",
    "rusqlite",
    "rustack-sqs-core",
    "rustack-sqs-http",
    "s3s",
];

fn dependencies(package: &str) -> Vec<String> {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--package",
            package,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn lambda_crates_depend_on_neither_engines_nor_command_line() {
    for lambda in ["everfresh-worker", "everfresh-serve", "everfresh-maintenance"] {
        let dependencies = dependencies(lambda);
        assert!(dependencies.iter().any(|name| name == "lambda_runtime"), "{lambda} is not a Lambda crate");
        for unwanted in LOCAL_ONLY {
            assert!(!dependencies.iter().any(|name| name == unwanted), "{lambda} depends on {unwanted}");
        }
    }
}

#[test]
fn local_packages_are_dependencies_of_the_command_line() {
    let dependencies = dependencies("everfresh");
    for local in LOCAL_ONLY {
        assert!(
            dependencies.iter().any(|name| name == local),
            "{local} is no longer a dependency of the command line: remove it from LOCAL_ONLY"
        );
    }
}

#[test]
fn only_the_worker_contains_renderers() {
    let worker = dependencies("everfresh-worker");
    for lambda in ["everfresh-serve", "everfresh-maintenance"] {
        let dependencies = dependencies(lambda);
        for renderer in ["everfresh-worker", "minijinja"] {
            assert!(worker.iter().any(|name| name == renderer), "{renderer} is no longer a dependency of the worker");
            assert!(!dependencies.iter().any(|name| name == renderer), "{lambda} depends on {renderer}");
        }
    }
}
