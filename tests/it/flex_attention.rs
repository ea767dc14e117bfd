//! Attention whose scores are a function of heads and positions, in one kernel, against the same
//! function of all scores between products and a softmax.

use soybean::runtime::{Array, View};
use soybean_compiler::{Argument, Builder, Compiled, Optimizer, SCORE_INPUTS, Strategy, Value};
use soybean_plan::{DType, Init, Kernel};
use soybean_test_support::models::{call, finish, numbers, single, trainer};

const LENGTH: usize = 64;
const FEATURES: usize = 8;

/// Returns a score, given the score, the head, and the positions of query and key.
type Function = fn(&mut Builder, [Argument; 4]) -> Argument;

/// Computes `score - (query - key) 2^(-8 (head + 1) / 12)`. Source: Press, Smith & Lewis 2022.
fn linear_bias(builder: &mut Builder, [score, head, query, key]: [Argument; 4]) -> Argument {
    let mut next = |name: &str, all: &[Argument]| Argument::Tensor(call(builder, name, all));
    let number = next("add", &[head, Argument::Integer(1)]);
    let number = next("to_f32", &[number]);
    let exponent = Argument::Float(-8.0 / 12.0 * std::f64::consts::LN_2);
    let exponent = next("mul", &[number, exponent]);
    let slope = next("exp", &[exponent]);
    let distance = next("sub", &[query, key]);
    let distance = next("to_f32", &[distance]);
    let bias = next("mul", &[distance, slope]);
    next("sub", &[score, bias])
}

/// Computes `2 tanh(score / 2)`, as Gemma 2 does with larger numbers.
fn soft_cap(builder: &mut Builder, [score, ..]: [Argument; 4]) -> Argument {
    let mut next = |name: &str, all: &[Argument]| Argument::Tensor(call(builder, name, all));
    let half = next("div", &[score, Argument::Float(2.0)]);
    let tanh = next("tanh", &[half]);
    next("mul", &[tanh, Argument::Float(2.0)])
}

/// Hides keys at a distance that 3 does not divide.
fn dilated(builder: &mut Builder, [score, _, query, key]: [Argument; 4]) -> Argument {
    let mut next = |name: &str, all: &[Argument]| Argument::Tensor(call(builder, name, all));
    let distance = next("sub", &[query, key]);
    let rest = next("remainder", &[distance, Argument::Integer(3)]);
    let is_seen = next("eq", &[rest, Argument::Integer(0)]);
    next("where_", &[score, is_seen, Argument::Float(f64::NEG_INFINITY)])
}

/// Applies all three, and hides keys of other blocks of 16 positions than the query's and the
/// first.
fn all_at_once(builder: &mut Builder, inputs: [Argument; 4]) -> Argument {
    let [_, head, query, key] = inputs.clone();
    let mut score = soft_cap(builder, inputs);
    for function in [linear_bias, dilated] {
        score = function(builder, [score, head.clone(), query.clone(), key.clone()]);
    }
    let mut next = |name: &str, all: &[Argument]| Argument::Tensor(call(builder, name, all));
    let blocks = [query, key].map(|it| next("floor_divide", &[it, Argument::Integer(16)]));
    let is_first = next("eq", &[blocks[1].clone(), Argument::Integer(0)]);
    let is_own = next("eq", &blocks);
    let is_seen = next("logical_or", &[is_own, is_first]);
    next("where_", &[score, is_seen, Argument::Float(f64::NEG_INFINITY)])
}

#[derive(Clone, Debug)]
struct Case {
    batch: usize,
    heads: usize,
    n_key_heads: usize,
    mask: Argument,
    /// The number of keys that queries of each row see.
    lengths: Option<Vec<i32>>,
    function: Function,
}

impl Case {
    fn is_seen(&self, row: usize, query: usize, key: usize) -> bool {
        let by_position = match self.mask {
            Argument::Integer(window) => {
                key <= query && query - key < usize::try_from(window).unwrap()
            }
            Argument::Text(ref text) if text == "causal" => key <= query,
            _ => true,
        };
        let lengths = self.lengths.as_ref();
        by_position && lengths.is_none_or(|it| key < usize::try_from(it[row]).unwrap())
    }

    fn shapes(&self) -> [(&'static str, [usize; 4]); 3] {
        let keys = [self.batch, self.n_key_heads, LENGTH, FEATURES];
        [("query", [self.batch, self.heads, LENGTH, FEATURES]), ("key", keys), ("value", keys)]
    }

    /// Builds a model whose loss is a weighted sum of attention over its parameters.
    fn compile(
        &self,
        n_gpus: usize,
        attend: impl FnOnce(&mut Builder, [Value; 3], [Argument; 2]) -> Value,
    ) -> Compiled {
        let mut builder = Builder::new();
        let weights = builder.input("weights", DType::F32, &self.shapes()[0].1);
        let seen = builder.input("seen", DType::F32, &[self.batch, 1, LENGTH, LENGTH]);
        let lengths = builder.input("lengths", DType::I32, &[self.batch]);
        let operands =
            self.shapes().map(|(name, it)| builder.parameter(name, &it, Init::Constant(0.0)));
        let masks = [seen, lengths].map(Argument::Tensor);
        let result = attend(&mut builder, operands, masks);
        let factors = [Argument::Tensor(result), Argument::Tensor(weights)];
        let weighted = call(&mut builder, "mul", &factors);
        let loss = call(&mut builder, "sum", &[Argument::Tensor(weighted), Argument::All]);
        let outputs = [("result".to_owned(), result)];
        finish(builder, loss, &outputs, n_gpus, Strategy::Auto, Optimizer::default())
    }

    fn fused(&self, n_gpus: usize) -> Compiled {
        self.compile(n_gpus, |builder, operands, [_, lengths]| {
            let Ok(Argument::List(inputs)) = builder.call(SCORE_INPUTS, &[]) else {
                unreachable!("the call has no faults")
            };
            let score = (self.function)(builder, inputs.try_into().unwrap());
            let [query, key, value] = operands.map(Argument::Tensor);
            let segments = if self.lengths.is_some() { lengths } else { Argument::All };
            let all = [query, key, value, self.mask.clone(), segments, score];
            call(builder, "flex_attention", &all)
        })
    }

    fn composed(&self) -> Compiled {
        self.compile(1, |builder, [query, key, value], [seen, _]| {
            let integer = |it: usize| Argument::Integer(i64::try_from(it).unwrap());
            let group = integer(self.heads / self.n_key_heads);
            let [key, value] = [key, value].map(|it| {
                let all = [Argument::Tensor(it), group.clone(), Argument::Integer(1)];
                Argument::Tensor(call(builder, "repeat_interleave", &all))
            });
            let next = |builder: &mut Builder, name: &str, all: &[Argument]| {
                Argument::Tensor(call(builder, name, all))
            };
            let turned = next(builder, "transpose", &[key]);
            let products = next(builder, "matmul", &[Argument::Tensor(query), turned]);
            let scale = Argument::Float(1.0 / (FEATURES as f64).sqrt());
            let score = next(builder, "mul", &[products, scale]);
            let [head, query, key] =
                [(self.heads, 2), (LENGTH, 1), (LENGTH, 0)].map(|(n, n_after)| {
                    let indices = next(builder, "arange", &[integer(n)]);
                    let shape = [vec![integer(n)], vec![Argument::Integer(1); n_after]].concat();
                    next(builder, "reshape", &[indices, Argument::List(shape)])
                });
            let score = (self.function)(builder, [score, head, query, key]);
            let hidden = Argument::Float(-1e30);
            let masked = next(builder, "where_", &[score, seen.clone(), hidden]);
            let softmax = next(builder, "softmax", &[masked, Argument::Integer(-1)]);
            let weights = next(builder, "mul", &[softmax, seen]);
            call(builder, "matmul", &[weights, value])
        })
    }

    /// Returns the loss and the result, and the parameters after one step.
    fn run(&self, compiled: &Compiled) -> Vec<Vec<f32>> {
        let mut trainer = trainer(compiled, 1.0);
        let array = |seed: usize, shape: &[usize]| {
            let data = single(&numbers(shape.iter().product(), seed));
            Array { shape: shape.to_vec(), data, ..Array::default() }
        };
        let shapes = self.shapes().into_iter().enumerate();
        let values: Vec<(String, Array)> =
            shapes.map(|(seed, (name, shape))| (name.to_owned(), array(seed, &shape))).collect();
        trainer.set_parameters(&values).unwrap();
        let weights = array(3, &self.shapes()[0].1).data;
        let seen = |at: usize| {
            let (row, query, key) = (at / (LENGTH * LENGTH), at / LENGTH % LENGTH, at % LENGTH);
            f32::from(u8::from(self.is_seen(row, query, key)))
        };
        let seen: Vec<f32> = (0..self.batch * LENGTH * LENGTH).map(seen).collect();
        let lengths = self.lengths.clone().unwrap_or_else(|| vec![0; self.batch]);
        let batch = [View::F32(&weights), View::F32(&seen), View::I32(&lengths)];
        let evaluated = trainer.evaluate(&batch).unwrap();
        let mut all = vec![vec![evaluated.loss], evaluated.outputs[0].data.clone()];
        trainer.step(&batch).unwrap();
        all.extend(trainer.parameters().unwrap().into_iter().map(|it| it.1.data));
        all
    }

    fn check(&self) {
        let expected = self.run(&self.composed());
        for n_gpus in [1, 2, 4, 6, 8] {
            let fused = self.fused(n_gpus);
            let kernels: Vec<_> = fused.program.kernels.iter().collect();
            let attentions = kernels.iter().filter_map(|it| match it {
                Kernel::Attend(it) => Some(it),
                _ => None,
            });
            assert_eq!(attentions.clone().filter(|it| it.score.is_some()).count(), 2, "{self:?}");
            assert!(!kernels.iter().any(|it| matches!(it, Kernel::Contract(_))), "{self:?}");
            // One head of one row can only be split along the sequence.
            if (self.batch, self.heads, n_gpus) == (1, 1, 4) {
                assert!(attentions.clone().all(|it| it.queries < LENGTH), "{self:?}");
            }
            for (found, expected) in self.run(&fused).iter().zip(&expected) {
                assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(expected) {
                    // Sums of at most 12 x 64 products in single precision, in another order.
                    let is_close = (found - expected).abs() <= 2e-5 * expected.abs().max(1.0);
                    assert!(is_close, "{n_gpus} devices: {found}, not {expected}: {self:?}");
                }
            }
        }
    }
}

/// Checks a function for heads that share keys and for one sequence, with and without masks.
fn check(function: Function, lengths: Option<Vec<i32>>) {
    let causal = || Argument::Text("causal".to_owned());
    let sizes = [(2, 12, 12, causal()), (2, 12, 4, Argument::Integer(25)), (2, 4, 1, causal())];
    for (batch, heads, n_key_heads, mask) in sizes {
        Case { batch, heads, n_key_heads, mask, lengths: lengths.clone(), function }.check();
    }
    for mask in [Argument::Text("none".to_owned()), causal()] {
        let lengths = lengths.as_ref().map(|it| it[..1].to_vec());
        Case { batch: 1, heads: 1, n_key_heads: 1, mask, lengths, function }.check();
    }
}

#[test]
fn heads_have_slopes_of_their_own() {
    check(linear_bias, None);
}

#[test]
fn scores_are_capped() {
    check(soft_cap, None);
}

#[test]
fn keys_are_hidden_by_their_distance() {
    check(dilated, None);
}

#[test]
fn functions_and_masks_compose() {
    check(all_at_once, Some(vec![64, 5]));
}

#[soybean::model(gpus = 4)]
mod capped {
    use soybean::prelude::*;

    const CAP: f64 = 5.0;

    fn slope(head: Tensor) -> Tensor {
        ((head + 1).to_f32() * -2.0_f64.ln()).exp()
    }

    pub(crate) fn forward(x: Tensor<f32, 2, 4, 64, 8>) -> (Tensor, Tensor) {
        let (query, window) = (x * param("scale", [8], ones()), 20);
        let near = query.flex_attention(x, x, "causal", .., |score, head, query, key| {
            let distance = query - key;
            let is_near = distance.lt(window) | key.lt(4);
            let biased = (score / CAP).tanh() * CAP - distance.to_f32() * slope(head);
            biased.where_(is_near, f64::NEG_INFINITY)
        });
        // Few scores, without one kernel.
        let first = query.slice(2, 0, 6).flex_attention(
            x.slice(2, 0, 6),
            x.slice(2, 0, 6),
            "none",
            ..,
            |score, _, _, key| score.where_(key.ne(1), f64::NEG_INFINITY),
        );
        (near.square().mean(..) + first.square().mean(..), near)
    }
}

#[test]
fn closures_of_a_model_compute_what_the_eager_tensor_computes() {
    let mut trainer = capped::Trainer::new(soybean::Config::default()).unwrap();
    let x = single(&numbers(2 * 4 * 64 * 8, 7));
    let batch = capped::Batch { x: &x };
    let eager = trainer.eager(&batch).unwrap();
    let found = trainer.evaluate(&batch).unwrap();
    // The eager tensor's loss is its first output.
    let found = [found.loss].into_iter().chain(found.outputs[0].data.clone());
    let expected = eager.outputs.iter().flat_map(|it| it.data.clone());
    let (found, expected): (Vec<f32>, Vec<f32>) = (found.collect(), expected.collect());
    assert_eq!(found.len(), expected.len());
    // Sums of 64 products in single precision.
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
    }
    assert!(trainer.step(&batch).unwrap().is_finite());
}
