//! Attention in sliding windows whose queries are split: training with halos of keys is training on
//! one device.

use soybean::runtime::{Array, View};
use soybean_compiler::{Argument, Builder, Compiled, Optimizer, Strategy};
use soybean_plan::{DType, Init, Kernel};
use soybean_test_support::models::{call, finish, numbers, single, trainer};

const WIDTH: usize = 4;

/// The sizes of a model.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    texts: usize,
    tokens: usize,
    /// The heads of queries, which share one head of keys.
    n_heads: usize,
    window: usize,
}

impl Sizes {
    /// Returns the shapes of the weights for queries, keys and values.
    fn weights(self) -> [(&'static str, [usize; 3]); 3] {
        let of = |n_heads| [n_heads, WIDTH, WIDTH];
        [("query", of(self.n_heads)), ("key", of(1)), ("value", of(1))]
    }

    /// Compiles two layers of attention, of which the second reads the first.
    fn compile(self, n_gpus: usize) -> Compiled {
        let Self { texts, tokens, window, .. } = self;
        let mut builder = Builder::new();
        let x = builder.input("x", DType::F32, &[texts, 1, tokens, WIDTH]);
        let weights = self.weights().map(|(name, shape)| {
            Argument::Tensor(builder.parameter(name, &shape, Init::Constant(0.0)))
        });
        let window = Argument::Integer(i64::try_from(window).unwrap());
        let mut attended = x;
        for _ in 0..2 {
            let [query, key, value] = weights.clone().map(|weight| {
                let operands = [Argument::Tensor(attended), weight];
                Argument::Tensor(call(&mut builder, "matmul", &operands))
            });
            let arguments = [query, key, value, window.clone()];
            let heads = call(&mut builder, "sliding_window_attention", &arguments);
            let of_dim = |it| [Argument::Tensor(it), Argument::Integer(1)];
            let mean = call(&mut builder, "mean", &of_dim(heads));
            attended = call(&mut builder, "unsqueeze", &of_dim(mean));
        }
        let square = [Argument::Tensor(attended), Argument::Integer(2)];
        let square = Argument::Tensor(call(&mut builder, "powi", &square));
        let loss = call(&mut builder, "mean", &[square, Argument::All]);
        let outputs = [("attended".to_owned(), attended)];
        finish(builder, loss, &outputs, n_gpus, Strategy::Auto, Optimizer::default())
    }

    /// Returns the results of an evaluation, the losses of three steps, and the weights after them.
    fn run(self, compiled: &Compiled) -> Vec<f32> {
        let mut trainer = trainer(compiled, 0.5);
        let values = self.weights().into_iter().enumerate().map(|(seed, (name, shape))| {
            let data = single(&numbers(shape.iter().product(), seed));
            (name.to_owned(), Array { shape: shape.to_vec(), data, ..Array::default() })
        });
        trainer.set_parameters(&values.collect::<Vec<_>>()).unwrap();
        let x = single(&numbers(self.texts * self.tokens * WIDTH, 7));
        let batch = [View::F32(&x)];
        let mut found = trainer.evaluate(&batch).unwrap().outputs.remove(0).data;
        let losses = [(); 3].map(|()| trainer.step(&batch).unwrap());
        assert!(losses[2] < 0.95 * losses[0], "{self:?}: {losses:?}");
        found.extend(losses);
        found.extend(trainer.parameters().unwrap().into_iter().flat_map(|it| it.1.data));
        found
    }
}

/// Checks a model on several devices, whose attention reads halos or not.
fn check(sizes: Sizes, n_gpus: usize, has_halo: bool) {
    let compiled = sizes.compile(n_gpus);
    let mut attentions = compiled.program.kernels.iter().filter_map(|it| match it {
        Kernel::Attend(it) => Some(it),
        _ => None,
    });
    assert!(attentions.all(|it| it.halo.is_some() == has_halo), "{sizes:?} on {n_gpus}");
    let (found, expected) = (sizes.run(&compiled), sizes.run(&sizes.compile(1)));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        // Sums of some hundred terms in single precision, in another order.
        let is_close = (found - expected).abs() <= 2e-5 * expected.abs().max(1.0);
        assert!(is_close, "{sizes:?} on {n_gpus}: {found} instead of {expected}");
    }
}

#[test]
fn ranks_train_with_the_keys_of_a_window() {
    for n_gpus in [2, 3, 4, 8] {
        // One key, parts longer than a window, and windows of several parts.
        for (n_heads, window) in [(1, 1), (1, 2), (1, 20), (1, 73), (3, 19), (3, 49)] {
            check(Sizes { texts: 1, tokens: 288, n_heads, window }, n_gpus, true);
        }
        let long = Sizes { texts: 1, tokens: 288, n_heads: 1, window: 74 };
        check(long, n_gpus, false);
    }
}

#[test]
fn texts_and_sequences_are_split_together() {
    // Two texts on six devices: three parts of each.
    check(Sizes { texts: 2, tokens: 288, n_heads: 1, window: 40 }, 6, true);
    // The length has the factor 2 once.
    check(Sizes { texts: 1, tokens: 90, n_heads: 1, window: 12 }, 4, true);
    // No device has a part.
    check(Sizes { texts: 1, tokens: 67, n_heads: 1, window: 12 }, 4, false);
}
