//! `attend`: scaled dot-product attention in one kernel, and its gradient.

use std::fmt;

use soybean_plan::{Attention, AttentionForm, Combine, Kernel, Shape};

use crate::{
    operator::{GradientBuilder, OperatorCall, Rounding, Rules},
    operators::{pad::Pad, reshape::Reshape},
    signature::{Dim, Signature, factor_id},
    value::Value,
};

/// `softmax(scale * query key^T) value` for queries `[.., n, d]`, keys `[.., m, d]` and values
/// `[.., m, e]`. The leading dims can be split. The gradient form reads the result's gradient `[..,
/// n, e]` as fourth operand. It returns the gradients of queries, keys and values one after
/// another, `[.., n d + m d + m e]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Attend {
    /// Forward or gradient.
    pub form: AttentionForm,
    /// The number of queries, `n`.
    pub queries: usize,
    /// The number of keys, `m`.
    pub keys: usize,
    /// The elements of a query and of a key, `d`.
    pub features: usize,
    /// The elements of a value, `e`.
    pub width: usize,
    /// True if query `i` attends to keys `0..=i` only.
    pub is_causal: bool,
    /// The factor of the scores.
    pub scale: f64,
}

impl Attend {
    /// Returns the elements of a head's gradients: of queries, of keys and of values.
    fn lengths(&self) -> [usize; 3] {
        [self.queries * self.features, self.keys * self.features, self.keys * self.width]
    }
}

impl Rules for Attend {
    fn signature(&self, operands: &[Shape]) -> Signature {
        let n_leading = operands[0].len() - 2;
        let leading = &operands[0][..n_leading];
        let dims = |rest: &[usize]| -> Vec<Dim> {
            let factors = (0..n_leading).map(|dim| Some(factor_id(dim)));
            let all = leading.iter().chain(rest).zip(factors.chain([None, None]));
            all.map(|(&extent, factor)| Dim::new(extent, factor)).collect()
        };
        let result = match self.form {
            AttentionForm::Forward => dims(&[self.queries, self.width]),
            AttentionForm::Gradient => dims(&[self.lengths().iter().sum()]),
        };
        let operands = operands.iter().map(|shape| dims(&shape[n_leading..])).collect();
        Signature::new(leading.to_vec(), operands, result, Combine::Sum)
    }

    // One kernel computes the gradients of all three operands, which are its parts.
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        if self.form == AttentionForm::Gradient {
            // Only gradients are made of it, and those are not differentiated again.
            return vec![None; call.operands.len()];
        }
        let shapes: Vec<Shape> = call.operands.iter().map(|&it| builder.shape(it)).collect();
        let gradient = Self { form: AttentionForm::Gradient, ..self.clone() };
        let operands = [call.operands, &[call.gradient]].concat();
        let packed = builder.add(gradient.into(), &operands);
        let whole = builder.shape(packed);
        let last = whole.len() - 1;
        let mut start = 0;
        let mut part = |(length, shape): (usize, &Shape)| {
            let crop = Pad::crop(whole, last, start, length);
            start += length;
            let flat = builder.add(crop.into(), &[packed]);
            Some(builder.add(Reshape { shape: *shape }.into(), &[flat]))
        };
        self.lengths().into_iter().zip(&shapes).map(&mut part).collect()
    }

    // Of the heads alone: two products of queries and keys forward, five backward.
    fn flops_per_point(&self) -> u64 {
        let of_features = match self.form {
            AttentionForm::Forward => self.features + self.width,
            AttentionForm::Gradient => 3 * self.features + 2 * self.width,
        };
        let products = 2 * self.queries * self.keys * of_features;
        (if self.is_causal { products / 2 } else { products }) as u64
    }

    fn rounding(&self) -> Rounding {
        Rounding::Product
    }

    fn kernel(&self, operands: &[Shape], _result: &Shape) -> Option<Kernel> {
        let n_leading = operands[0].len() - 2;
        let kernel = Attention {
            form: self.form,
            heads: operands[0][..n_leading].iter().product(),
            queries: self.queries,
            keys: self.keys,
            features: self.features,
            width: self.width,
            is_causal: self.is_causal,
            scale: self.scale,
        };
        Some(kernel.into())
    }
}

impl fmt::Display for Attend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.form.name())?;
        if self.is_causal { f.write_str(" causal") } else { Ok(()) }
    }
}
