//! Concurrent calls for the same key share one call.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};

/// The calls in flight. They are held weakly: a call without a caller left is cancelled.
#[derive(Debug)]
pub(super) struct SingleFlight<K, V: Clone>(Arc<Mutex<InFlight<K, V>>>);

/// A call in flight. Holding it keeps it from being cancelled; it only proceeds while awaited.
pub(super) type Flight<V> = Shared<BoxFuture<'static, V>>;

type InFlight<K, V> = HashMap<K, WeakShared<BoxFuture<'static, V>>>;

impl<K, V: Clone> Clone for SingleFlight<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V: Clone> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, V> SingleFlight<K, V>
where
    K: Hash + Eq + Clone + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Joins the call for `key` that is in flight, or starts this one.
    pub(super) async fn join(&self, key: K, call: impl Future<Output = V> + Send + 'static) -> V {
        self.start(key, call).await
    }

    /// The same, without awaiting it yet.
    pub(super) fn start(&self, key: K, call: impl Future<Output = V> + Send + 'static) -> Flight<V> {
        let mut in_flight = self.in_flight();
        if let Some(running) = in_flight.get(&key).and_then(WeakShared::upgrade) {
            return running;
        }
        let remove = RemoveOnDrop { flights: self.clone(), key: key.clone() };
        let call = async move {
            let _remove = remove;
            call.await
        };
        let shared = call.boxed().shared();
        if let Some(weak) = shared.downgrade() {
            in_flight.insert(key, weak);
        }
        shared
    }

    fn in_flight(&self) -> MutexGuard<'_, InFlight<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a call from the map however it ends: done, cancelled or panicked.
struct RemoveOnDrop<K: Hash + Eq, V: Clone> {
    flights: SingleFlight<K, V>,
    key: K,
}

impl<K: Hash + Eq, V: Clone> Drop for RemoveOnDrop<K, V> {
    fn drop(&mut self) {
        self.flights.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    async fn slow(calls: Arc<AtomicUsize>) -> usize {
        let number = calls.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        number
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_a_call_and_later_ones_start_another() {
        let (flights, calls) = (SingleFlight::default(), Arc::new(AtomicUsize::new(0)));
        let all = futures::future::join_all((0..100).map(|_| flights.join("page", slow(calls.clone())))).await;
        assert!(all.iter().all(|number| *number == 0));
        assert_eq!(flights.join("page", slow(calls.clone())).await, 1);
        assert_eq!(flights.join("other", slow(calls.clone())).await, 2);
        assert!(flights.in_flight().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn call_without_callers_is_cancelled_and_not_joined() {
        let (flights, calls) = (SingleFlight::default(), Arc::new(AtomicUsize::new(0)));
        let short = flights.join("page", slow(calls.clone()));
        assert!(tokio::time::timeout(Duration::from_millis(10), short).await.is_err());
        assert!(flights.in_flight().is_empty());
        assert_eq!(flights.join("page", slow(calls.clone())).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn panic_reaches_all_sharing_callers_and_no_later_one() {
        let flights: SingleFlight<&str, usize> = SingleFlight::default();
        let shared = || async {
            let call = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                panic!("a defect")
            };
            std::panic::AssertUnwindSafe(flights.join("page", call)).catch_unwind().await
        };
        let all = futures::future::join_all((0..10).map(|_| shared())).await;
        assert!(all.iter().all(Result::is_err));
        assert!(flights.in_flight().is_empty());
        assert_eq!(flights.join("page", slow(Arc::default())).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn timeout_of_one_caller_does_not_cancel_the_others() {
        let (flights, calls) = (SingleFlight::default(), Arc::new(AtomicUsize::new(0)));
        let short = tokio::time::timeout(Duration::from_millis(10), flights.join("page", slow(calls.clone())));
        let long = flights.join("page", slow(calls.clone()));
        let (short, long) = tokio::join!(short, long);
        assert!(short.is_err());
        assert_eq!((long, calls.load(Ordering::Relaxed)), (0, 1));
    }
}
