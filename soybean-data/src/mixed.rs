//! Datasets whose rows are mixtures of two rows of another dataset.

use std::{fmt, sync::Arc};

use soybean_plan::DType;

use crate::{
    ColumnSpec, Dataset, Error, Numbering, Pass, RowRandom, Values, ViewMut, augmentation::Extents,
};

/// A way to mix two rows.
///
/// The second row is drawn uniformly from all rows, and `l` is drawn from the distribution
/// Beta(`alpha`, `alpha`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mixing {
    /// `y = l x1 + (1 - l) x2` in all columns. Source: Zhang et al. 2018.
    Mixup {
        /// The parameter of the distribution; the mixtures of small ones are near one of the rows.
        alpha: f32,
    },
    /// A rectangle of the second image replaces that of the first one. Its sides are `sqrt(1 - l)`
    /// of those of the image, rounded down. Its center is uniform in the image, and parts beyond
    /// the border are cut off. With the share `a` of the pixels that it covers, the other columns
    /// are `y = (1 - a) x1 + a x2`. Source: Yun et al. 2019.
    CutMix {
        /// The parameter of the distribution.
        alpha: f32,
    },
}

/// A dataset of mixtures of two rows, as [`Dataset::mix`] makes it.
#[derive(Clone)]
pub struct Mixed {
    dataset: Arc<dyn Dataset>,
    stream: u64,
    mixing: Mixing,
    /// The extents of the images of `CutMix`.
    extents: Option<Extents>,
}

impl Mixed {
    pub(super) fn new(
        dataset: Arc<dyn Dataset>,
        stream: u64,
        mixing: Mixing,
    ) -> Result<Self, Error> {
        let (Mixing::Mixup { alpha } | Mixing::CutMix { alpha }) = mixing;
        if !(alpha.is_finite() && alpha > 0.0) {
            return Err(Error::data(format!("expected a finite `alpha` above 0, found {alpha:?}")));
        }
        let columns = dataset.columns();
        if let Some(column) = columns.iter().find(|it| it.dtype != DType::F32) {
            let (name, dtype) = (&column.name, column.dtype);
            return Err(Error::data(format!(
                "column `{name}`: expected f32, which can be mixed, found {dtype}; `one_hot` makes \
                 probabilities of labels"
            )));
        }
        let extents = match mixing {
            Mixing::Mixup { .. } => None,
            Mixing::CutMix { .. } => Some(Extents::of(columns)?),
        };
        Ok(Self { dataset, stream, mixing, extents })
    }

    /// Mixes the columns of a row with those of another one.
    fn mix(&self, row: &mut [ViewMut<'_>], other: &mut [ViewMut<'_>], random: &mut RowRandom) {
        let (share, rest) = match (self.mixing, self.extents) {
            (Mixing::CutMix { alpha }, Some(extents)) => {
                let share = random.beta(alpha);
                let (images, others) = (row[0].f32s(), other[0].f32s());
                (1.0 - paste(images, others, extents, share, random), 1)
            }
            (Mixing::Mixup { alpha } | Mixing::CutMix { alpha }, _) => (random.beta(alpha), 0),
        };
        for (to, from) in row.iter_mut().zip(other).skip(rest) {
            for (to, from) in to.f32s().iter_mut().zip(from.f32s()) {
                *to = share * *to + (1.0 - share) * *from;
            }
        }
    }
}

/// Copies a rectangle to an image; returns the share of the pixels that it covers.
fn paste(
    image: &mut [f32],
    other: &[f32],
    extents: Extents,
    share: f32,
    random: &mut RowRandom,
) -> f32 {
    let Extents { height, width, .. } = extents;
    let cut = (1.0 - share).max(0.0).sqrt();
    let mut range = |side: usize| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a side, from 0 to the side"
        )]
        let length = (cut * side as f32) as usize;
        let start = random.below(side) as isize - (length / 2) as isize;
        let end = start + length as isize;
        start.max(0) as usize..end.clamp(0, side as isize) as usize
    };
    let (rows, columns) = (range(height), range(width));
    let planes = image.chunks_mut(height * width).zip(other.chunks(height * width));
    for (to, from) in planes {
        for row in rows.clone() {
            let place = row * width + columns.start..row * width + columns.end;
            to[place.clone()].copy_from_slice(&from[place]);
        }
    }
    (rows.len() * columns.len()) as f32 / (height * width) as f32
}

impl Dataset for Mixed {
    fn n_rows(&self) -> usize {
        self.dataset.n_rows()
    }

    fn columns(&self) -> &[ColumnSpec] {
        self.dataset.columns()
    }

    fn numbering(&self, column: usize) -> Option<Numbering> {
        self.dataset.numbering(column)
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        self.read_in_pass(Pass::default(), rows, into)
    }

    fn read_in_pass(
        &self,
        pass: Pass,
        rows: &[usize],
        into: &mut [ViewMut<'_>],
    ) -> Result<(), Error> {
        self.dataset.read_in_pass(pass, rows, into)?;
        let mut random: Vec<RowRandom> =
            rows.iter().map(|row| pass.random(self.stream, *row)).collect();
        let n_rows = self.n_rows();
        let others: Vec<usize> = random.iter_mut().map(|it| it.below(n_rows)).collect();
        let zeros = |it: &ColumnSpec| Values::zeros(it.dtype, rows.len() * it.row_elements());
        let mut values = self.columns().iter().map(zeros).collect::<Result<Vec<_>, _>>()?;
        let mut views: Vec<ViewMut<'_>> = values.iter_mut().map(Values::view_mut).collect();
        self.dataset.read_in_pass(pass, &others, &mut views)?;
        let sizes: Vec<usize> = self.columns().iter().map(ColumnSpec::row_elements).collect();
        for (position, random) in random.iter_mut().enumerate() {
            let mut row = row_of(into, &sizes, position);
            self.mix(&mut row, &mut row_of(&mut views, &sizes, position), random);
        }
        Ok(())
    }

    fn shuffled(&self, pass: Pass) -> Option<Vec<usize>> {
        self.dataset.shuffled(pass)
    }
}

/// Returns the columns of one of the rows in memory.
fn row_of<'a>(
    columns: &'a mut [ViewMut<'_>],
    sizes: &[usize],
    position: usize,
) -> Vec<ViewMut<'a>> {
    let parts = columns.iter_mut().zip(sizes);
    parts.map(|(view, n)| view.part(position * n..(position + 1) * n)).collect()
}

impl fmt::Debug for Mixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mixed").field("mixing", &self.mixing).finish_non_exhaustive()
    }
}
