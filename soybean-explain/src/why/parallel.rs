//! Searches on all cores, which the caller may stop.

use std::{
    collections::BTreeMap,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

/// The observer of a series of searches: it gets the number of those that are done, and of all, and
/// returns true to continue.
pub type Watch<'a> = dyn FnMut(usize, usize) -> bool + 'a;

/// The time between two calls of the observer if no result comes.
const INTERVAL: Duration = Duration::from_millis(100);

/// Maps items on all cores; the results keep the order of the items.
///
/// If `watch` returns false, the results are those so far. Threads then end after the item that
/// they work on, and nothing waits for them.
pub(super) fn in_parallel<T: Send + Sync + 'static, R: Send + 'static>(
    items: Vec<T>,
    result: impl Fn(&T) -> R + Send + Sync + 'static,
    watch: &mut Watch<'_>,
) -> Vec<R> {
    let n_items = items.len();
    let n_threads = thread::available_parallelism().map_or(1, NonZero::get).min(n_items);
    let shared = Arc::new((items, result, AtomicUsize::new(0)));
    let (sender, receiver) = mpsc::channel();
    let start = |_| {
        let (shared, sender) = (Arc::clone(&shared), sender.clone());
        thread::spawn(move || {
            let (items, result, next) = &*shared;
            while let Some((at, item)) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                items.get(at).map(|item| (at, item))
            } {
                if sender.send((at, result(item))).is_err() {
                    return;
                }
            }
        })
    };
    let threads: Vec<_> = (0..n_threads).map(start).collect();
    drop(sender);
    let mut results = BTreeMap::new();
    while watch(results.len(), n_items) {
        match receiver.recv_timeout(INTERVAL) {
            Ok((at, result)) => drop(results.insert(at, result)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let join = |it: thread::JoinHandle<()>| it.join().expect("a search does not panic");
                threads.into_iter().for_each(join);
                break;
            }
        }
    }
    results.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::in_parallel;

    #[test]
    fn results_are_in_order_and_those_so_far_after_a_stop() {
        let squares = in_parallel((0..50).collect(), |it| it * it, &mut |_, _| true);
        assert_eq!(squares, (0..50).map(|it| it * it).collect::<Vec<_>>());
        let some = in_parallel((0..50).collect(), |it| it + 1, &mut |n_done, _| n_done < 7);
        assert_eq!(some.len(), 7);
        let none: Vec<u8> = in_parallel(Vec::new(), |it| *it, &mut |_, _| true);
        assert_eq!(none, [0; 0]);
    }
}
