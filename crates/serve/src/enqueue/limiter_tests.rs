use super::*;
use everfresh_core::domain::page_key::CanonicalPath;
use everfresh_core::domain::version::Version;
use proptest::prelude::*;

fn key(tenant: &str, path: &str, reason: Reason) -> RequestKey {
    let page = PageKey::new(Tenant::parse(tenant).unwrap(), CanonicalPath::stored(path).unwrap());
    RequestKey { page, reason, lost: false, is_first: false }
}

fn limiter(per_minute: u32) -> EnqueueLimiter {
    EnqueueLimiter::new(Rates { per_minute, first_per_minute: 10 * per_minute })
}

fn version(number: u64) -> Option<&'static Meta> {
    with_status(number, Some(200))
}

fn with_status(number: u64, status: Option<u16>) -> Option<&'static Meta> {
    let version = Some(Version::next(number, None, None, 0));
    Some(Box::leak(Box::new(Meta { version, status, ..Meta::default() })))
}

#[test]
fn one_enqueue_per_version_and_window_and_the_window_doubles() {
    let mut limiter = limiter(1000);
    let key = key("acme", "/a", Reason::Expired);
    let mut sent_at = Vec::new();
    for now_ms in (0..200_000).step_by(1000) {
        if limiter.decide(key.clone(), version(1), now_ms) == Permit::Allowed {
            sent_at.push(now_ms / 1000);
        }
    }
    assert_eq!(sent_at, [0, 5, 15, 35, 75, 155]);
}

#[test]
fn another_version_or_reason_is_enqueued_separately() {
    let mut limiter = limiter(1000);
    for (seen, reason) in [(1, Reason::Expired), (2, Reason::Expired), (2, Reason::Changed)] {
        let key = key("acme", "/a", reason);
        assert_eq!(limiter.decide(key.clone(), version(seen), 0), Permit::Allowed);
        assert_eq!(limiter.decide(key, version(seen), 1), Permit::Suppressed);
    }
    let lost = RequestKey { lost: true, ..key("acme", "/a", Reason::Changed) };
    assert_eq!(limiter.decide(lost, version(2), 1), Permit::Allowed);
}

#[test]
fn alternating_reasons_do_not_reset_each_others_windows() {
    let mut limiter = limiter(1000);
    let lost = RequestKey { lost: true, ..key("acme", "/a", Reason::Changed) };
    let all = [key("acme", "/a", Reason::Expired), key("acme", "/a", Reason::Changed), lost];
    let mut sent = 0;
    for now_ms in (0..200_000).step_by(1000) {
        let allowed = |key: &RequestKey| limiter.decide(key.clone(), version(1), now_ms) == Permit::Allowed;
        sent += all.iter().map(allowed).filter(|allowed| *allowed).count();
    }
    assert_eq!(sent, 3 * 6, "as often as each would alone");
}

#[test]
fn failed_send_lifts_the_suppression() {
    let mut limiter = limiter(1000);
    let key = key("acme", "/a", Reason::Expired);
    limiter.decide(key.clone(), version(1), 0);
    limiter.failed(&key);
    assert_eq!(limiter.decide(key, version(1), 1), Permit::Allowed);
}

#[test]
fn failed_send_returns_its_token() {
    let mut limiter = limiter(1);
    let key = key("acme", "/a", Reason::Expired);
    for _ in 0..100 {
        assert_eq!(limiter.decide(key.clone(), version(1), 0), Permit::Allowed);
        limiter.failed(&key);
    }
    limiter.failed(&key);
    assert_eq!(limiter.decide(key.clone(), version(1), 0), Permit::Allowed);
    assert_eq!(limiter.decide(key, version(2), 0), Permit::RateLimited, "a token is never returned twice");
}

#[test]
fn crawler_uses_up_the_rate_limit_of_its_tenant_only() {
    let mut limiter = limiter(60);
    let started = |limiter: &mut EnqueueLimiter, tenant: &str, from: u32, now_ms| {
        let key = |n| key(tenant, &format!("/{n}"), Reason::Expired);
        let allowed = |n| limiter.decide(key(n), version(1), now_ms) == Permit::Allowed;
        (from..from + 500).map(allowed).filter(|allowed| *allowed).count()
    };
    assert_eq!(started(&mut limiter, "acme", 0, 0), 60);
    assert_eq!(started(&mut limiter, "globex", 0, 0), 60);
    assert_eq!(started(&mut limiter, "acme", 1000, 10_000), 10, "one token a second");
    assert_eq!(started(&mut limiter, "acme", 2000, 10_000_000), 60, "the bucket holds a minute's worth");
}

#[test]
fn invented_paths_do_not_block_refresh_of_published_pages() {
    let mut limiter = limiter(60);
    let invented = |n| key("acme", &format!("/{n}"), Reason::Expired);
    let sent = (0..500).filter(|n| limiter.decide(invented(*n), None, 0) == Permit::Allowed).count();
    assert_eq!(sent, 60);
    // Some of them have become a 404 or a redirect.
    for status in [301, 308, 404, 410] {
        assert_eq!(limiter.decide(invented(2000), with_status(1, Some(status)), 0), Permit::RateLimited, "{status}");
    }
    for (path, status) in [("/a", Some(200)), ("/foreign", None)] {
        let published = key("acme", path, Reason::Expired);
        assert_eq!(limiter.decide(published, with_status(1, status), 0), Permit::Allowed, "{path}");
    }
    // A token returns to the bucket that it was taken from.
    limiter.failed(&invented(0));
    assert_eq!(limiter.decide(invented(1000), None, 0), Permit::Allowed);
    assert_eq!(limiter.decide(invented(1001), None, 0), Permit::RateLimited);
}

#[test]
fn first_renders_of_own_routes_have_a_larger_bucket() {
    let mut limiter = limiter(60);
    let later = |n| key("acme", &format!("/products/{n}"), Reason::Expired);
    let first = |n| RequestKey { is_first: true, ..later(n) };
    let mut sent = |key: &dyn Fn(u32) -> RequestKey, meta: Option<&Meta>| {
        (0..2000).filter(|n| limiter.decide(key(*n), meta, 0) == Permit::Allowed).count()
    };
    assert_eq!(sent(&first, None), 600);
    assert_eq!(sent(&later, None), 60, "invented paths have another bucket");
    assert_eq!(sent(&later, with_status(1, Some(404))), 0, "and share it with pages that are missing");
    assert_eq!(sent(&later, version(1)), 60, "published pages are refreshed");
    // A token returns to the bucket that it was taken from.
    limiter.failed(&first(0));
    assert_eq!(limiter.decide(first(0), None, 0), Permit::Allowed);
    assert_eq!(limiter.decide(first(2000), None, 0), Permit::RateLimited);
}

#[test]
fn clock_jump_back_does_not_extend_suppression() {
    let mut limiter = limiter(60);
    let key = key("acme", "/a", Reason::Expired);
    limiter.decide(key.clone(), version(1), 10_000_000);
    assert_eq!(limiter.decide(key, version(1), 1_000), Permit::Allowed);
}

proptest! {
    #[test]
    fn rate_limit_holds_whatever_the_clock_does(times in prop::collection::vec(0u64..120_000, 1..300)) {
        let mut limiter = limiter(30);
        let sent = times.iter().enumerate().filter(|(n, now_ms)| {
            let key = key("acme", &format!("/{n}"), Reason::Expired);
            limiter.decide(key, version(1), **now_ms) == Permit::Allowed
        });
        // At most the full bucket, and the tokens of every forward step of the clock.
        let count = sent.count() as u64;
        let forward: u64 = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).sum();
        prop_assert!(count <= 30 + forward * 30 / 60_000 + 1);
    }
}
