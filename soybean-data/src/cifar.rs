//! CIFAR-10 and CIFAR-100 in their binary format: records of labels and 3 x 32 x 32 pixels.
//!
//! Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images".

use std::path::Path;

use crate::{Element, ElementKind, Error, Field, Form, Records};

const ROW: [usize; 3] = [3, 32, 32];
const N_PIXELS: usize = 3 * 32 * 32;

/// The choice between the two labels of an image in CIFAR-100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CifarLabel {
    /// One of 100 classes.
    Fine,
    /// One of 20 superclasses.
    Coarse,
}

impl Records {
    /// Opens the binary files of CIFAR-10, such as `data_batch_1.bin`.
    ///
    /// Column 0 has the pixels of each image, `[3, 32, 32]`, times `scale`. Column 1 has its label.
    ///
    /// # Errors
    /// If a file cannot be opened, or its size is not a multiple of a record.
    pub fn cifar10(paths: &[impl AsRef<Path>], scale: f32) -> Result<Self, Error> {
        let fields = vec![pixels(1, scale), label(0, 10)];
        Self::open(paths, 1 + N_PIXELS, fields)
    }

    /// Opens the binary files of CIFAR-100, such as `train.bin`. The columns are those of
    /// [`cifar10`](Self::cifar10).
    ///
    /// # Errors
    /// If a file cannot be opened, or its size is not a multiple of a record.
    pub fn cifar100(
        paths: &[impl AsRef<Path>],
        which: CifarLabel,
        scale: f32,
    ) -> Result<Self, Error> {
        let label = match which {
            CifarLabel::Coarse => label(0, 20),
            CifarLabel::Fine => label(1, 100),
        };
        Self::open(paths, 2 + N_PIXELS, vec![pixels(2, scale), label])
    }
}

fn pixels(start: usize, scale: f32) -> Field {
    let form = Form::Numbers { scale };
    let element = Element::little(ElementKind::U8);
    Field { name: "images".to_owned(), start, row: ROW.to_vec(), element, form }
}

fn label(start: usize, n_classes: usize) -> Field {
    let form = Form::Labels { n_classes };
    let element = Element::little(ElementKind::U8);
    Field { name: "label".to_owned(), start, row: Vec::new(), element, form }
}
