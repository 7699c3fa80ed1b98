//! Callers who want the same at the same time share one call.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};

/// Calls under way, by what they are for. Weakly held: a call that nobody waits for any more is cancelled, not kept.
#[derive(Debug)]
pub(crate) struct SingleFlight<K, V: Clone>(Arc<Mutex<Under<K, V>>>);

/// One call under way. Whoever holds it keeps it from being cancelled; it goes on while somebody waits for it.
pub(crate) type Flight<V> = Shared<BoxFuture<'static, V>>;

type Under<K, V> = HashMap<K, WeakShared<BoxFuture<'static, V>>>;

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
    /// Joins the call for `key` that is under way, or starts this one.
    pub(crate) async fn join(&self, key: K, call: impl Future<Output = V> + Send + 'static) -> V {
        self.board(key, call).await
    }

    /// The same without waiting for it yet.
    pub(crate) fn board(&self, key: K, call: impl Future<Output = V> + Send + 'static) -> Flight<V> {
        let mut under = self.under();
        if let Some(running) = under.get(&key).and_then(WeakShared::upgrade) {
            return running;
        }
        let landing = Landing { flights: self.clone(), key: key.clone() };
        let call = async move {
            let _landing = landing;
            call.await
        };
        let shared = call.boxed().shared();
        if let Some(weak) = shared.downgrade() {
            under.insert(key, weak);
        }
        shared
    }

    fn under(&self) -> MutexGuard<'_, Under<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a flight however it ends: done, cancelled or panicked.
struct Landing<K: Hash + Eq, V: Clone> {
    flights: SingleFlight<K, V>,
    key: K,
}

impl<K: Hash + Eq, V: Clone> Drop for Landing<K, V> {
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
    async fn callers_at_the_same_time_share_a_call_and_later_ones_make_another() {
        let (flights, calls) = (SingleFlight::default(), Arc::new(AtomicUsize::new(0)));
        let all = futures::future::join_all((0..100).map(|_| flights.join("page", slow(calls.clone())))).await;
        assert!(all.iter().all(|number| *number == 0));
        assert_eq!(flights.join("page", slow(calls.clone())).await, 1);
        assert_eq!(flights.join("other", slow(calls.clone())).await, 2);
        assert!(flights.under().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nobody_waits_for_is_cancelled_and_not_joined() {
        let (flights, calls) = (SingleFlight::default(), Arc::new(AtomicUsize::new(0)));
        let impatient = flights.join("page", slow(calls.clone()));
        assert!(tokio::time::timeout(Duration::from_millis(10), impatient).await.is_err());
        assert!(flights.under().is_empty());
        assert_eq!(flights.join("page", slow(calls.clone())).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn panic_in_a_shared_call_reaches_all_who_share_it_and_no_later_caller() {
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
        assert!(flights.under().is_empty());
        assert_eq!(flights.join("page", slow(Arc::default())).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn one_impatient_caller_does_not_cancel_the_others() {
        let (flights, calls) = (SingleFlight::default(), Arc::new(AtomicUsize::new(0)));
        let impatient = tokio::time::timeout(Duration::from_millis(10), flights.join("page", slow(calls.clone())));
        let patient = flights.join("page", slow(calls.clone()));
        let (impatient, patient) = tokio::join!(impatient, patient);
        assert!(impatient.is_err());
        assert_eq!((patient, calls.load(Ordering::Relaxed)), (0, 1));
    }
}
