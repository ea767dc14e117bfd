//! Updates of the rows of embedding tables: the networks, the plans and their memory.

use expect_test::{Expect, expect};
use soybean_compiler::{
    Argument, Builder, Compiled, Network, Optimizer, Options, SearchRequest, Strategy, Value,
    build_network, compile, optimizer, tiling::search_alone, with_sparse_updates,
};
use soybean_plan::{DType, EmbeddingForm, Init, Kernel, Mesh, Precision};

use crate::support::brute_force::least_bytes;

/// Returns a model that looks up rows of a table of this shape and sums up a layer of them.
fn model(batch: usize, [rows, width]: [usize; 2]) -> (Builder, Value) {
    let mut builder = Builder::new();
    let call = |builder: &mut Builder, operator: &str, operands: &[Argument]| {
        let Argument::Tensor(value) = builder.call(operator, operands).unwrap() else {
            panic!("`{operator}` gives a tensor")
        };
        value
    };
    let words = builder.input("words", DType::I32, &[batch]);
    let table = builder.parameter("table", &[rows, width], Init::Constant(0.1));
    let w = builder.parameter("w", &[width, 1], Init::Constant(0.1));
    let found = call(&mut builder, "embedding", &[words, table].map(Argument::Tensor));
    let product = call(&mut builder, "matmul", &[found, w].map(Argument::Tensor));
    let loss = call(&mut builder, "sum", &[Argument::Tensor(product), Argument::All]);
    (builder, loss)
}

fn network(batch: usize, table: [usize; 2], optimizer: &Optimizer) -> Network {
    let (builder, loss) = model(batch, table);
    with_sparse_updates(build_network(builder, loss, &[], optimizer).unwrap())
}

fn named(name: &str) -> Optimizer {
    optimizer(name, &[]).unwrap()
}

fn with_norm(optimizer: Optimizer) -> Optimizer {
    Optimizer { clip_norm: Some(1e30), ..optimizer }
}

fn check(name: &str, batch: usize, expected: Expect) {
    expected.assert_eq(&network(batch, [6, 4], &named(name)).to_string());
}

#[test]
fn tables_are_updated_by_rows() {
    check(
        "sgd",
        4,
        expect![[r#"
        v0: i32[4] = input "words"
        v1: f32[6, 4] = param "table"
        v2: f32[4, 1] = param "w"
        v3: i32[6] = iota ->_ ()
        v4: f32[4, 4] = gather i,jk,j->ik (v0, v1, v3)
        v5: f32[4, 1] = contract ik,kj->ij (v4, v2)
        v6: f32[] = sum {x0} ij-> (v5)
        v7: f32[4, 1] = map {1} ->ij ()
        v8: f32[4, 4] = contract ij,kj->ik (v7, v2)
        v9: f32[4, 1] = contract ik,ij->kj (v4, v7)
        v10: f32[6, 4] = embed-update {sub(x1, mul(s0, x0))} _,_j,i,ij->ij (v0, v8, v3, v1)
        v11: f32[4, 1] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v2, v9)
        update v1 = v10
        update v2 = v11
        loss v6
    "#]],
    );
    check(
        "adagrad",
        4,
        expect![[r#"
        v0: i32[4] = input "words"
        v1: f32[6, 4] = param "table"
        v2: f32[4, 1] = param "w"
        v3: i32[6] = iota ->_ ()
        v4: f32[4, 4] = gather i,jk,j->ik (v0, v1, v3)
        v5: f32[4, 1] = contract ik,kj->ij (v4, v2)
        v6: f32[] = sum {x0} ij-> (v5)
        v7: f32[4, 1] = map {1} ->ij ()
        v8: f32[4, 4] = contract ij,kj->ik (v7, v2)
        v9: f32[4, 1] = contract ik,ij->kj (v4, v7)
        v10: f32[6, 4] = state "table.square_sum"
        v11: i32[4] = share i->i (v0)
        v12: f32[4, 4] = share ij->ij (v8)
        v13: f32[6, 4] = embed-update {sub(x1, mul(s0, div(x0, add(sqrt(add(x2, mul(x0, x0))), 0.0000000001))))} _,_j,i,ij,ij->ij (v11, v12, v3, v1, v10)
        v14: f32[6, 4] = embed-update {add(x1, mul(x0, x0))} _,_j,i,ij->ij (v11, v12, v3, v10)
        v15: f32[4, 1] = state "w.square_sum"
        v16: f32[4, 1] = map {sub(x0, mul(s0, div(x1, add(sqrt(add(x2, mul(x1, x1))), 0.0000000001))))} ij,ij,ij->ij (v2, v9, v15)
        v17: f32[4, 1] = map {add(x1, mul(x0, x0))} ij,ij->ij (v9, v15)
        update v1 = v13
        update v10 = v14
        update v2 = v16
        update v15 = v17
        loss v6
    "#]],
    );
}

// Guards: nothing but the gradient decides which elements stay.
#[test]
fn lazy_adam_updates_rows() {
    check(
        "lazy_adam",
        4,
        expect![[r#"
        v0: i32[4] = input "words"
        v1: f32[6, 4] = param "table"
        v2: f32[4, 1] = param "w"
        v3: i32[6] = iota ->_ ()
        v4: f32[4, 4] = gather i,jk,j->ik (v0, v1, v3)
        v5: f32[4, 1] = contract ik,kj->ij (v4, v2)
        v6: f32[] = sum {x0} ij-> (v5)
        v7: f32[4, 1] = map {1} ->ij ()
        v8: f32[4, 4] = contract ij,kj->ik (v7, v2)
        v9: f32[4, 1] = contract ik,ij->kj (v4, v7)
        v10: f32[6, 4] = state "table.mean"
        v11: f32[6, 4] = state "table.square_mean"
        v12: i32[4] = share i->i (v0)
        v13: f32[4, 4] = share ij->ij (v8)
        v14: f32[6, 4] = embed-update {select(eq(x0, 0), x1, sub(x1, mul(div(s0, s1), div(add(mul(x2, 0.9), mul(x0, 0.09999999999999998)), add(div(sqrt(add(mul(x3, 0.999), mul(mul(x0, x0), 0.0010000000000000009))), sqrt(s2)), 0.00000001)))))} _,_j,i,ij,ij,ij->ij (v12, v13, v3, v1, v10, v11)
        v15: f32[6, 4] = embed-update {select(eq(x0, 0), x1, add(mul(x1, 0.9), mul(x0, 0.09999999999999998)))} _,_j,i,ij->ij (v12, v13, v3, v10)
        v16: f32[6, 4] = embed-update {select(eq(x0, 0), x1, add(mul(x1, 0.999), mul(mul(x0, x0), 0.0010000000000000009)))} _,_j,i,ij->ij (v12, v13, v3, v11)
        v17: f32[4, 1] = state "w.mean"
        v18: f32[4, 1] = state "w.square_mean"
        v19: f32[4, 1] = map {select(eq(x1, 0), x0, sub(x0, mul(div(s0, s1), div(add(mul(x2, 0.9), mul(x1, 0.09999999999999998)), add(div(sqrt(add(mul(x3, 0.999), mul(mul(x1, x1), 0.0010000000000000009))), sqrt(s2)), 0.00000001)))))} ij,ij,ij,ij->ij (v2, v9, v17, v18)
        v20: f32[4, 1] = map {select(eq(x0, 0), x1, add(mul(x1, 0.9), mul(x0, 0.09999999999999998)))} ij,ij->ij (v9, v17)
        v21: f32[4, 1] = map {select(eq(x0, 0), x1, add(mul(x1, 0.999), mul(mul(x0, x0), 0.0010000000000000009)))} ij,ij->ij (v9, v18)
        update v1 = v14
        update v10 = v15
        update v11 = v16
        update v2 = v19
        update v17 = v20
        update v18 = v21
        loss v6
    "#]],
    );
}

// Guards: sums over a small table are fewer bytes than the rows of a large batch.
#[test]
fn large_batches_need_the_gradient() {
    check(
        "sgd",
        6,
        expect![[r#"
        v0: i32[6] = input "words"
        v1: f32[6, 4] = param "table"
        v2: f32[4, 1] = param "w"
        v3: i32[6] = iota ->_ ()
        v4: f32[6, 4] = gather i,jk,j->ik (v0, v1, v3)
        v5: f32[6, 1] = contract ik,kj->ij (v4, v2)
        v6: f32[] = sum {x0} ij-> (v5)
        v7: f32[6, 1] = map {1} ->ij ()
        v8: f32[6, 4] = contract ij,kj->ik (v7, v2)
        v9: f32[4, 1] = contract ik,ij->kj (v4, v7)
        v10: f32[6, 4] = scatter-add i,ik,j->jk (v0, v8, v3)
        v11: f32[6, 4] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v1, v10)
        v12: f32[4, 1] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v2, v9)
        update v1 = v11
        update v2 = v12
        loss v6
    "#]],
    );
}

#[test]
fn plans_with_sparse_updates_are_optimal() {
    for name in ["sgd", "adagrad"] {
        for (n_ranks, table) in [(2, [6, 4]), (4, [12, 4]), (4, [9, 2]), (2, [7, 3])] {
            let network = network(4, table, &named(name));
            let found = search_alone(&network, Mesh::new(n_ranks), &Strategy::Auto.into());
            let least = least_bytes(&network, &found.tiled.mesh, usize::MAX);
            assert_eq!(Some(found.tiled.bytes()), least, "{name} {n_ranks} {table:?}");
        }
    }
}

fn planned(n_gpus: usize, search: SearchRequest, optimizer: Optimizer) -> Compiled {
    let (builder, loss) = model(2048, [1 << 22, 128]);
    let (name, precision) = ("model".to_owned(), Precision::F32);
    let options = Options { name, n_gpus, search, precision, optimizer };
    compile(builder, loss, &[], &options, &|| 0.0).unwrap()
}

// A table of 2 GiB, and as much of gradients that a sparse update does not need.
#[test]
fn plans_hold_no_gradient_of_a_table() {
    const TABLE: u64 = 1 << 31;
    for name in ["sgd", "adagrad"] {
        let n_states = u64::from(name == "adagrad");
        for n_gpus in [1, 8] {
            let sparse = planned(n_gpus, Strategy::Auto.into(), named(name));
            let dense = planned(n_gpus, Strategy::Auto.into(), with_norm(named(name)));
            let held = |it: &Compiled| it.report.peak().bytes();
            let share = TABLE / n_gpus as u64;
            // The rest is the numbers of the rows, 16 MiB, and what a batch of 2048 rows needs.
            assert!(held(&sparse) < (1 + n_states) * share + (32 << 20), "{}", held(&sparse));
            assert!(held(&dense) >= (2 + n_states) * share, "{}", held(&dense));
            assert!(sparse.report.bytes_total <= dense.report.bytes_total);
        }
    }
}

// Guards: the tokens' gradients are gathered where sums over the table would be reduced.
#[test]
fn data_parallel_tables_gather_the_gradients_of_rows() {
    let sparse = planned(8, Strategy::Data.into(), named("sgd"));
    let is_gradient =
        |it: &Kernel| matches!(it, Kernel::Embed(it) if it.form == EmbeddingForm::ScatterAdd);
    assert!(!sparse.program.kernels.iter().any(is_gradient));
    let dense = planned(8, Strategy::Data.into(), with_norm(named("sgd")));
    assert!(sparse.report.bytes_total * 100 < dense.report.bytes_total);
}
