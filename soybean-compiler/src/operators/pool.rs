//! `pool`: each plane of images `[n, c, h, w]` combined window by window, and the gradients of
//! pooling. Channels can also be the last dim.
//!
//! Along a split image dim, a rank also reads a halo, as in a convolution. The gradient of a
//! maximum goes to the first pixel that attains it. So a rank sees the whole of each window that
//! reaches its part, and ranks that share a window choose the same pixel. Each computes the
//! gradient of all pixels that it sees, and keeps that of its own.

use std::fmt;

use soybean_plan::{Combine, ImageLayout, Kernel, Pooling, PoolingForm, Shape};

use crate::{
    operator::{ChannelsLast, GradientBuilder, Operator, OperatorCall, Rounding, Rules},
    operators::window::{self, Windows, factors_of},
    signature::{Dim, FactorId, Signature},
    value::Value,
};

/// A pooling. Windows stay whole; batch and channels can be split, and so can image dims whose
/// extent is the stride times that of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Forward or gradient, of the maximum or the sum.
    pub form: PoolingForm,
    /// The shape of the images with channels first, whatever the layout.
    pub image: Shape,
    /// Height and width of the windows.
    pub window: [usize; 2],
    /// The distance between neighboring windows, in pixels.
    pub stride: [usize; 2],
    /// The rows and columns outside an image that the first windows may reach.
    pub padding: [usize; 2],
    /// The order of the dims of images and results.
    pub layout: ImageLayout,
}

impl Pool {
    /// Returns the shape of the results with channels first.
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

    /// Returns the windows along rows and columns.
    fn windows(&self) -> [Windows; 2] {
        let result = self.result();
        [0, 1].map(|dim| Windows {
            image: self.image[dim + 2],
            result: result[dim + 2],
            reach: self.window[dim],
            stride: self.stride[dim],
            padding: self.padding[dim],
        })
    }

    /// Returns the dims of images and of results, and of the gradient of images.
    fn dims(&self) -> [Vec<Dim>; 2] {
        let (windows, factors) = (self.windows(), factors_of(&self.windows(), IMAGE));
        let with = |shape: Shape, halo: HaloOf| -> Vec<Dim> {
            let planes = [0, 1].map(|it| Dim::new(shape[it], Some([BATCH, CHANNEL][it])));
            let pixels =
                [0, 1].map(|it| window::dim(shape[it + 2], factors[it], halo(&windows[it])));
            window::in_layout(self.layout, planes, pixels)
        };
        let (of_image, of_result): (HaloOf, HaloOf) = match self.form {
            PoolingForm::Max | PoolingForm::Sum => (Windows::of_image, |_| [0; 2]),
            PoolingForm::MaxGradient => (Windows::of_whole_windows, Windows::of_results),
            PoolingForm::SumGradient => (|_| [0; 2], Windows::of_results),
        };
        [with(self.image, of_image), with(self.result(), of_result)]
    }
}

/// The halo of a dim along which windows move.
type HaloOf = fn(&Windows) -> [usize; 2];

/// The factors: images, channels, then rows and columns.
const BATCH: FactorId = 0;
const CHANNEL: FactorId = 1;
const IMAGE: FactorId = 2;

impl Rules for Pool {
    fn signature(&self, _operands: &[Shape]) -> Signature {
        let of_images = self.windows().into_iter().filter(Windows::are_splittable);
        let factors = self.image[..2].iter().copied().chain(of_images.map(|it| it.result));
        let factors: Vec<usize> = factors.collect();
        let [image, result] = self.dims();
        let (operands, result) = match self.form {
            PoolingForm::Max | PoolingForm::Sum => (vec![image], result),
            PoolingForm::MaxGradient => (vec![image.clone(), result], image),
            PoolingForm::SumGradient => (vec![result], image),
        };
        Signature::new(factors, operands, result, Combine::Sum)
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

    // Of the factors alone; the pixels of windows, and of images that stay whole, come on top.
    fn flops_per_point(&self) -> u64 {
        let whole = self.windows().into_iter().filter(|it| !it.are_splittable());
        let n_results: usize = whole.map(|it| it.result).product();
        (n_results * self.window[0] * self.window[1]) as u64
    }

    // Pixels outside an image are none of the maximum.
    fn outside(&self, operand: usize) -> Combine {
        match self.form {
            PoolingForm::Max | PoolingForm::MaxGradient if operand == 0 => Combine::Max,
            PoolingForm::Max
            | PoolingForm::MaxGradient
            | PoolingForm::Sum
            | PoolingForm::SumGradient => Combine::Sum,
        }
    }

    fn rounding(&self) -> Rounding {
        Rounding::Alike
    }

    fn channels_last(&self, operands: &[Shape]) -> Option<ChannelsLast> {
        let layout = ImageLayout::ChannelsLast;
        let operator = Self { layout, ..self.clone() }.into();
        Some(ChannelsLast::everywhere(operator, operands.len()))
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        let first = |it: Shape| window::channels_first(self.layout, it);
        let (read, result) = (first(operands[0]), first(*result));
        let (image, results) = match self.form {
            PoolingForm::Max | PoolingForm::Sum => (read, result),
            PoolingForm::MaxGradient => (read, first(operands[1])),
            PoolingForm::SumGradient => (result, read),
        };
        let windows = self.windows();
        let padding = [0, 1].map(|dim| {
            let Windows { image, result: results, padding, .. } = windows[dim];
            let own = result[dim + 2];
            match self.form {
                PoolingForm::Max | PoolingForm::Sum if own == results => padding,
                PoolingForm::MaxGradient | PoolingForm::SumGradient if own == image => padding,
                PoolingForm::Max | PoolingForm::Sum | PoolingForm::MaxGradient => 0,
                PoolingForm::SumGradient => windows[dim].padding_with(windows[dim].of_results()[0]),
            }
        });
        let kernel = Pooling {
            form: self.form,
            planes: match self.layout {
                ImageLayout::ChannelsFirst => image[0] * image[1],
                ImageLayout::ChannelsLast => image[0],
            },
            channels: match self.layout {
                ImageLayout::ChannelsFirst => 1,
                ImageLayout::ChannelsLast => image[1],
            },
            image: [image[2], image[3]],
            window: self.window,
            result: [results[2], results[3]],
            stride: self.stride,
            padding,
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
        window::write_layout(f, self.layout)
    }
}
