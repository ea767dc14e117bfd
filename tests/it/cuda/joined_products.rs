//! Products of one activation on GPUs: they are one call of cuBLASLt, and train as on the CPU.

use soybean::{Device, Network, plan::Kernel, runtime::queued_tasks};
use soybean_compiler::Recipe;
use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus};

use super::networks::{
    Columns, Model, learns_as_on_the_cpu, texts_in_bf16_on_one, texts_in_bf16_on_two,
    texts_in_f32_on_one, texts_in_f32_on_two, texts_in_tf32_on_one,
};

/// The layers of the models.
const N_LAYERS: u64 = 2;

/// Returns the calls of cuBLASLt in a training step of all ranks.
fn n_calls<N: Network>(machine: &Machine) -> u64 {
    let model = Model::of::<N>();
    let mut trainer = model.trainer(Device::Cuda);
    machine.reset(0);
    trainer.step(&Columns::new(model.tables(), 0).views()).unwrap();
    machine.n_calls("cublasLtMatmul")
}

/// Returns the products in the plan of a training step of a rank.
fn n_products<N: Network>() -> u64 {
    let recipe: Recipe = N::PLAN.recipe.parse().unwrap();
    let program = recipe.compile(&|| 0.0).unwrap().program;
    let is_product = |kernel: usize| matches!(program.kernels[kernel], Kernel::Contract(_));
    program.train[0].iter().filter(|it| is_product(it.kernel)).count() as u64
}

/// Returns the calls of cuBLASLt that a training step of a rank is said to need.
fn n_expected_calls<N: Network>() -> u64 {
    let tasks = queued_tasks(N::model(), 0).unwrap().into_iter();
    let products = tasks.filter(|it| matches!(it.kernel, Some(Kernel::Contract(_))));
    products.map(|it| it.n_launches as u64).sum()
}

/// Two of three calls are gone forward, for the gradients of the weights, and for the parts of the
/// gradient of the activation.
fn has_few_calls_on_one_rank<N: Network>(machine: &Machine) {
    assert_eq!(n_calls::<N>(machine), n_products::<N>() - 3 * 2 * N_LAYERS);
    assert_eq!(n_calls::<N>(machine), n_expected_calls::<N>());
}

fn has_few_calls_on_two_ranks<N: Network>(machine: &Machine) {
    let (found, n_products) = (n_calls::<N>(machine), n_products::<N>());
    assert_eq!(found, 2 * n_expected_calls::<N>());
    assert!(found < 2 * n_products, "{found} of {n_products} on each rank");
}

#[test]
fn queries_keys_and_values_are_one_call() {
    let test = "cuda::joined_products::queries_keys_and_values_are_one_call";
    on_virtual_gpus(test, &[], |machine| {
        has_few_calls_on_one_rank::<texts_in_bf16_on_one::Network>(machine);
        has_few_calls_on_one_rank::<texts_in_tf32_on_one::Network>(machine);
        has_few_calls_on_one_rank::<texts_in_f32_on_one::Network>(machine);
        has_few_calls_on_two_ranks::<texts_in_bf16_on_two::Network>(machine);
        has_few_calls_on_two_ranks::<texts_in_f32_on_two::Network>(machine);
    });
}

#[test]
fn without_distances_of_biases_products_with_biases_are_apart() {
    let test = "cuda::joined_products::without_distances_of_biases_products_with_biases_are_apart";
    on_virtual_gpus(test, &[("SOYBEAN_FAKE_NO_BIAS_STRIDE", "1")], |machine| {
        // The products for the gradient of the activation have none.
        let expected = n_products::<texts_in_bf16_on_one::Network>() - 2 * N_LAYERS;
        assert_eq!(n_calls::<texts_in_bf16_on_one::Network>(machine), expected);
        learns_as_on_the_cpu(machine, &Model::of::<texts_in_bf16_on_one::Network>());
    });
}
