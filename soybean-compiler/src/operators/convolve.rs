//! `convolve`: convolution of images `[n, c, h, w]` with filters `[o, c / groups, kh, kw]`, and its
//! two gradients. The channels of all three tensors can also be their last dim.
//!
//! Along a split image dim, a rank also reads a halo around its part of the images, or of the
//! results' gradient. The local kernel then has no padding, because the halo contains it.

use std::fmt;

use soybean_plan::{Combine, Convolution, ConvolutionForm, ImageLayout, Kernel, Shape};

use crate::{
    operator::{ChannelsLast, GradientBuilder, Operator, OperatorCall, Rounding, Rules},
    operators::window::{self, Windows, factors_of},
    signature::{Dim, FactorId, Signature},
    value::Value,
};

/// A convolution. Windows stay whole; batch, groups, channels and filters can be split, and so can
/// image dims whose extent is the stride times that of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Convolve {
    /// Forward, or one of the two gradients.
    pub form: ConvolutionForm,
    /// The shape of the images with channels first, whatever the layout.
    pub image: Shape,
    /// The shape of the filters with channels first.
    pub filter: Shape,
    /// The number of groups.
    pub groups: usize,
    /// The distance between neighboring results, in pixels.
    pub stride: [usize; 2],
    /// The rows and columns of zeros on each side of an image.
    pub padding: [usize; 2],
    /// The distance between neighboring filter elements, in pixels.
    pub dilation: [usize; 2],
    /// The order of the dims of images and results, and of filters in which it matters.
    pub layout: ImageLayout,
}

/// The factors: images; groups; channels of a group; filters of a group; rows and columns. With
/// several groups, channels and filters of a group are not split, because a tile of a dim is a part
/// of its outermost factor.
const BATCH: FactorId = 0;
const OUTER_CHANNEL: FactorId = 1;
const OUTER_FILTER: FactorId = 2;

impl Convolve {
    /// Returns the shape of the results with channels first.
    #[must_use]
    pub fn result(&self) -> Shape {
        let extent = |dim: usize| {
            let reach = self.dilation[dim] * (self.filter[dim + 2] - 1) + 1;
            (self.image[dim + 2] + 2 * self.padding[dim] - reach) / self.stride[dim] + 1
        };
        Shape::new(&[self.image[0], self.filter[0], extent(0), extent(1)])
    }

    /// Returns the order of the dims of filters. Filters of one pixel and of depthwise convolutions
    /// have the same elements in both, so their channels stay first.
    fn filter_layout(&self) -> ImageLayout {
        let is_point = self.filter[2..] == [1, 1];
        let is_depthwise = self.groups > 1 && self.filter[1] == 1;
        if is_point || is_depthwise { ImageLayout::ChannelsFirst } else { self.layout }
    }

    /// Returns the layouts of the two operands and the result.
    fn layouts(&self) -> ([ImageLayout; 2], ImageLayout) {
        let (images, filters) = (self.layout, self.filter_layout());
        match self.form {
            ConvolutionForm::Forward | ConvolutionForm::Data => ([images, filters], images),
            ConvolutionForm::Filter => ([images; 2], filters),
        }
    }

    /// Returns the windows along rows and columns.
    fn windows(&self) -> [Windows; 2] {
        let result = self.result();
        [0, 1].map(|dim| Windows {
            image: self.image[dim + 2],
            result: result[dim + 2],
            reach: self.dilation[dim] * (self.filter[dim + 2] - 1) + 1,
            stride: self.stride[dim],
            padding: self.padding[dim],
        })
    }

    /// Returns the factors of rows and columns that can be split.
    fn factors_of_images(&self) -> [Option<FactorId>; 2] {
        let n_others = if self.groups > 1 { BATCH + 2 } else { OUTER_FILTER + 1 };
        factors_of(&self.windows(), n_others)
    }

    /// Returns the dims of images, filters and results with their factors. With several groups,
    /// channels and filters share the factor of the groups.
    fn dims(&self) -> [Vec<Dim>; 3] {
        let is_grouped = self.groups > 1;
        let (channel, filter) =
            if is_grouped { (BATCH + 1, BATCH + 1) } else { (OUTER_CHANNEL, OUTER_FILTER) };
        let (windows, factors) = (self.windows(), self.factors_of_images());
        let with = |shape: Shape, factors: [FactorId; 2], rest: [Dim; 2]| -> Vec<Dim> {
            let leading = [0, 1].map(|it| Dim::new(shape[it], Some(factors[it])));
            window::in_layout(self.layout, leading, rest)
        };
        let (form, result) = (self.form, self.result());
        let of_image = [0, 1].map(|dim| {
            let is_read = form != ConvolutionForm::Data;
            let halo = if is_read { windows[dim].of_image() } else { [0; 2] };
            window::dim(self.image[dim + 2], factors[dim], halo)
        });
        let of_result = [0, 1].map(|dim| {
            let halo = match form {
                ConvolutionForm::Data => windows[dim].of_results(),
                ConvolutionForm::Forward | ConvolutionForm::Filter => [0; 2],
            };
            window::dim(result[dim + 2], factors[dim], halo)
        });
        let inner = (!is_grouped).then_some(channel);
        let of_filter = |dim: usize, factor| Dim::new(self.filter[dim], factor);
        let leading = [of_filter(0, Some(filter)), of_filter(1, inner)];
        [
            with(self.image, [BATCH, channel], of_image),
            window::in_layout(
                self.filter_layout(),
                leading,
                [of_filter(2, None), of_filter(3, None)],
            ),
            with(result, [BATCH, filter], of_result),
        ]
    }

    /// Returns the padding of the kernel of a rank's part with this many rows and columns of
    /// results, or in [`ConvolutionForm::Data`] of images.
    fn local_padding(&self, own: [usize; 2]) -> [usize; 2] {
        let windows = self.windows();
        [0, 1].map(|dim| {
            let Windows { image, result, padding, .. } = windows[dim];
            let before = windows[dim].of_results()[0];
            match self.form {
                ConvolutionForm::Data if own[dim] == image => padding,
                ConvolutionForm::Data => windows[dim].padding_with(before),
                ConvolutionForm::Forward | ConvolutionForm::Filter if own[dim] == result => padding,
                ConvolutionForm::Forward | ConvolutionForm::Filter => 0,
            }
        })
    }

    /// Returns the same convolution with another form.
    fn with_form(&self, form: ConvolutionForm) -> Self {
        Self { form, ..self.clone() }
    }
}

impl Rules for Convolve {
    fn signature(&self, _operands: &[Shape]) -> Signature {
        let mut factors = if self.groups > 1 {
            vec![self.image[0], self.groups]
        } else {
            vec![self.image[0], self.image[1], self.filter[0]]
        };
        let of_images = self.windows().into_iter().zip(self.factors_of_images());
        factors.extend(of_images.filter(|it| it.1.is_some()).map(|(windows, _)| windows.result));
        let [image, filter, result] = self.dims();
        let (operands, result) = match self.form {
            ConvolutionForm::Forward => (vec![image, filter], result),
            ConvolutionForm::Data => (vec![result, filter], image),
            ConvolutionForm::Filter => (vec![image, result], filter),
        };
        Signature::new(factors, operands, result, Combine::Sum)
    }

    // The gradient of each operand is the convolution of the other two.
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        let (left, right) = (call.operands[0], call.operands[1]);
        let mut add = |form, operands: [Value; 2], of: Value| {
            builder.needs_gradient(of).then(|| builder.add(self.with_form(form).into(), &operands))
        };
        use ConvolutionForm::{Data, Filter, Forward};
        match self.form {
            Forward => vec![
                add(Data, [call.gradient, right], left),
                add(Filter, [left, call.gradient], right),
            ],
            Data => vec![
                add(Forward, [call.gradient, right], left),
                add(Filter, [call.gradient, left], right),
            ],
            Filter => vec![
                add(Data, [right, call.gradient], left),
                add(Forward, [left, call.gradient], right),
            ],
        }
    }

    fn resized(&self, factors: &[usize], _result: Shape) -> Option<Operator> {
        let Self { image, filter, groups, .. } = *self;
        let batch = image.with(0, factors[0]);
        Some(match groups {
            1 => {
                let filter = filter.with(0, factors[2]).with(1, factors[1]);
                Self { image: batch.with(1, factors[1]), filter, ..self.clone() }.into()
            }
            _ => {
                let all = |n: usize| n / groups * factors[1];
                let (image, filter) =
                    (batch.with(1, all(image[1])), filter.with(0, all(filter[0])));
                Self { image, filter, groups: factors[1], ..self.clone() }.into()
            }
        })
    }

    // Of the factors alone; the points of windows, and of images that stay whole, come on top.
    fn flops_per_point(&self) -> u64 {
        let of_images = self.windows().into_iter().zip(self.factors_of_images());
        let whole = of_images.filter(|it| it.1.is_none()).map(|it| it.0.result);
        let per_group =
            if self.groups > 1 { self.filter[1] * (self.filter[0] / self.groups) } else { 1 };
        (2 * per_group * whole.product::<usize>() * self.filter[2] * self.filter[3]) as u64
    }

    fn rounding(&self) -> Rounding {
        Rounding::Product
    }

    fn channels_last(&self, _operands: &[Shape]) -> Option<ChannelsLast> {
        let it = Self { layout: ImageLayout::ChannelsLast, ..self.clone() };
        let (operands, result) = it.layouts();
        let is_last = |layout| layout == ImageLayout::ChannelsLast;
        let (operands, result) = (operands.map(is_last).to_vec(), is_last(result));
        Some(ChannelsLast { operator: it.into(), operands, result })
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        let (layouts, layout) = self.layouts();
        let operands = [0, 1].map(|it| window::channels_first(layouts[it], operands[it]));
        let result = window::channels_first(layout, *result);
        let (image, filter, results) = match self.form {
            ConvolutionForm::Forward => (operands[0], operands[1], result),
            ConvolutionForm::Data => (result, operands[1], operands[0]),
            ConvolutionForm::Filter => (operands[0], result, operands[1]),
        };
        let own = if self.form == ConvolutionForm::Data { image } else { results };
        let groups = image[1] / filter[1];
        let kernel = Convolution {
            form: self.form,
            batch: image[0],
            groups,
            channels: filter[1],
            filters: filter[0] / groups,
            image: [image[2], image[3]],
            window: [filter[2], filter[3]],
            result: [results[2], results[3]],
            stride: self.stride,
            padding: self.local_padding([own[2], own[3]]),
            dilation: self.dilation,
            layout: self.layout,
        };
        Some(kernel.into())
    }
}

impl fmt::Display for Convolve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.form.name())?;
        for (name, value, usual) in [
            ("stride", self.stride, 1),
            ("padding", self.padding, 0),
            ("dilation", self.dilation, 1),
        ] {
            if value != [usual; 2] {
                write!(f, " {name} {}x{}", value[0], value[1])?;
            }
        }
        if self.groups > 1 {
            write!(f, " groups {}", self.groups)?;
        }
        window::write_layout(f, self.layout)
    }
}
