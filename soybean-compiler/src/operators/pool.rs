//! `pool`: each plane of images `[n, c, h, w]` combined window by window, and the gradients of
//! pooling.

use std::fmt;

use soybean_plan::{Combine, Kernel, Pooling, PoolingForm, Shape};

use crate::{
    operator::{GradientBuilder, Operator, OperatorCall, Rounding, Rules},
    signature::{Dim, Signature},
    value::Value,
};

/// A pooling. Images stay whole; batch and channels can be split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Forward or gradient, of the maximum or the sum.
    pub form: PoolingForm,
    /// The shape of the images.
    pub image: Shape,
    /// Height and width of the windows.
    pub window: [usize; 2],
    /// The distance between neighboring windows, in pixels.
    pub stride: [usize; 2],
    /// The rows and columns outside an image that the first windows may reach.
    pub padding: [usize; 2],
}

impl Pool {
    /// Returns the shape of the results.
    #[must_use]
    pub fn result(&self) -> Shape {
        let extent = |dim: usize| {
            (self.image[dim + 2] + 2 * self.padding[dim] - self.window[dim]) / self.stride[dim] + 1
        };
        Shape::new(&[self.image[0], self.image[1], extent(0), extent(1)])
    }

    fn with_form(&self, form: PoolingForm) -> Self {
        Self { form, ..self.clone() }
    }
}

impl Rules for Pool {
    fn signature(&self, _operands: &[Shape]) -> Signature {
        let dims = |shape: Shape| -> Vec<Dim> {
            let factors = [Some(0), Some(1), None, None];
            shape.iter().zip(factors).map(|(&extent, factor)| Dim::new(extent, factor)).collect()
        };
        let (image, result) = (dims(self.image), dims(self.result()));
        let (operands, result) = match self.form {
            PoolingForm::Max | PoolingForm::Sum => (vec![image], result),
            PoolingForm::MaxGradient => (vec![image.clone(), result], image),
            PoolingForm::SumGradient => (vec![result], image),
        };
        Signature::new(self.image[..2].to_vec(), operands, result, Combine::Sum)
    }

    // The gradient of a maximum goes to the first pixel that attains it; that of a sum goes to all
    // pixels of the window.
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        match self.form {
            PoolingForm::Max => {
                let gradient = self.with_form(PoolingForm::MaxGradient);
                vec![Some(builder.add(gradient.into(), &[call.operands[0], call.gradient]))]
            }
            PoolingForm::Sum => {
                vec![Some(
                    builder.add(self.with_form(PoolingForm::SumGradient).into(), &[call.gradient]),
                )]
            }
            PoolingForm::SumGradient => {
                vec![Some(builder.add(self.with_form(PoolingForm::Sum).into(), &[call.gradient]))]
            }
            // Only gradients are made of it, and those are not differentiated again.
            PoolingForm::MaxGradient => vec![None, None],
        }
    }

    fn keeps_zeros(&self) -> bool {
        true
    }

    fn resized(&self, factors: &[usize], _result: Shape) -> Option<Operator> {
        let image = self.image.with(0, factors[0]).with(1, factors[1]);
        Some(Self { image, ..self.clone() }.into())
    }

    // Of the planes alone; the pixels of windows come on top of them.
    fn flops_per_point(&self) -> u64 {
        let result = self.result();
        (result[2] * result[3] * self.window[0] * self.window[1]) as u64
    }

    fn rounding(&self) -> Rounding {
        Rounding::Alike
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        let (planes, whole) = (operands.first().unwrap_or(result), self.result());
        let kernel = Pooling {
            form: self.form,
            planes: planes[0] * planes[1],
            image: [self.image[2], self.image[3]],
            window: self.window,
            result: [whole[2], whole[3]],
            stride: self.stride,
            padding: self.padding,
        };
        Some(kernel.into())
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}x{}", self.form.name(), self.window[0], self.window[1])?;
        for (name, value, usual) in
            [("stride", self.stride, self.window), ("padding", self.padding, [0; 2])]
        {
            if value != usual {
                write!(f, " {name} {}x{}", value[0], value[1])?;
            }
        }
        Ok(())
    }
}
