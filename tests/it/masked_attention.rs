//! Attention with lengths, segments and a bias in one kernel, against the same computation by
//! products, a mask and a softmax.

use soybean::runtime::{Array, View};
use soybean_compiler::{Argument, Builder, Compiled, Optimizer, Strategy, Value};
use soybean_plan::{DType, Init, Kernel};
use soybean_test_support::models::{call, finish, numbers, single, trainer};

const BATCH: usize = 2;
const HEADS: usize = 12;
const LENGTH: usize = 64;
const FEATURES: usize = 8;
const SCALE: f64 = 0.3;

/// The options of a call, as the test's own mask reads them.
#[derive(Clone, Debug)]
struct Case {
    n_key_heads: usize,
    mask: Argument,
    segments: Segments,
    bias: Option<(Vec<usize>, Origin)>,
}

#[derive(Clone, Copy, Debug)]
enum Segments {
    All,
    /// Of each row.
    Lengths([i32; BATCH]),
    /// The position from which on the next segment begins, in each row.
    Packed([usize; BATCH]),
}

#[derive(Clone, Copy, Debug)]
enum Origin {
    Batch,
    Trained,
    Frozen,
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
        by_position
            && match self.segments {
                Segments::All => true,
                Segments::Lengths(lengths) => key < usize::try_from(lengths[row]).unwrap(),
                Segments::Packed(starts) => (key < starts[row]) == (query < starts[row]),
            }
    }

    /// Returns the integers of the batch.
    fn integers(&self) -> (Vec<usize>, Vec<i32>) {
        match self.segments {
            Segments::All => (vec![1], vec![0]),
            Segments::Lengths(lengths) => (vec![BATCH], lengths.to_vec()),
            Segments::Packed(starts) => {
                let segment = |at: usize| i32::from(at % LENGTH >= starts[at / LENGTH]) - 7;
                (vec![BATCH, LENGTH], (0..BATCH * LENGTH).map(segment).collect())
            }
        }
    }

    fn shapes(&self) -> [(&'static str, [usize; 4]); 3] {
        let keys = [BATCH, self.n_key_heads, LENGTH, FEATURES];
        [("query", [BATCH, HEADS, LENGTH, FEATURES]), ("key", keys), ("value", keys)]
    }

    /// Builds a model whose loss is a weighted sum of attention over its parameters.
    fn compile(
        &self,
        n_gpus: usize,
        attend: impl FnOnce(&mut Builder, [Value; 3], [Argument; 3]) -> Value,
    ) -> Compiled {
        let mut builder = Builder::new();
        let weights = builder.input("weights", DType::F32, &self.shapes()[0].1);
        let seen = builder.input("seen", DType::F32, &[BATCH, 1, LENGTH, LENGTH]);
        let integers = builder.input("integers", DType::I32, &self.integers().0);
        let mut freeze = Vec::new();
        let bias = match &self.bias {
            None => Argument::Float(0.0),
            Some((shape, Origin::Batch)) => {
                Argument::Tensor(builder.input("bias", DType::F32, shape))
            }
            Some((shape, origin)) => {
                if matches!(origin, Origin::Frozen) {
                    freeze.push("bias".to_owned());
                }
                Argument::Tensor(builder.parameter("bias", shape, Init::Constant(0.0)))
            }
        };
        let operands =
            self.shapes().map(|(name, it)| builder.parameter(name, &it, Init::Constant(0.0)));
        let masks = [Argument::Tensor(seen), Argument::Tensor(integers), bias];
        let result = attend(&mut builder, operands, masks);
        let factors = [Argument::Tensor(result), Argument::Tensor(weights)];
        let weighted = call(&mut builder, "mul", &factors);
        let loss = call(&mut builder, "sum", &[Argument::Tensor(weighted), Argument::All]);
        let outputs = [("result".to_owned(), result)];
        let optimizer = Optimizer { freeze, ..Optimizer::default() };
        finish(builder, loss, &outputs, n_gpus, Strategy::Auto, optimizer)
    }

    fn fused(&self, n_gpus: usize) -> Compiled {
        self.compile(n_gpus, |builder, operands, [_, integers, bias]| {
            let segments = match self.segments {
                Segments::All => Argument::All,
                Segments::Lengths(_) => integers,
                Segments::Packed(_) => Argument::List(vec![integers.clone(), integers]),
            };
            let [query, key, value] = operands.map(Argument::Tensor);
            let options = [self.mask.clone(), segments, bias];
            let [mask, segments, bias] = options;
            let [scale, p] = [SCALE, 0.0].map(Argument::Float);
            let all = [query, key, value, mask, segments, bias, scale, p];
            call(builder, "attention_with", &all)
        })
    }

    fn composed(&self) -> Compiled {
        self.compile(1, |builder, [query, key, value], [seen, _, bias]| {
            let group = i64::try_from(HEADS / self.n_key_heads).unwrap();
            let [key, value] = [key, value].map(|it| {
                let all = [Argument::Tensor(it), Argument::Integer(group), Argument::Integer(1)];
                Argument::Tensor(call(builder, "repeat_interleave", &all))
            });
            let mut next =
                |name: &str, all: &[Argument]| Argument::Tensor(call(builder, name, all));
            let turned = next("transpose", &[key]);
            let products = next("matmul", &[Argument::Tensor(query), turned]);
            let scaled = next("mul", &[products, Argument::Float(SCALE)]);
            let scores = next("add", &[scaled, bias]);
            let masked = next("where_", &[scores, seen.clone(), Argument::Float(-1e30)]);
            let softmax = next("softmax", &[masked, Argument::Integer(-1)]);
            let weights = next("mul", &[softmax, seen]);
            let Argument::Tensor(result) = next("matmul", &[weights, value]) else {
                unreachable!("products are tensors")
            };
            result
        })
    }

    /// Returns the result, and the parameters after one step.
    fn run(&self, compiled: &Compiled) -> Vec<Array> {
        let mut trainer = trainer(compiled, 1.0);
        let array = |seed: usize, shape: &[usize]| {
            let data = single(&numbers(shape.iter().product(), seed));
            Array { shape: shape.to_vec(), data, ..Array::default() }
        };
        let of_bias = self.bias.as_ref().map(|(shape, _)| array(4, shape));
        let mut values: Vec<(String, Array)> = self
            .shapes()
            .iter()
            .enumerate()
            .map(|(seed, (name, shape))| ((*name).to_owned(), array(seed, shape)))
            .collect();
        let is_input = matches!(self.bias, Some((_, Origin::Batch)));
        if let Some(bias) = of_bias.clone().filter(|_| !is_input) {
            values.insert(0, ("bias".to_owned(), bias));
        }
        trainer.set_parameters(&values).unwrap();
        let weights = array(3, &self.shapes()[0].1).data;
        let seen = |at: usize| {
            let (row, query, key) = (at / (LENGTH * LENGTH), at / LENGTH % LENGTH, at % LENGTH);
            f32::from(u8::from(self.is_seen(row, query, key)))
        };
        let seen: Vec<f32> = (0..BATCH * LENGTH * LENGTH).map(seen).collect();
        let integers = self.integers().1;
        let mut batch = vec![View::F32(&weights), View::F32(&seen), View::I32(&integers)];
        if let Some(bias) = of_bias.as_ref().filter(|_| is_input) {
            batch.push(View::F32(&bias.data));
        }
        let result = trainer.evaluate(&batch).unwrap().outputs.remove(0);
        trainer.step(&batch).unwrap();
        let after = trainer.parameters().unwrap().into_iter().map(|it| it.1);
        [result].into_iter().chain(after).collect()
    }

    fn check(&self) {
        let expected = self.run(&self.composed());
        for n_gpus in [1, 2, 4, 6, 8] {
            let fused = self.fused(n_gpus);
            let n_of =
                |is: fn(&Kernel) -> bool| fused.program.kernels.iter().filter(|it| is(it)).count();
            assert_eq!(n_of(|it| matches!(it, Kernel::Attend(_))), 2, "{self:?}");
            // Only the gradient of a bias takes products.
            let has_products = n_of(|it| matches!(it, Kernel::Contract(_))) > 0;
            let is_trained = matches!(self.bias, Some((_, Origin::Trained)));
            assert_eq!(has_products, is_trained, "{self:?}");
            for (found, expected) in self.run(&fused).iter().zip(&expected) {
                assert_eq!(found.data.len(), expected.data.len());
                for (found, expected) in found.data.iter().zip(&expected.data) {
                    // Sums of at most 12 x 64 products in single precision, in another order.
                    let is_close = (found - expected).abs() <= 2e-5 * expected.abs().max(1.0);
                    assert!(is_close, "{n_gpus} devices: {found}, not {expected}: {self:?}");
                }
            }
        }
    }
}

fn causal() -> Argument {
    Argument::Text("causal".to_owned())
}

fn all() -> Argument {
    Argument::Text("none".to_owned())
}

#[test]
fn queries_see_the_keys_of_their_row() {
    for (n_key_heads, mask) in [(12, all()), (4, causal()), (1, all())] {
        let segments = Segments::Lengths([0, 45]);
        Case { n_key_heads, mask, segments, bias: None }.check();
    }
}

#[test]
fn queries_see_the_keys_of_their_segment() {
    for (n_key_heads, mask) in [(12, causal()), (4, Argument::Integer(9)), (1, all())] {
        let segments = Segments::Packed([17, 64]);
        Case { n_key_heads, mask, segments, bias: None }.check();
    }
}

#[test]
fn a_bias_is_added_to_the_scores() {
    let cases = [
        (vec![HEADS, 1, LENGTH], Origin::Batch, 12),
        (vec![LENGTH, LENGTH], Origin::Frozen, 4),
        (vec![BATCH, 1, 1, LENGTH], Origin::Batch, 1),
        (vec![BATCH, HEADS, LENGTH, LENGTH], Origin::Batch, 4),
        (vec![HEADS, LENGTH, LENGTH], Origin::Trained, 4),
        (vec![BATCH, 1, 1, LENGTH], Origin::Trained, 12),
    ];
    for (shape, origin, n_key_heads) in cases {
        for (mask, segments) in
            [(causal(), Segments::Packed([30, 1])), (all(), Segments::Lengths([64, 5]))]
        {
            let bias = Some((shape.clone(), origin));
            Case { n_key_heads, mask, segments, bias }.check();
        }
        let bias = Some((shape, origin));
        Case { n_key_heads, mask: Argument::Integer(20), segments: Segments::All, bias }.check();
    }
}
