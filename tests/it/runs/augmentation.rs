//! Rows that differ from epoch to epoch do not depend on devices, and survive interruptions.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use soybean::{
    Config, End, Error, Event, Flow, Resume, Split, TrainConfig,
    data::{ColumnSpec, Dataset, Pass, ViewMut},
};

use super::small::{config, data, folder, lines, newest, state, trainer};

/// The same model on other numbers of devices.
#[soybean::model(gpus = 1)]
mod on_one {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 8, 16>, y: Tensor<i32, 8>) -> Tensor {
        nn::linear(x, 5).cross_entropy(y)
    }
}

#[soybean::model(gpus = 8)]
mod on_eight {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 8, 16>, y: Tensor<i32, 8>) -> Tensor {
        nn::linear(x, 5).cross_entropy(y)
    }
}

/// The bits of the numbers of each row, by epoch and row.
type Seen = BTreeMap<(u64, usize), Vec<u32>>;

/// Notes the rows that are read from another dataset.
struct Watched {
    inner: Arc<dyn Dataset>,
    seen: Arc<Mutex<Seen>>,
}

impl Dataset for Watched {
    fn n_rows(&self) -> usize {
        self.inner.n_rows()
    }

    fn columns(&self) -> &[ColumnSpec] {
        self.inner.columns()
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        self.read_in_pass(Pass::default(), rows, into)
    }

    fn read_in_pass(
        &self,
        pass: Pass,
        rows: &[usize],
        into: &mut [ViewMut<'_>],
    ) -> Result<(), Error> {
        self.inner.read_in_pass(pass, rows, into)?;
        let mut seen = self.seen.lock().unwrap();
        for (row, x) in rows.iter().zip(into[0].f32s().chunks(16)) {
            let bits = x.iter().map(|it| it.to_bits()).collect();
            let before = seen.insert((pass.epoch, *row), bits);
            assert!(before.is_none_or(|it| it == seen[&(pass.epoch, *row)]), "row {row}");
        }
        Ok(())
    }
}

/// Returns data whose training rows get other noise in each epoch.
fn noisy() -> Split {
    let Split { train, held_out } = data();
    let train = train.transform(0, |row, random| {
        row[0].f32s().iter_mut().for_each(|it| *it += 0.3 * random.normal());
    });
    Split { train: Arc::new(train), held_out }
}

/// Returns noisy data, and the training rows that were read.
fn watched() -> (Split, Arc<Mutex<Seen>>) {
    let (Split { train, held_out }, seen) = (noisy(), Arc::default());
    let watched = Watched { inner: train, seen: Arc::clone(&seen) };
    (Split { train: Arc::new(watched), held_out }, seen)
}

#[test]
fn rows_do_not_depend_on_the_number_of_devices() {
    let seeded = |seed| TrainConfig {
        trainer: Config { seed, ..Config::default() },
        ..TrainConfig::new(3, 0.1)
    };
    let seen = |seed, n_devices| {
        let (config, (split, seen)) = (seeded(seed), watched());
        match n_devices {
            1 => on_one::Trainer::new(config.trainer.clone()).unwrap().fit(&config, &split),
            _ => on_eight::Trainer::new(config.trainer.clone()).unwrap().fit(&config, &split),
        }
        .unwrap();
        let seen = seen.lock().unwrap().clone();
        // Eight batches of eight of the seventy rows, in each of three epochs.
        assert!(seen.len() >= 3 * 64, "{}", seen.len());
        seen
    };
    let (one, eight, other) = (seen(5, 1), seen(5, 8), seen(6, 8));
    assert!(one == eight);
    let shared: Vec<_> = one.keys().filter(|it| other.contains_key(it)).collect();
    assert!(shared.len() > 100 && shared.iter().all(|it| one[it] != other[it]));
    let differs = |row| one.get(&(0, row)).zip(one.get(&(1, row))).is_some_and(|it| it.0 != it.1);
    assert!((0..70).filter(|row| differs(*row)).count() > 50, "epochs have noise of their own");
}

#[test]
fn a_run_resumed_within_an_epoch_sees_the_same_noise() {
    let out = folder("noise");
    let expected = TrainConfig { checkpoint_every: Some(3), ..config(&out) };
    trainer(&expected).fit(&expected, &noisy()).unwrap();
    for stop in [3, 13, 22, 37] {
        let again = folder("noise-resumed");
        let config =
            TrainConfig { resume: Resume::Auto, out: Some(again.clone()), ..expected.clone() };
        let stopped = trainer(&config).fit_watched(&config, &noisy(), |event| match event {
            Event::Step(record) if record.step == stop => Flow::Stop,
            _ => Flow::Continue,
        });
        assert_eq!(stopped.unwrap().end, End::Stopped);
        trainer(&config).fit(&config, &noisy()).unwrap();
        assert!(state(&newest(&again)) == state(&newest(&out)), "stopped after step {stop}");
        assert_eq!(lines(&again), lines(&out), "stopped after step {stop}");
    }
    let other = TrainConfig { out: Some(folder("noise-none")), ..expected };
    trainer(&other).fit(&other, &data()).unwrap();
    assert!(state(&newest(other.out.as_deref().unwrap())) != state(&newest(&out)));
}
