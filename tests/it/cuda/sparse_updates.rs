//! Embedding tables whose updates change the rows of a batch alone.

use std::sync::Arc;

use soybean_compiler::Strategy;
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;

use super::networks::{Model, learns_as_on_the_cpu};
use crate::sparse_updates::{compiled, n_sparse_updates, sparse};

#[test]
fn gpus_update_rows_as_cpus_do() {
    let test = "cuda::sparse_updates::gpus_update_rows_as_cpus_do";
    on_virtual_gpus(test, &[], |machine| {
        for n_gpus in [1, 4] {
            for optimizer in sparse() {
                let sparse = compiled(n_gpus, Strategy::Auto.into(), "", optimizer);
                assert_eq!(n_sparse_updates(&sparse), 1);
                learns_as_on_the_cpu(machine, &Model::Program(Arc::new(sparse.program)));
            }
        }
    });
}
