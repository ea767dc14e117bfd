//! Scaled dot-product attention and its gradients, a block of queries at a time, so that scores never leave the cache. Where even one block
//! has too many keys, these come in blocks too, with maxima and sums that are corrected as they go.
//!
//! Source: Dao, Fu, Ermon, Rudra & Ré, "FlashAttention", 2022, whose algorithms 1 and 4 these are.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

mod head;
mod rows;

use soybean_plan::{Attention, AttentionForm, Combine, DType};

use self::{
    head::{Head, Sizes, Written, dense},
    rows::Rows,
};
use super::{
    engine::Region,
    isa::Isa,
    product::{Matrix, Workspace},
    share::share,
    vector::{Accumulate, accumulate_each},
};
use crate::{Error, ErrorKind};

/// So many multiplications with their additions take the time of one operation of other kernels.
const PRODUCTS_PER_OPERATION: usize = 8;
/// Elements of a unit of work that adds up partial gradients.
const BLOCK: usize = 4096;

/// An [`Attention`] made ready.
pub(crate) struct AttentionKernel {
    form: AttentionForm,
    heads: usize,
    sizes: Sizes,
    /// Into how many parts the queries of each head are cut for gradients, because there are too few heads; 1 if there are enough.
    n_parts: usize,
    add: Accumulate,
}

impl AttentionKernel {
    pub(crate) fn new(attention: &Attention, isa: Isa, n_threads: usize) -> Self {
        let Attention { form, heads, .. } = *attention;
        let is_even = heads.is_multiple_of(n_threads) || heads >= 4 * n_threads;
        Self {
            form,
            heads,
            sizes: Sizes::new(attention, Rows::new(isa)),
            n_parts: if is_even { 1 } else { n_threads },
            add: accumulate_each(Combine::Sum, isa),
        }
    }

    /// The number of elements for which a call needs room: gradients of keys and values for each part.
    pub(crate) const fn n_partial(&self) -> usize {
        match self.form {
            AttentionForm::Gradient if self.n_parts > 1 => self.n_parts * self.sizes.n_shared(),
            AttentionForm::Forward | AttentionForm::Gradient => 0,
        }
    }

    /// Runs the kernel; inputs are queries, keys, values, and for gradients that of the result.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    ///
    /// # Panics
    /// If there is not enough room for partial gradients.
    pub(crate) unsafe fn run(
        &self,
        workspaces: &mut [Workspace],
        room: &mut [f32],
        inputs: &[Region],
        result: &Region,
    ) -> Result<(), Error> {
        self.check(inputs, result)?;
        let (heads, n_blocks) = (self.heads, self.sizes.n_blocks());
        let work = heads * self.sizes.n_products() / PRODUCTS_PER_OPERATION;
        match self.form {
            AttentionForm::Forward => {
                share(workspaces, heads * n_blocks, work, |workspace, units| {
                    for unit in units {
                        let (head, number) = (unit / n_blocks, unit % n_blocks);
                        let (from, to) = (self.head(inputs, head), self.result(result, head));
                        let block = in_turn(number, n_blocks);
                        // SAFETY: the regions were found to have the elements that are needed; units write different ones.
                        unsafe { self.sizes.forward(workspace, from, to, block) };
                    }
                });
            }
            AttentionForm::Gradient if self.n_parts > 1 => {
                for head in 0..heads {
                    let (from, to) = (self.head(inputs, head), self.written(result, head));
                    // SAFETY: as above.
                    unsafe { self.in_parts(workspaces, &mut room[..self.n_partial()], from, to) };
                }
            }
            AttentionForm::Gradient => {
                share(workspaces, heads, 3 * work, |workspace, units| {
                    for head in units {
                        let (from, to) = (self.head(inputs, head), self.written(result, head));
                        // SAFETY: as above.
                        unsafe { self.sizes.gradients(workspace, from, to, 0..n_blocks) };
                    }
                });
            }
        }
        Ok(())
    }

    /// The gradients of one head: each part of its queries makes gradients of keys and values, which are then added up.
    ///
    /// # Safety
    /// As [`Self::run`]; the places have the elements of a head.
    unsafe fn in_parts(
        &self,
        workspaces: &mut [Workspace],
        room: &mut [f32],
        from: Head,
        to: Written,
    ) {
        let (n_parts, n_blocks, n) = (self.n_parts, self.sizes.n_blocks(), self.sizes.n_shared());
        let work = 3 * self.sizes.n_products() / PRODUCTS_PER_OPERATION;
        let partial =
            Region { pointer: room.as_mut_ptr(), n_elements: room.len(), dtype: DType::F32 };
        share(workspaces, n_parts, work, |workspace, units| {
            for part in units {
                let to = self.sizes.written(to.query, partial.at(part * n));
                let blocks = (part..n_blocks).step_by(n_parts);
                // SAFETY: as above; parts write different elements.
                unsafe { self.sizes.gradients(workspace, from, to, blocks) };
            }
        });
        let to = Region { pointer: to.key.start, n_elements: n, dtype: DType::F32 };
        share(workspaces, n.div_ceil(BLOCK), n * n_parts, |_, blocks| {
            let (first, n) = (blocks.start * BLOCK, n.min(blocks.end * BLOCK));
            let length = n.saturating_sub(first);
            // SAFETY: each part has these elements, and so has the result.
            unsafe { to.at(first).copy_from_nonoverlapping(partial.at(first), length) };
            for part in 1..n_parts {
                let from = partial.at(part * self.sizes.n_shared() + first);
                // SAFETY: as above.
                unsafe { (self.add)(to.at(first), from, length) };
            }
        });
    }

    fn head(&self, inputs: &[Region], head: usize) -> Head {
        let Sizes { queries, keys, features, width, .. } = self.sizes;
        let at = |input: usize, n_rows: usize, width: usize| {
            dense(inputs[input].at(head * n_rows * width), width)
        };
        Head {
            query: at(0, queries, features),
            key: at(1, keys, features),
            value: at(2, keys, width),
            gradient: at(inputs.len() - 1, queries, width),
        }
    }

    const fn result(&self, result: &Region, head: usize) -> Matrix {
        let Sizes { queries, width, .. } = self.sizes;
        dense(result.at(head * queries * width), width)
    }

    const fn written(&self, result: &Region, head: usize) -> Written {
        let n_query = self.sizes.queries * self.sizes.features;
        let query = result.at(head * (n_query + self.sizes.n_shared()));
        self.sizes.written(dense(query, self.sizes.features), query.wrapping_add(n_query))
    }

    fn check(&self, inputs: &[Region], result: &Region) -> Result<(), Error> {
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        let Sizes { queries, keys, features, width, .. } = self.sizes;
        let (query, key, value) = (queries * features, keys * features, keys * width);
        let operands = [query, key, value, queries * width];
        let (n_inputs, n_result) = match self.form {
            AttentionForm::Forward => (3, queries * width),
            AttentionForm::Gradient => (4, query + key + value),
        };
        if inputs.len() != n_inputs {
            let found = inputs.len();
            return fault(format!("expected {n_inputs} inputs, found {found}"));
        }
        for (number, (input, size)) in inputs.iter().zip(operands).enumerate() {
            let (expected, found) = (self.heads * size, input.n_elements);
            if found < expected {
                return fault(format!(
                    "input {number}: expected {expected} elements, found {found}"
                ));
            }
            if input.overlaps(result) {
                return fault(format!("input {number}: expected memory apart from the result"));
            }
        }
        let (expected, found) = (self.heads * n_result, result.n_elements);
        if found < expected {
            return fault(format!("result: expected {expected} elements, found {found}"));
        }
        Ok(())
    }
}

/// Takes the blocks alternately from both ends: of causal attention, the last have the most to do.
const fn in_turn(number: usize, n_blocks: usize) -> usize {
    if number.is_multiple_of(2) { number / 2 } else { n_blocks - 1 - number / 2 }
}

#[cfg(test)]
mod tests;
