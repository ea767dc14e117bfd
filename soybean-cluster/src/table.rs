//! Tables of a file, which are read key by key. Missing and unknown keys and values of the wrong
//! kind are errors at their lines.

use std::ops::Range;

use soybean_plan::{parse_bytes, printable};
use toml::de::{DeTable, DeValue};

use crate::{error::Error, kind, quantity::Kind};

/// A file with its text, for the lines of errors.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

impl Place<'_> {
    /// Returns an error at a byte of the text.
    pub(crate) fn error(&self, at: usize, message: String) -> Error {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.bytes().filter(|&it| it == b'\n').count() + 1;
        Error { file: printable(self.file), line, message: printable(&message) }
    }
}

/// A table of which some keys have been read.
pub(crate) struct Table<'a> {
    place: Place<'a>,
    /// The name of the table in errors.
    noun: &'static str,
    at: usize,
    entries: &'a DeTable<'a>,
    known: Vec<&'static str>,
}

/// A value with its position in the text.
struct Found<'a> {
    value: &'a DeValue<'a>,
    span: Range<usize>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(
        place: Place<'a>,
        noun: &'static str,
        at: usize,
        entries: &'a DeTable<'a>,
    ) -> Self {
        Self { place, noun, at, entries, known: Vec::new() }
    }

    pub(crate) fn place(&self) -> Place<'a> {
        self.place
    }

    fn find(&mut self, key: &'static str) -> Option<Found<'a>> {
        self.known.push(key);
        let found = self.entries.iter().find(|(name, _)| name.get_ref() == key);
        found.map(|(_, value)| Found { value: value.get_ref(), span: value.span() })
    }

    fn get(&mut self, key: &'static str, expected: &str) -> Result<Found<'a>, Error> {
        let missing =
            || self.place.error(self.at, format!("{} lacks `{key}`, {expected}", self.noun));
        let entry = self.entries.iter().find(|(name, _)| name.get_ref() == key);
        entry.ok_or_else(missing)?;
        Ok(self.find(key).expect("it has just been found"))
    }

    fn wrong(&self, key: &str, expected: &str, found: &Found<'_>) -> Error {
        let text = &self.place.text[found.span.clone()];
        let shown = match found.value {
            DeValue::Array(_) | DeValue::Table(_) => kind(found.value),
            _ => text,
        };
        self.place.error(found.span.start, format!("`{key}` must be {expected}, found {shown}"))
    }

    /// Reads a table. `noun` is its name in errors.
    pub(crate) fn table(
        &mut self,
        key: &'static str,
        noun: &'static str,
    ) -> Result<Table<'a>, Error> {
        let found = self.get(key, "a table")?;
        self.read_table(key, noun, &found)
    }

    /// Reads a table that may be missing.
    pub(crate) fn optional_table(
        &mut self,
        key: &'static str,
        noun: &'static str,
    ) -> Result<Option<Table<'a>>, Error> {
        let Some(found) = self.find(key) else { return Ok(None) };
        self.read_table(key, noun, &found).map(Some)
    }

    fn read_table(
        &self,
        key: &str,
        noun: &'static str,
        found: &Found<'a>,
    ) -> Result<Table<'a>, Error> {
        match found.value {
            DeValue::Table(entries) => Ok(Table::new(self.place, noun, found.span.start, entries)),
            _ => Err(self.wrong(key, "a table", found)),
        }
    }

    /// Returns the position of the table.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Reads rows of three numbers, of which there may be none. `expected` describes the rows, and
    /// `is_right` checks one.
    pub(crate) fn rows(
        &mut self,
        key: &'static str,
        expected: &str,
        is_right: impl Fn(&[f64; 3]) -> bool,
    ) -> Result<Vec<[f64; 3]>, Error> {
        let Some(found) = self.find(key) else { return Ok(Vec::new()) };
        let DeValue::Array(rows) = found.value else {
            return Err(self.wrong(key, &format!("a list of rows {expected}"), &found));
        };
        let row = |row: &'a toml::Spanned<DeValue<'a>>| {
            let numbers = match row.get_ref() {
                DeValue::Array(numbers) => numbers.iter().map(|it| number(it.get_ref())).collect(),
                _ => None,
            };
            let numbers = numbers.and_then(|it: Vec<f64>| <[f64; 3]>::try_from(it).ok());
            let wrong = || {
                let found = &self.place.text[row.span()];
                let message = format!("a row of `{key}` must be {expected}, found {found}");
                self.place.error(row.span().start, message)
            };
            numbers.filter(&is_right).ok_or_else(wrong)
        };
        rows.iter().map(row).collect()
    }

    /// Reads the tables `[[level]]`, of which there may be none.
    pub(crate) fn levels(&mut self) -> Result<Vec<Table<'a>>, Error> {
        const KEY: &str = "level";
        const EXPECTED: &str = "a list of tables, written `[[level]]`";
        let Some(found) = self.find(KEY) else { return Ok(Vec::new()) };
        let DeValue::Array(items) = found.value else {
            return Err(self.wrong(KEY, EXPECTED, &found));
        };
        let table = |item: &'a toml::Spanned<DeValue<'a>>| match item.get_ref() {
            DeValue::Table(entries) => {
                Ok(Table::new(self.place, "`[[level]]`", item.span().start, entries))
            }
            value => Err(self.wrong(KEY, EXPECTED, &Found { value, span: item.span() })),
        };
        items.iter().map(table).collect()
    }

    /// Reads a name.
    pub(crate) fn string(&mut self, key: &'static str) -> Result<String, Error> {
        let found = self.get(key, "a string")?;
        match found.value {
            DeValue::String(text) if !text.is_empty() => Ok(text.clone().into_owned()),
            _ => Err(self.wrong(key, "a string", &found)),
        }
    }

    /// Reads a count of at least 1.
    pub(crate) fn count(&mut self, key: &'static str) -> Result<usize, Error> {
        let found = self.get(key, EXPECTED_COUNT)?;
        self.read_count(key, &found)
    }

    /// Reads an optional count of at least 1, with its position.
    pub(crate) fn optional_count(
        &mut self,
        key: &'static str,
    ) -> Result<Option<(usize, usize)>, Error> {
        let Some(found) = self.find(key) else { return Ok(None) };
        Ok(Some((self.read_count(key, &found)?, found.span.start)))
    }

    fn read_count(&self, key: &str, found: &Found<'_>) -> Result<usize, Error> {
        let count = match found.value {
            DeValue::Integer(it) => usize::from_str_radix(it.as_str(), it.radix()).ok(),
            _ => None,
        };
        count
            .filter(|it| (1..=1 << 16).contains(it))
            .ok_or_else(|| self.wrong(key, EXPECTED_COUNT, found))
    }

    /// Reads a number above 0 and up to 1.
    pub(crate) fn share(&mut self, key: &'static str) -> Result<f64, Error> {
        const EXPECTED: &str = "a number above 0 and up to 1";
        let found = self.get(key, EXPECTED)?;
        number(found.value)
            .filter(|&it: &f64| it > 0.0 && it <= 1.0)
            .ok_or_else(|| self.wrong(key, EXPECTED, &found))
    }

    /// Reads a quantity above 0.
    pub(crate) fn quantity(&mut self, key: &'static str, kind: &Kind) -> Result<f64, Error> {
        let expected = format!("a {} above 0 such as \"{}\"", kind.noun, kind.example);
        self.read_quantity(key, kind, &expected, |it| it > 0.0)
    }

    /// Reads a quantity that may be 0.
    pub(crate) fn quantity_from_zero(
        &mut self,
        key: &'static str,
        kind: &Kind,
    ) -> Result<f64, Error> {
        let expected = format!("a {} such as \"{}\"", kind.noun, kind.example);
        self.read_quantity(key, kind, &expected, |it| it >= 0.0)
    }

    /// Reads a size of memory in bytes.
    pub(crate) fn bytes(&mut self, key: &'static str) -> Result<u64, Error> {
        const EXPECTED: &str = "a size of memory in a string, such as \"80GiB\"";
        let found = self.get(key, EXPECTED)?;
        let DeValue::String(text) = found.value else {
            return Err(self.wrong(key, EXPECTED, &found));
        };
        parse_bytes(text).map_err(|reason| {
            self.place.error(found.span.start, format!("`{key}` must be {EXPECTED}: {reason}"))
        })
    }

    fn read_quantity(
        &mut self,
        key: &'static str,
        kind: &Kind,
        expected: &str,
        is_right: impl Fn(f64) -> bool,
    ) -> Result<f64, Error> {
        let found = self.get(key, expected)?;
        let quantity = match found.value {
            DeValue::String(text) => kind.read(text),
            _ => None,
        };
        quantity
            .filter(|&it| it.is_finite() && is_right(it))
            .ok_or_else(|| self.wrong(key, expected, &found))
    }

    /// Rejects keys that have not been read.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let mut unknown: Vec<_> = self
            .entries
            .iter()
            .filter(|(name, _)| !self.known.contains(&name.get_ref().as_ref()))
            .map(|(name, _)| name)
            .collect();
        unknown.sort_by_key(|it| it.span().start);
        let Some(first) = unknown.first() else { return Ok(()) };
        let mut known = self.known.clone();
        known.sort_unstable();
        let message = format!(
            "{} has no key `{}`; its keys are {}",
            self.noun,
            first.get_ref(),
            known.join(", ")
        );
        Err(self.place.error(first.span().start, message))
    }
}

/// Returns a decimal number.
fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(it) => it.as_str().parse().ok(),
        DeValue::Integer(it) => it.as_str().parse().ok(),
        _ => None,
    }
}

const EXPECTED_COUNT: &str = "an integer from 1 to 65536";
