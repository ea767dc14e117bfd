//! Batches of a loader: their rows, errors while reading, memory, and the life of the threads.

use std::{
    iter,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use soybean_data::{
    Column, ColumnSpec, DataLoader, Dataset, Error, Last, LoaderOptions, RowOrder, Subset, Table,
    Values, View, ViewMut,
};
use soybean_plan::DType;

/// A dataset whose row `i` has `x = [2 i, 2 i + 1]` and `y = i`. Threads read it, because its
/// `is_in_memory` returns false.
struct Numbered(usize, [ColumnSpec; 2]);

fn numbered(n_rows: usize) -> Numbered {
    let x = ColumnSpec { name: "x".to_owned(), row: vec![2], dtype: DType::F32 };
    let y = ColumnSpec { name: "y".to_owned(), row: vec![], dtype: DType::I32 };
    Numbered(n_rows, [x, y])
}

impl Dataset for Numbered {
    fn n_rows(&self) -> usize {
        self.0
    }

    fn columns(&self) -> &[ColumnSpec] {
        &self.1
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        for (place, row) in rows.iter().enumerate() {
            let x = [2.0 * *row as f32, 2.0 * *row as f32 + 1.0];
            into[0].part(2 * place..2 * place + 2).f32s().copy_from_slice(&x);
            into[1].i32s()[place] = i32::try_from(*row).unwrap();
        }
        Ok(())
    }
}

/// Returns the same rows in memory.
fn table(n_rows: usize) -> Table {
    let x = (0..2 * n_rows).map(|it| it as f32).collect();
    let y = (0..i32::try_from(n_rows).unwrap()).collect();
    Table::new(vec![
        Column { name: "x".to_owned(), row: vec![2], values: Values::F32(x) },
        Column { name: "y".to_owned(), row: vec![], values: Values::I32(y) },
    ])
    .unwrap()
}

/// Returns the rows of the remaining batches of an epoch, without padding.
fn rows(loader: &mut DataLoader) -> Vec<Vec<i32>> {
    let rows = |batch: Result<soybean_data::Batch, Error>| {
        let batch = batch.unwrap();
        for (row, x) in batch.i32s(1).iter().zip(batch.f32s(0).chunks(2)) {
            assert_eq!(x, [2.0 * *row as f32, 2.0 * *row as f32 + 1.0]);
        }
        batch.i32s(1)[..batch.n_valid].to_vec()
    };
    loader.map(rows).collect()
}

fn padded(batch_rows: usize, seed: u64) -> LoaderOptions {
    LoaderOptions { last: Last::Pad, ..LoaderOptions::training(batch_rows, seed) }
}

#[test]
fn an_epoch_has_every_row_once_in_an_order_of_its_own() {
    let mut loader = DataLoader::new(numbered(10), padded(3, 1)).unwrap();
    let mut epoch = |number| {
        loader.start(number, 0);
        rows(&mut loader).concat()
    };
    let (first, second, again) = (epoch(0), epoch(1), epoch(0));
    assert_eq!(first, again);
    assert_ne!(first, second);
    // The order for a seed must never change, so that later versions can continue a run.
    assert_eq!(first, [6, 7, 2, 8, 9, 4, 5, 0, 1, 3]);
    for mut rows in [first, second] {
        rows.sort_unstable();
        assert_eq!(rows, (0..10).collect::<Vec<_>>());
    }
}

#[test]
fn the_last_rows_are_dropped_or_padded() {
    let options = LoaderOptions::training(4, 0);
    let mut loader = DataLoader::new(numbered(10), options.clone()).unwrap();
    assert_eq!((rows(&mut loader).len(), loader.n_batches()), (2, 2));
    assert!(loader.next().is_none());
    let options = LoaderOptions { order: RowOrder::Sequential, last: Last::Pad, ..options };
    let batches: Vec<_> =
        DataLoader::new(numbered(10), options).unwrap().map(Result::unwrap).collect();
    let about = |it: &soybean_data::Batch| (it.epoch, it.number, it.n_valid);
    assert_eq!(batches.iter().map(about).collect::<Vec<_>>(), [(0, 0, 4), (0, 1, 4), (0, 2, 2)]);
    assert_eq!(batches[2].views()[1], View::I32(&[8, 9, 9, 9]));
}

#[test]
fn threads_and_a_start_in_the_middle_change_nothing() {
    let options = LoaderOptions { n_threads: 0, ..padded(7, 5) };
    let mut loader = DataLoader::new(numbered(101), options.clone()).unwrap();
    let expected: Vec<_> = (0..3)
        .map(|epoch| {
            loader.start(epoch, 0);
            rows(&mut loader)
        })
        .collect();
    for (n_threads, n_ahead) in [(1, 1), (1, 4), (3, 2), (7, 16), (8, 16)] {
        let options = LoaderOptions { n_threads, n_ahead, ..options.clone() };
        let mut loader = if n_threads == 8 {
            DataLoader::new(table(101), options).unwrap()
        } else {
            DataLoader::new(numbered(101), options).unwrap()
        };
        for first in [0, 4, 14, 15] {
            for epoch in [2, 0, 1] {
                loader.start(epoch, first);
                // The order is the same after an epoch that was not finished.
                loader.next();
                loader.start(epoch, first);
                let expected = &expected[usize::try_from(epoch).unwrap()][first.min(15)..];
                assert_eq!(rows(&mut loader), expected, "{n_threads} threads, from {first}");
            }
        }
    }
}

#[test]
fn rows_that_are_not_needed_are_not_read() {
    struct Watched(Numbered, AtomicUsize);
    impl Dataset for Watched {
        fn n_rows(&self) -> usize {
            self.0.n_rows()
        }
        fn columns(&self) -> &[ColumnSpec] {
            self.0.columns()
        }
        fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
            self.1.fetch_add(rows.len(), Ordering::SeqCst);
            self.0.read(rows, into)
        }
    }
    let watched = Arc::new(Watched(numbered(10), AtomicUsize::new(0)));
    let options = LoaderOptions { rows: Some(vec![1..2, 4..6]), ..LoaderOptions::evaluation(6) };
    let mut loader = DataLoader::new(Arc::clone(&watched), options).unwrap();
    let first = loader.next().unwrap().unwrap();
    assert_eq!(first.i32s(1), [0, 1, 0, 0, 4, 5]);
    assert_eq!(first.f32s(0), [0.0, 0.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 8.0, 9.0, 10.0, 11.0]);
    // The last batch has rows 6 to 9, then padding.
    let second = loader.next().unwrap().unwrap();
    assert_eq!((second.i32s(1), second.n_valid), (&[0, 7, 0, 0, 9, 9][..], 4));
    assert_eq!(watched.1.load(Ordering::SeqCst), 3 + 2);
    for bad in [[0..3, 2..4], [0..1, 5..7], [4..6, 0..2]] {
        let options = LoaderOptions { rows: Some(bad.to_vec()), ..LoaderOptions::evaluation(6) };
        let error = DataLoader::new(numbered(10), options).unwrap_err().to_string();
        assert!(error.starts_with("expected ranges of the 6 rows of a batch"), "{error}");
    }
}

/// A dataset of squares, with an action at some rows.
struct Eventful<F>(Vec<ColumnSpec>, F);

impl<F: Fn(usize) -> Result<(), Error>> Eventful<F> {
    fn new(event: F) -> Self {
        Self(vec![ColumnSpec { name: "n".to_owned(), row: vec![], dtype: DType::I32 }], event)
    }
}

impl<F: Fn(usize) -> Result<(), Error> + Send + Sync> Dataset for Eventful<F> {
    fn n_rows(&self) -> usize {
        1000
    }

    fn columns(&self) -> &[ColumnSpec] {
        &self.0
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        for (to, row) in into[0].i32s().iter_mut().zip(rows) {
            (self.1)(*row)?;
            *to = i32::try_from(*row).unwrap();
        }
        Ok(())
    }
}

#[test]
fn an_error_or_a_panic_comes_once_at_its_batch() {
    let refuse = |row: usize| match row {
        437 => Err(Error::data("row 437 is bad")),
        _ => Ok(()),
    };
    let panic = |row: usize| if row == 437 { panic!("row {row} is bad") } else { Ok(()) };
    check_failure(Eventful::new(refuse), "row 437 is bad");
    check_failure(
        Eventful::new(panic),
        "epoch 0, batch 43: expected rows, found a panic: row 437 is bad",
    );
}

fn check_failure(dataset: impl Dataset + 'static, message: &str) {
    let dataset = Arc::new(dataset);
    for n_threads in [0, 1, 4] {
        let options = LoaderOptions { n_threads, ..LoaderOptions::evaluation(10) };
        let mut loader = DataLoader::new(Arc::clone(&dataset), options).unwrap();
        for (first, n_good) in [(0, 43), (40, 3)] {
            loader.start(0, first);
            let outcomes: Vec<_> = loader.by_ref().collect();
            assert_eq!(outcomes.len(), n_good + 1);
            assert!(outcomes[..n_good].iter().all(Result::is_ok));
            assert_eq!(outcomes[n_good].as_ref().unwrap_err().to_string(), message);
            assert!(loader.next().is_none());
        }
        loader.start(0, 44);
        assert_eq!(loader.filter(Result::is_ok).count(), 56);
    }
}

#[test]
fn memory_is_bounded_and_used_again() {
    let options = LoaderOptions { n_threads: 3, n_ahead: 5, ..LoaderOptions::evaluation(10) };
    let mut loader = DataLoader::new(numbered(5000), options).unwrap();
    // Five batches ahead, the one in use, and one more for reuse.
    let most = 7 * 10 * 3 * 4;
    for epoch in 0..3 {
        loader.start(epoch, 0);
        while let Some(batch) = loader.next() {
            batch.unwrap();
            assert!((1..=most).contains(&loader.n_bytes()), "{}", loader.n_bytes());
        }
    }
    // Batches that the caller keeps are additional.
    loader.start(0, 0);
    let kept: Vec<_> = loader.by_ref().take(100).map(Result::unwrap).collect();
    assert!((12_000..=12_000 + most).contains(&loader.n_bytes()), "{}", loader.n_bytes());
    for (number, batch) in kept.iter().enumerate() {
        assert_eq!(batch.i32s(1)[0], i32::try_from(10 * number).unwrap());
    }
    drop(kept);
    assert!(loader.n_bytes() <= most, "{}", loader.n_bytes());
}

#[test]
fn threads_read_ahead_and_end_with_the_loader() {
    let n_read = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&n_read);
    let slow = Eventful::new(move |_| {
        thread::sleep(Duration::from_millis(1));
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let options = LoaderOptions { n_threads: 2, n_ahead: 3, ..LoaderOptions::evaluation(20) };
    let mut loader = DataLoader::new(slow, options).unwrap();
    loader.start(0, 0);
    let started = Instant::now();
    while n_read.load(Ordering::SeqCst) < 60 && started.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(1));
    }
    let reading = started.elapsed();
    loader.next().unwrap().unwrap();
    assert!(loader.waited() < reading, "{:?} of {reading:?}", loader.waited());
    drop(loader);
    // Three batches ahead, and one more because the first was taken.
    let n_at_the_end = n_read.load(Ordering::SeqCst);
    assert!((60..=80).contains(&n_at_the_end), "{n_at_the_end}");
    thread::sleep(Duration::from_millis(30));
    assert_eq!(n_read.load(Ordering::SeqCst), n_at_the_end);
}

#[test]
fn a_split_keeps_every_row_on_one_side() {
    let split = || table(50).split(0.2, 3);
    let all_rows =
        |it: Subset| rows(&mut DataLoader::new(it, LoaderOptions::evaluation(8)).unwrap()).concat();
    let (train, held_out) = split();
    assert_eq!((train.n_rows(), held_out.n_rows()), (40, 10));
    let (train, held_out) = (all_rows(train), all_rows(held_out));
    assert_eq!((all_rows(split().0), all_rows(split().1)), (train.clone(), held_out.clone()));
    let mut all = [train, held_out].concat();
    all.sort_unstable();
    assert_eq!(all, (0..50).collect::<Vec<_>>());
    let error = Subset::new(Arc::new(numbered(5)), vec![0, 5]).unwrap_err();
    assert_eq!(error.to_string(), "expected rows in 0..5, found 5");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused =
        |n_rows, options| DataLoader::new(numbered(n_rows), options).unwrap_err().to_string();
    let message = "expected batches of at least one row, found a batch of";
    assert!(refused(2, LoaderOptions::evaluation(0)).starts_with(message));
    assert!(refused(0, LoaderOptions::evaluation(1)).starts_with(message));
    let error = refused(2, LoaderOptions::evaluation(usize::MAX / 2));
    assert!(error.starts_with("column `x`: expected rows that fit into memory, found"), "{error}");
    let unread = LoaderOptions { n_ahead: 0, ..LoaderOptions::evaluation(1) };
    assert!(refused(2, unread).starts_with("expected at least one batch ahead"));
}

/// Adds a random number of this stream to `x` of each row; `y` remains the number of the row.
fn augmented(stream: u64) -> Subset {
    let all = table(20).transform(stream, |row, random| {
        let noise = random.uniform();
        row[0].f32s().iter_mut().for_each(|it| *it += noise);
        assert_eq!(row[1].i32s().len(), 1);
    });
    Subset::new(Arc::new(all), (0..20).rev().collect()).unwrap()
}

/// Returns what was added to each row that was read in an epoch from a batch on, sorted by the
/// number of the row.
fn noise(stream: u64, options: LoaderOptions, epoch: u64, first_batch: usize) -> Vec<(i32, f32)> {
    let needed =
        options.rows.clone().unwrap_or_else(|| iter::once(0..options.batch_rows).collect());
    let mut loader = DataLoader::new(augmented(stream), options).unwrap();
    loader.start(epoch, first_batch);
    let mut noise = Vec::new();
    for batch in loader {
        let batch = batch.unwrap();
        for row in needed.iter().cloned().flatten() {
            let (x, y) = (&batch.f32s(0)[2 * row..2 * row + 2], batch.i32s(1)[row]);
            assert!((x[1] - x[0] - 1.0).abs() < 1e-5, "one number for all elements: {x:?}");
            noise.push((y, x[0] - 2.0 * y as f32));
        }
    }
    noise.sort_by_key(|it| it.0);
    noise
}

#[test]
fn transforms_depend_on_the_seed_the_epoch_the_stream_and_the_row_alone() {
    let options = |seed, n_threads| LoaderOptions { n_threads, ..LoaderOptions::training(5, seed) };
    let first = noise(7, options(1, 0), 0, 0);
    assert_eq!(first.len(), 20);
    assert_eq!(first, noise(7, options(1, 3), 0, 0));
    for other in [
        noise(7, options(1, 0), 1, 0),
        noise(8, options(1, 0), 0, 0),
        noise(7, options(2, 0), 0, 0),
    ] {
        assert!(first.iter().zip(&other).all(|(first, other)| first != other));
    }
    assert!(first.windows(2).all(|it| it[0].1 != it[1].1));
    // Batches of other sizes, and any order.
    assert_eq!(first, noise(7, LoaderOptions::training(4, 1), 0, 0));
    let sequential = LoaderOptions { order: RowOrder::Sequential, ..options(1, 0) };
    assert_eq!(first, noise(7, sequential, 0, 0));
}

#[test]
fn parts_of_an_epoch_have_the_transformed_rows_of_the_whole() {
    let options = LoaderOptions::training(5, 1);
    let whole = noise(7, options.clone(), 2, 0);
    let is_part = |part: &[(i32, f32)]| part.iter().all(|it| whole.contains(it));
    // A run that resumes within an epoch.
    let rest = noise(7, options.clone(), 2, 3);
    assert!(rest.len() == 5 && is_part(&rest), "{rest:?}");
    // Two processes that need different rows of each batch.
    let part = |rows: Vec<Range<usize>>| {
        let options = LoaderOptions { rows: Some(rows), ..options.clone() };
        noise(7, options, 2, 0)
    };
    let mut parts = [part(vec![0..1, 1..2]), part(vec![2..3, 3..5])].concat();
    parts.sort_by_key(|it| it.0);
    assert_eq!(parts, whole);
}
