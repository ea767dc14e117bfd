//! The depth of a schema, which is read before the schema, because its decoder recurses.
//!
//! The footer is a struct of Thrift in the compact protocol. Its field 2 is the list of the
//! schema's elements, depth first, each with its number of children. Source: `parquet.thrift` of
//! Apache Parquet, and the specification of Thrift's compact protocol.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
};

/// The limit for the depth, as of JSON. Each dim of a list takes two or three levels.
const MAX_DEPTH: usize = 128;

/// The limit for the depth of the structs in an element, which have two levels.
const MAX_SKIPPED: usize = 16;

/// Checks the depth of a file's schema.
///
/// # Errors
/// A message if the schema is too deep or damaged. Other damage is left to the decoder.
pub(super) fn check_depth(file: &File) -> Result<(), String> {
    let Some(footer) = footer(file) else { return Ok(()) };
    let deepest = Compact(&footer).depth_of_schema().ok_or("expected a schema, found damage")?;
    match deepest {
        ..=MAX_DEPTH => Ok(()),
        _ => Err(format!("expected a schema of at most {MAX_DEPTH} levels, found more")),
    }
}

/// Reads the footer before the last eight bytes, which are its length and a magic number.
fn footer(mut file: &File) -> Option<Vec<u8>> {
    let mut end = [0; 8];
    file.seek(SeekFrom::End(-8)).ok()?;
    file.read_exact(&mut end).ok()?;
    let [length @ .., b'P', b'A', b'R', b'1'] = end else { return None };
    let length = u32::from_le_bytes(length);
    file.seek(SeekFrom::End(-8 - i64::from(length))).ok()?;
    let mut footer = vec![0; usize::try_from(length).ok()?];
    file.read_exact(&mut footer).ok()?;
    Some(footer)
}

/// The rest of a text in the compact protocol. Functions return `None` if it is damaged.
struct Compact<'a>(&'a [u8]);

/// The kinds of values.
mod kind {
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const BYTE: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I32: u8 = 5;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const SET: u8 = 10;
    pub(super) const MAP: u8 = 11;
    pub(super) const STRUCT: u8 = 12;
}

impl Compact<'_> {
    /// Returns the levels of the schema; one more than the limit if there are more.
    fn depth_of_schema(mut self) -> Option<usize> {
        let mut field = 0;
        while let Some(found) = self.field(&mut field)? {
            if field != 2 || found != kind::LIST {
                self.skip(found, MAX_SKIPPED)?;
                continue;
            }
            let (n_elements, _) = self.list()?;
            // The children that are left of each group around the next element.
            let (mut left, mut deepest) = (Vec::new(), 0);
            for _ in 0..n_elements {
                let n_children = self.n_children()?;
                while left.pop_if(|it| *it == 0).is_some() {}
                if let Some(left) = left.last_mut() {
                    *left -= 1;
                }
                left.push(n_children);
                deepest = deepest.max(left.len());
                if deepest > MAX_DEPTH {
                    break;
                }
            }
            return Some(deepest);
        }
        Some(0)
    }

    /// Reads an element of the schema, and returns its number of children.
    fn n_children(&mut self) -> Option<u64> {
        let (mut field, mut n_children) = (0, 0);
        while let Some(found) = self.field(&mut field)? {
            match field {
                5 if found == kind::I32 => n_children = self.integer()?,
                _ => self.skip(found, MAX_SKIPPED)?,
            }
        }
        Some(n_children.try_into().unwrap_or(0))
    }

    /// Reads the kind of the next field, and its number, given that of the field before; `None` at
    /// the end of a struct.
    fn field(&mut self, number: &mut i64) -> Option<Option<u8>> {
        let start = self.byte()?;
        if start == 0 {
            return Some(None);
        }
        *number = match start >> 4 {
            0 => self.integer()?,
            more => *number + i64::from(more),
        };
        Some(Some(start & 15))
    }

    /// Reads the number of elements of a list, and their kind.
    fn list(&mut self) -> Option<(u64, u8)> {
        let start = self.byte()?;
        let n_elements = if start >> 4 == 15 { self.natural()? } else { (start >> 4).into() };
        Some((n_elements, start & 15))
    }

    fn skip(&mut self, found: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match found {
            kind::TRUE | kind::FALSE => Some(()),
            kind::BYTE => self.take(1),
            kind::I16 | kind::I32 | kind::I64 => self.natural().map(|_| ()),
            kind::DOUBLE => self.take(8),
            kind::BINARY => self.natural().and_then(|it| self.take(it)),
            kind::LIST | kind::SET => {
                let (n, of) = self.list()?;
                (0..n).try_for_each(|_| self.skip_element(of, depth))
            }
            kind::MAP => {
                let n = self.natural()?;
                let of = if n == 0 { 0 } else { self.byte()? };
                (0..n).try_for_each(|_| {
                    self.skip_element(of >> 4, depth)?;
                    self.skip_element(of & 15, depth)
                })
            }
            kind::STRUCT => {
                let mut field = 0;
                while let Some(found) = self.field(&mut field)? {
                    self.skip(found, depth)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Skips an element of a list, where truth takes a byte.
    fn skip_element(&mut self, of: u8, depth: usize) -> Option<()> {
        if matches!(of, kind::TRUE | kind::FALSE) { self.take(1) } else { self.skip(of, depth) }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, n: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(n).ok()?..)?;
        Some(())
    }

    /// Reads a number of seven bits in each byte, the lowest first.
    fn natural(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(number);
            }
        }
        None
    }

    /// Reads a number whose lowest bit is its sign.
    fn integer(&mut self) -> Option<i64> {
        let number = self.natural()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}
