//! What the suites ask for.
#![allow(dead_code, reason = "each suite uses its part")]

use std::time::Duration;

use everfresh_origin::{Ask, Origins, Patience};

/// Far longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Short, for tests that wait it out.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

/// A page of acme's.
pub(crate) const PAGE: Ask<'_> =
    Ask { path: "/products/42?color=red", host: "www.acme.example", headers: &[], max_bytes: 1 << 20, time: LONG };

pub(crate) fn origins() -> Origins {
    Origins::new(Patience::default())
}
