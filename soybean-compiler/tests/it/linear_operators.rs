//! Operators that work on terms of sums: for each kind a network in which that moves less than any
//! plan without, and the plan that the search finds for it.

use soybean_compiler::{
    Argument, Builder, Network, Optimizer, Options, Padding, SearchRequest, Strategy, Value,
    build_network, compile, round,
    tiling::{TiledNetwork, search_alone},
};
use soybean_plan::{DType, Init, Mesh, Mode, Precision};

use crate::support::{
    brute_force::{least_bytes, least_bytes_without_terms},
    call,
};

/// The rows and columns of sums, which no number of ranks below divides.
const ROWS: usize = 7;
const COLUMNS: usize = 5;
/// The dim over which products add up.
const DEPTH: usize = 480;

/// A predictor under construction.
struct Sums {
    builder: Builder,
    x: Value,
    n_parameters: usize,
}

impl Sums {
    fn parameter(&mut self, shape: &[usize]) -> Argument {
        self.n_parameters += 1;
        let name = format!("w{}", self.n_parameters);
        Argument::Tensor(self.builder.parameter(&name, shape, Init::Constant(0.1)))
    }

    fn apply(&mut self, operator: &str, arguments: &[Argument]) -> Argument {
        Argument::Tensor(call(&mut self.builder, operator, arguments))
    }

    /// Returns a product that is a sum over the depth.
    fn sum(&mut self) -> Argument {
        let weight = self.parameter(&[DEPTH, COLUMNS]);
        self.apply("matmul", &[Argument::Tensor(self.x), weight])
    }
}

fn network(build: impl Fn(&mut Sums) -> Argument) -> Network {
    let mut builder = Builder::in_mode(Mode::Inference);
    let x = builder.input("x", DType::F32, &[ROWS, DEPTH]);
    let mut sums = Sums { builder, x, n_parameters: 0 };
    let Argument::Tensor(result) = build(&mut sums) else { panic!("a tensor") };
    let outputs = [("result".to_owned(), result)];
    build_network(sums.builder, None, &outputs, &Optimizer::default()).unwrap()
}

/// Checks that the search finds the least bytes by an operator of this kind on terms, and that no
/// plan without terms moves as few. Returns the bytes of both on two ranks.
fn check(kind: &str, network: &Network) -> [u64; 2] {
    for n_ranks in [2, 4, 6] {
        let found = search_alone(network, Mesh::new(n_ranks), &Strategy::Auto.into());
        let mesh = found.tiled.mesh;
        let least = least_bytes(network, &mesh, usize::MAX).unwrap();
        let without = least_bytes_without_terms(network, &mesh);
        assert!(found.is_optimal && found.tiled.bytes() == least, "{}", found.tiled);
        assert!(least < without, "{least}, {without} without terms: {}", found.tiled);
        let graph = &network.graph;
        let is_of_kind = |it: &Value| graph.operator(*it).is_some_and(|it| it.kind() == kind);
        let of_terms = |it: Value| found.tiled.forms[it.index()].as_ref().unwrap().has_terms();
        assert!(graph.values().filter(is_of_kind).any(of_terms), "{kind}: {}", found.tiled);
    }
    let mesh = Mesh::new(2);
    [least_bytes(network, &mesh, usize::MAX).unwrap(), least_bytes_without_terms(network, &mesh)]
}

/// Returns the bytes of reducing so many numbers over two ranks.
const fn reduced(n_numbers: usize) -> u64 {
    (2 * n_numbers * size_of::<f32>()) as u64
}

/// The bytes of one sum.
const ONE: u64 = reduced(ROWS * COLUMNS);

fn integer(number: i64) -> Argument {
    Argument::Integer(number)
}

#[test]
fn combinations() {
    let scaled = network(|it| {
        let [one, other] = [it.sum(), it.sum()];
        let scale = it.parameter(&[COLUMNS]);
        let one = it.apply("mul", &[one, Argument::Float(0.5)]);
        let other = it.apply("mul", &[other, scale]);
        let sum = it.apply("add", &[one, other]);
        it.apply("tanh", &[sum])
    });
    assert_eq!(check("combine", &scaled), [ONE, 2 * ONE]);
    let difference = network(|it| {
        let [one, other] = [it.sum(), it.sum()];
        let one = it.apply("neg", &[one]);
        let difference = it.apply("sub", &[one, other]);
        it.apply("tanh", &[difference])
    });
    assert_eq!(check("combine", &difference), [ONE, 2 * ONE]);
    // What is added to a combination is no part of it.
    let residual = network(|it| {
        let [one, other] = [it.sum(), it.sum()];
        let [bias, scale] = [it.parameter(&[ROWS, COLUMNS]), it.parameter(&[ROWS, 1])];
        let one = it.apply("div", &[one, scale]);
        let sum = it.apply("add", &[bias, one]);
        let difference = it.apply("sub", &[sum, other]);
        it.apply("tanh", &[difference])
    });
    assert_eq!(check("combine", &residual), [ONE, 2 * ONE]);
}

#[test]
fn changes_of_shape() {
    let moved = network(|it| {
        let [one, other] = [it.sum(), it.sum()];
        // A product would write its result transposed itself.
        let one = it.apply("reshape", &[one, shape(&[COLUMNS, ROWS])]);
        let one = it.apply("transpose", &[one]);
        it.apply("add", &[one, other])
    });
    assert_eq!(check("permute", &moved), [ONE, 2 * ONE]);
    assert_eq!(check("reshape", &moved), [ONE, 2 * ONE]);
}

fn shape(extents: &[usize]) -> Argument {
    let extents = extents.iter().map(|it| integer(i64::try_from(*it).unwrap()));
    Argument::List(extents.collect())
}

#[test]
fn slices_and_pads() {
    let sliced = network(|it| {
        let sum = it.sum();
        it.apply("slice", &[sum, integer(1), integer(1), integer(4)])
    });
    assert_eq!(check("pad", &sliced), [reduced(ROWS * 3), ONE]);
    let padded = network(|it| {
        let [one, other] = [it.sum(), it.sum()];
        let around = shape(&[1, 1, 0, 0]);
        let one = it.apply("slice", &[one, integer(1), integer(0), integer(3)]);
        let one = it.apply("pad", &[one, around, Argument::Float(0.0)]);
        it.apply("add", &[one, other])
    });
    assert_eq!(check("pad", &padded), [ONE, 2 * ONE]);
}

/// Single columns of one product are each reduced, as queries, keys and values with a dim of their
/// own are, also those of the product with a bias. They need not be all of it.
#[test]
fn columns_of_one_product() {
    let gate = |it: &mut Sums, sum: Argument, [first, second]: [[i64; 2]; 2]| {
        let part = |it: &mut Sums, [start, end]: [i64; 2]| {
            it.apply("slice", &[sum.clone(), integer(1), integer(start), integer(end)])
        };
        let [one, other] = [part(it, first), part(it, second)];
        let one = it.apply("tanh", &[one]);
        it.apply("mul", &[one, other])
    };
    let parts = [[0, 1], [3, 4]];
    let gated = network(|it| {
        let sum = it.sum();
        gate(it, sum, parts)
    });
    assert_eq!(check("pad", &gated), [reduced(ROWS * 2), ONE]);
    let biased = network(|it| {
        let (sum, bias) = (it.sum(), it.parameter(&[COLUMNS]));
        let sum = it.apply("add", &[sum, bias]);
        gate(it, sum, parts)
    });
    assert_eq!(check("pad", &biased), [reduced(ROWS * 2), ONE]);
    // Ranges of columns could be split like the columns.
    let ranges = network(|it| {
        let sum = it.sum();
        gate(it, sum, [[0, 2], [3, 5]])
    });
    assert_is_reduced_once(&ranges);
}

#[test]
fn sums_over_a_dim() {
    let sum = network(|it| {
        let sum = it.sum();
        it.apply("sum", &[sum, integer(0)])
    });
    assert_eq!(check("sum", &sum), [reduced(COLUMNS), ONE]);
    // The scale is part of the sum.
    let weighted = network(|it| {
        let (sum, scale) = (it.sum(), it.parameter(&[ROWS, 1]));
        let scaled = it.apply("mul", &[sum, scale]);
        it.apply("sum", &[scaled, integer(0)])
    });
    assert_eq!(check("sum", &weighted), [reduced(COLUMNS), ONE]);
}

#[test]
fn concatenations() {
    let joined = network(|it| {
        let parts = Argument::List((0..3).map(|_| it.sum()).collect());
        let joined = it.apply("concat", &[parts, integer(0)]);
        it.apply("sum", &[joined, integer(1)])
    });
    assert_eq!(check("concatenate", &joined), [reduced(3 * ROWS), 3 * ONE]);
}

/// A product with a whole matrix, as of a low-rank adapter.
#[test]
fn light_products() {
    let product = network(|it| {
        let (sum, weight) = (it.sum(), it.parameter(&[COLUMNS, 1]));
        it.apply("matmul", &[sum, weight])
    });
    assert_eq!(check("contract", &product), [reduced(ROWS), ONE]);
    // The terms are the other operand here. A map that stands alone passes them on.
    let product = network(|it| {
        let (sum, weight, scale) = (it.sum(), it.parameter(&[1, ROWS]), it.parameter(&[COLUMNS]));
        let scaled = it.apply("mul", &[sum, scale]);
        it.apply("matmul", &[weight, scaled])
    });
    assert_eq!(check("contract", &product), [reduced(COLUMNS), ONE]);
    assert_eq!(check("map", &product), [reduced(COLUMNS), ONE]);
}

/// Returns a network whose result adds up functions of so many light products of sums.
fn with_light_products(n_products: usize) -> Network {
    network(|it| {
        let mut product = || {
            let (sum, weight) = (it.sum(), it.parameter(&[COLUMNS, 1]));
            let product = it.apply("matmul", &[sum, weight]);
            it.apply("tanh", &[product])
        };
        let products: Vec<Argument> = (0..n_products).map(|_| product()).collect();
        it.apply("concat", &[Argument::List(products), integer(0)])
    })
}

/// Returns the number of products that work on terms.
fn n_products_on_terms(tiled: &TiledNetwork) -> usize {
    let is_product =
        |it: &Value| tiled.network.graph.operator(*it).is_some_and(|it| it.kind() == "contract");
    let of_terms = |it: &Value| tiled.forms[it.index()].as_ref().unwrap().has_terms();
    tiled.network.graph.values().filter(is_product).filter(of_terms).count()
}

/// All light products together repeat no more than the network allows.
#[test]
fn light_products_repeat_little_work() {
    for n_products in [1, 3] {
        let network = with_light_products(n_products);
        let graph = &network.graph;
        let all: u64 = graph.values().map(|it| graph.flops(it)).sum();
        let light = (2 * ROWS * COLUMNS * n_products) as f64;
        for n_ranks in [2, 4, 6] {
            let repeated = light * (n_ranks - 1) as f64 / all as f64;
            for (light_work, n_expected) in [(1.01 * repeated, n_products), (0.99 * repeated, 0)] {
                let network = Network { light_work, ..network.clone() };
                let found = search_alone(&network, Mesh::new(n_ranks), &Strategy::Auto.into());
                let mesh = found.tiled.mesh;
                assert_eq!(n_products_on_terms(&found.tiled), n_expected, "{}", found.tiled);
                if n_products == 1 {
                    assert_eq!(Some(found.tiled.bytes()), least_bytes(&network, &mesh, usize::MAX));
                }
            }
        }
    }
}

/// A light product takes work that the user's limit must allow.
#[test]
fn light_products_keep_the_limit_on_work() {
    let n_on_terms = |max_work: f64| {
        let mut builder = Builder::in_mode(Mode::Inference);
        let x = builder.input("x", DType::F32, &[ROWS, DEPTH]);
        let mut sums = Sums { builder, x, n_parameters: 0 };
        let (sum, weight) = (sums.sum(), sums.parameter(&[COLUMNS, 1]));
        let Argument::Tensor(result) = sums.apply("matmul", &[sum, weight]) else {
            panic!("a tensor")
        };
        let options = Options {
            name: "light".to_owned(),
            n_gpus: 2,
            search: SearchRequest { padding: Padding::Off, max_work, ..SearchRequest::default() },
            precision: Precision::F32,
            optimizer: Optimizer::default(),
        };
        let outputs = [("result".to_owned(), result)];
        let compiled = compile(sums.builder, None, &outputs, &options, &|| 0.0).unwrap();
        n_products_on_terms(&compiled.report.search().tiled)
    };
    assert_eq!([1.0, 1.011, 1.05].map(n_on_terms), [0, 0, 1]);
}

/// The rank of an adapter.
const RANK: usize = 3;

/// Of the three products of a low-rank adapter, one result is reduced instead of two: the terms of
/// the first factor's product pass through the second one into the addition.
#[test]
fn low_rank_adapters() {
    let adapter = network(|it| {
        let x = Argument::Tensor(it.x);
        let (a, b) = (it.parameter(&[DEPTH, RANK]), it.parameter(&[RANK, COLUMNS]));
        let inner = it.apply("matmul", &[x, a]);
        let adapted = it.apply("matmul", &[inner, b]);
        let scaled = it.apply("mul", &[adapted, Argument::Float(2.0)]);
        let sum = it.sum();
        let sum = it.apply("add", &[sum, scaled]);
        it.apply("tanh", &[sum])
    });
    assert_eq!(check("contract", &adapter), [ONE, ONE + reduced(ROWS * RANK)]);
    assert_eq!(check("combine", &adapter), [ONE, ONE + reduced(ROWS * RANK)]);
}

/// Terms in `bf16` may become `f32`, but not the other way round.
// Moved into the reduction, the sum would come to be another one of its operands, and the form of
// the reduction would name a set of operands that it no longer has.
#[test]
fn a_reader_that_works_on_terms_keeps_its_other_operands() {
    let mut builder = Builder::in_mode(Mode::Inference);
    let [u, v] = [("u", COLUMNS), ("v", DEPTH)]
        .map(|(name, depth)| builder.input(name, DType::F32, &[ROWS, depth]));
    let mut matmul = |input: Value, weight: &str, depth: usize| {
        let weight = builder.parameter(weight, &[depth, 3], Init::Constant(0.1));
        let operands = [Argument::Tensor(input), Argument::Tensor(weight)];
        Argument::Tensor(call(&mut builder, "matmul", &operands))
    };
    let small = [matmul(u, "a", COLUMNS), matmul(u, "b", COLUMNS)];
    let large = matmul(v, "w", DEPTH);
    let sum = Argument::Tensor(call(&mut builder, "add", &small));
    let product = Argument::Tensor(call(&mut builder, "mul", &[sum, large]));
    let result = call(&mut builder, "sum", &[product, Argument::Integer(0)]);
    let options = Options {
        name: "reader".to_owned(),
        n_gpus: 2,
        search: SearchRequest { padding: Padding::Off, ..SearchRequest::default() },
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    };
    let outputs = [("result".to_owned(), result)];
    let compiled = compile(builder, None, &outputs, &options, &|| 0.0).unwrap();
    // Three numbers are reduced, not the product of 7 rows.
    assert_eq!(compiled.report.bytes_total, reduced(3));
}

#[test]
fn types() {
    let sum = network(|it| {
        let sum = it.sum();
        it.apply("sum", &[sum, integer(0)])
    });
    let rounded = round(sum, Precision::Bf16);
    let of_bf16 = reduced(ROWS * COLUMNS) / 2;
    assert_eq!(check("sum", &rounded), [reduced(COLUMNS), of_bf16]);
}

/// A heavy product, a tensor with a second reader and what is not linear get whole sums.
#[test]
fn other_operators() {
    let heavy = |it: &mut Sums| {
        let (sum, weight) = (it.sum(), it.parameter(&[COLUMNS, 7]));
        it.apply("matmul", &[sum, weight])
    };
    let read_twice = |it: &mut Sums| {
        let sum = it.sum();
        let summed = it.apply("sum", &[sum.clone(), integer(0)]);
        let sum = it.apply("tanh", &[sum]);
        it.apply("sub", &[sum, summed])
    };
    let squared = |it: &mut Sums| {
        let sum = it.sum();
        let square = it.apply("powi", &[sum, integer(2)]);
        it.apply("sum", &[square, integer(0)])
    };
    let maximum = |it: &mut Sums| {
        let sum = it.sum();
        it.apply("max", &[sum, integer(0)])
    };
    for network in [network(heavy), network(read_twice), network(squared), network(maximum)] {
        assert_is_reduced_once(&network);
    }
}

/// Checks that no operator works on terms, and that one sum is reduced.
fn assert_is_reduced_once(network: &Network) {
    let found = search_alone(network, Mesh::new(2), &Strategy::Auto.into());
    assert!(!found.tiled.forms.iter().flatten().any(|it| it.has_terms()), "{}", found.tiled);
    assert_eq!(found.tiled.bytes(), ONE, "{}", found.tiled);
}
