//! The fields of a CSV file that a column is read from.

use std::ops::Range;

use csv::StringRecord;
use soybean_plan::nearest_names;

/// Fields of each line, by their names in the header or by their numbers from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CsvFields {
    /// The field of this name.
    Name(String),
    /// The fields of these names.
    Names(Vec<String>),
    /// The field of this number.
    Number(usize),
    /// The fields of these numbers.
    Range(Range<usize>),
}

impl From<&str> for CsvFields {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl<const N: usize> From<[&str; N]> for CsvFields {
    fn from(names: [&str; N]) -> Self {
        Self::Names(names.map(str::to_owned).into())
    }
}

impl From<usize> for CsvFields {
    fn from(number: usize) -> Self {
        Self::Number(number)
    }
}

impl From<Range<usize>> for CsvFields {
    fn from(numbers: Range<usize>) -> Self {
        Self::Range(numbers)
    }
}

impl CsvFields {
    /// Returns true if a row is one number instead of a vector.
    pub(super) const fn is_one(&self) -> bool {
        match self {
            Self::Name(_) | Self::Number(_) => true,
            Self::Names(_) | Self::Range(_) => false,
        }
    }

    /// Returns the numbers of the fields.
    pub(super) fn numbers(&self, header: Option<&StringRecord>) -> Result<Vec<usize>, String> {
        match self {
            Self::Name(name) => Ok(vec![number(name, header)?]),
            Self::Names(names) => names.iter().map(|it| number(it, header)).collect(),
            Self::Number(number) => Ok(vec![*number]),
            Self::Range(numbers) => Ok(numbers.clone().collect()),
        }
    }
}

/// Returns the number of the field of this name.
fn number(name: &str, header: Option<&StringRecord>) -> Result<usize, String> {
    let header = header.ok_or_else(|| {
        format!("expected a header that names the field `{name}`, found `has_header: false`")
    })?;
    let names = || header.iter().map(str::trim);
    let mut found = names().enumerate().filter(|it| it.1 == name).map(|it| it.0);
    match (found.next(), found.next()) {
        (Some(number), None) => Ok(number),
        (Some(_), Some(_)) => Err(format!("expected one field `{name}`, found several")),
        (None, _) => {
            let nearest = nearest_names(name, names());
            let nearest = nearest.first().map_or("", |it| it.name);
            Err(format!("expected a field `{name}` in the header; the nearest is `{nearest}`"))
        }
    }
}
