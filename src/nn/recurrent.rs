//! Recurrent layers, unrolled along the sequence.

use crate::prelude::*;

/// Applies a long short-term memory to sequences `x [batch, length, features]`, from a state of
/// zeros: the outputs `[batch, length, hidden]` of all steps.
///
/// The parameters are those of a layer of PyTorch's `LSTM`: `weight_ih_l0 [4 hidden, features]`,
/// `weight_hh_l0 [4 hidden, hidden]`, `bias_ih_l0` and `bias_hh_l0 [4 hidden]`, all uniform within
/// `1 / sqrt(hidden)` of 0, with the gates in the order input, forget, cell, output. Each step
/// is in the graph and copies the earlier outputs, so sequences should be short. Source: Hochreiter
/// and Schmidhuber 1997.
#[crate::layer]
pub fn lstm(x: Tensor, hidden: usize) -> Tensor {
    let bound = 1.0 / (hidden as f64).sqrt();
    let weight_ih = param("weight_ih_l0", [4 * hidden, x.dim(2)], uniform(-bound, bound));
    let weight_hh = param("weight_hh_l0", [4 * hidden, hidden], uniform(-bound, bound));
    let bias_ih = param("bias_ih_l0", [4 * hidden], uniform(-bound, bound));
    let bias_hh = param("bias_hh_l0", [4 * hidden], uniform(-bound, bound));
    let gates = x.matmul(weight_ih.transpose()) + bias_ih + bias_hh;
    let state = full([x.dim(0), hidden], 0.0);
    let (mut output, mut cell) = lstm_cell(gates.slice(1, 0, 1).squeeze(1), state);
    let mut outputs = output.unsqueeze(1);
    for step in 1..x.dim(1) {
        let sums = gates.slice(1, step, step + 1).squeeze(1) + output.matmul(weight_hh.transpose());
        (output, cell) = lstm_cell(sums, cell);
        outputs = concat([outputs, output.unsqueeze(1)], 1);
    }
    outputs
}

/// Returns the next output and cell, by the sums of each gate.
#[crate::layer]
fn lstm_cell(gates: Tensor, cell: Tensor) -> (Tensor, Tensor) {
    let [input, forget, candidate, shown] = gates.chunk(4, -1);
    let next = forget.sigmoid() * cell + input.sigmoid() * candidate.tanh();
    (shown.sigmoid() * next.tanh(), next)
}

/// Applies gated recurrent units to sequences `x [batch, length, features]`, from a state of zeros:
/// the outputs `[batch, length, hidden]` of all steps.
///
/// The parameters are those of a layer of PyTorch's `GRU`: as for [`lstm`], but with three gates in
/// the order reset, update, new. Sequences should be short, as there. Source: Cho et al. 2014.
#[crate::layer]
pub fn gru(x: Tensor, hidden: usize) -> Tensor {
    let bound = 1.0 / (hidden as f64).sqrt();
    let weight_ih = param("weight_ih_l0", [3 * hidden, x.dim(2)], uniform(-bound, bound));
    let weight_hh = param("weight_hh_l0", [3 * hidden, hidden], uniform(-bound, bound));
    let bias_ih = param("bias_ih_l0", [3 * hidden], uniform(-bound, bound));
    let bias_hh = param("bias_hh_l0", [3 * hidden], uniform(-bound, bound));
    let gates = x.matmul(weight_ih.transpose()) + bias_ih;
    let state = full([x.dim(0), hidden], 0.0);
    let mut output = gru_cell(gates.slice(1, 0, 1).squeeze(1), bias_hh, state);
    let mut outputs = output.unsqueeze(1);
    for step in 1..x.dim(1) {
        let of_state = output.matmul(weight_hh.transpose()) + bias_hh;
        output = gru_cell(gates.slice(1, step, step + 1).squeeze(1), of_state, output);
        outputs = concat([outputs, output.unsqueeze(1)], 1);
    }
    outputs
}

/// Returns the next output, by the sums of each gate over the features and over the last output.
#[crate::layer]
fn gru_cell(gates: Tensor, of_state: Tensor, output: Tensor) -> Tensor {
    let [reset, update, new] = gates.chunk(3, -1);
    let [reset_of_state, update_of_state, new_of_state] = of_state.chunk(3, -1);
    let candidate = (new + (reset + reset_of_state).sigmoid() * new_of_state).tanh();
    candidate + (update + update_of_state).sigmoid() * (output - candidate)
}
