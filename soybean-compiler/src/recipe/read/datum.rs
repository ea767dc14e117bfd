//! The words of a recipe's line.

use std::{iter::Peekable, str::Chars};

/// One line: what is made, if anything is, by which word, of what.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) result: Option<Datum>,
    pub(super) word: String,
    pub(super) data: Vec<Datum>,
}

/// A written value; tensors are numbers.
#[derive(Debug)]
pub(in crate::recipe) enum Datum {
    Tensor(usize),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Text(String),
    List(Vec<Datum>),
    All,
}

impl Line {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (left, right) = match text.split_once(" = ") {
            // Strings follow the word, so this is not part of a string.
            Some((left, right)) if !left.contains('"') => (Some(left), right),
            Some(_) | None => (None, text),
        };
        let result = left.map(|left| {
            let mut data = data(left)?;
            data.pop().filter(|_| data.is_empty()).ok_or("one thing stands before `=`".to_owned())
        });
        let (word, rest) = right.split_once(' ').unwrap_or((right, ""));
        Ok(Self { result: result.transpose()?, word: word.to_owned(), data: data(rest)? })
    }
}

impl Datum {
    pub(in crate::recipe) fn list(&self) -> Result<&[Self], String> {
        match self {
            Self::List(members) => Ok(members),
            other => Err(format!("expected a list, found {other:?}")),
        }
    }

    pub(in crate::recipe) fn count(&self) -> Result<usize, String> {
        match self {
            Self::Integer(it) if *it >= 0 => {
                usize::try_from(*it).map_err(|_| format!("{it} is too large"))
            }
            other => Err(format!("expected a count, found {other:?}")),
        }
    }

    pub(in crate::recipe) fn number(&self) -> Result<f64, String> {
        match self {
            Self::Float(it) => Ok(*it),
            other => Err(format!("expected a number, found {other:?}")),
        }
    }

    fn of_word(word: &str) -> Result<Self, String> {
        let tensor = || word.strip_prefix('v')?.parse().ok().map(Self::Tensor);
        let integer = || word.parse().ok().map(Self::Integer);
        let float = || word.parse().ok().map(Self::Float);
        match word {
            ".." => Ok(Self::All),
            "true" => Ok(Self::Boolean(true)),
            "false" => Ok(Self::Boolean(false)),
            _ => tensor()
                .or_else(integer)
                .or_else(float)
                .ok_or_else(|| format!("`{word}` is no value")),
        }
    }
}

/// The most lists within each other. Recipes have few, and reading them recurses.
const MAX_DEPTH: usize = 16;

fn data(text: &str) -> Result<Vec<Datum>, String> {
    let mut characters = text.chars().peekable();
    let mut data = Vec::new();
    while let Some(datum) = datum(&mut characters, MAX_DEPTH)? {
        data.push(datum);
    }
    match characters.next() {
        None => Ok(data),
        Some(other) => Err(format!("unexpected `{other}`")),
    }
}

/// Returns the next value, with at most `depth` lists within each other; `None` at the end of the
/// line or of a list.
fn datum(characters: &mut Peekable<Chars<'_>>, depth: usize) -> Result<Option<Datum>, String> {
    while characters.next_if(|it| matches!(it, ' ' | ',')).is_some() {}
    match characters.peek() {
        None | Some(']') => Ok(None),
        Some('[') => {
            characters.next();
            let depth = depth.checked_sub(1).ok_or("too many lists are within each other")?;
            let mut members = Vec::new();
            while let Some(member) = datum(characters, depth)? {
                members.push(member);
            }
            match characters.next() {
                Some(']') => Ok(Some(Datum::List(members))),
                _ => Err("a list has no end".to_owned()),
            }
        }
        Some('"') => {
            characters.next();
            string(characters).map(|it| Some(Datum::Text(it)))
        }
        Some(_) => {
            let mut word = String::new();
            while let Some(it) = characters.next_if(|it| !matches!(it, ' ' | ',' | '[' | ']' | '"'))
            {
                word.push(it);
            }
            Datum::of_word(&word).map(Some)
        }
    }
}

/// Returns the rest of a string in Rust's debug form, after its first quote.
fn string(characters: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match characters.next() {
            Some('"') => return Ok(text),
            Some('\\') => text.push(escape(characters).ok_or("a string has a wrong escape")?),
            Some(other) => text.push(other),
            None => return Err("a string has no end".to_owned()),
        }
    }
}

fn escape(characters: &mut Peekable<Chars<'_>>) -> Option<char> {
    Some(match characters.next()? {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '0' => '\0',
        'u' => {
            characters.next_if_eq(&'{')?;
            let mut digits = String::new();
            while let Some(digit) = characters.next_if(char::is_ascii_hexdigit) {
                digits.push(digit);
            }
            characters.next_if_eq(&'}')?;
            char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
        }
        same @ ('"' | '\\' | '\'') => same,
        _ => return None,
    })
}
