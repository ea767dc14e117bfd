//! Matching the tensors of a file with those of a model.

use std::collections::BTreeMap;

use soybean_plan::listed;

use super::{Loaded, Mapping, convert::is_number, nearest::nearest, source::Source};
use crate::{Error, ErrorKind, StateSpec, exchanged::exchanged, tensor_file::Entry};

/// The limit of suggestions in a message, since each compares a name with all others.
const MAX_SUGGESTIONS: usize = 20;

/// A tensor of a file that matches one of the model's.
pub(super) struct Match<'a> {
    pub(super) entry: &'a Entry,
    /// The number of the tensor in the state.
    pub(super) number: usize,
    pub(super) is_transposed: bool,
}

/// The match of each tensor of each file, if there is one.
type Matches<'a> = Vec<Vec<Option<Match<'a>>>>;

/// Finds the matching tensor of the model for each tensor of the files.
pub(super) fn matches<'a>(
    spec: &StateSpec,
    source: &'a Source,
    mapping: &Mapping,
) -> Result<(Matches<'a>, Loaded), Error> {
    let parameters = &spec.parameters;
    let numbers: BTreeMap<&str, usize> =
        parameters.iter().enumerate().map(|(number, it)| (it.name.as_str(), number)).collect();
    let mut theirs: Vec<Option<&str>> = vec![None; parameters.len()];
    let (mut unused, mut errors) = (Vec::new(), Vec::new());
    let mut find = |entry: &'a Entry| {
        let (ours, is_transposed) = mapping.ours(&entry.name);
        let Some(&number) = numbers.get(ours.as_str()) else {
            unused.push((entry.name.as_str(), ours));
            return None;
        };
        let expected = &parameters[number].shape[..];
        errors.extend(error_of(entry, &ours, expected, is_transposed));
        if let Some(other) = theirs[number].replace(&entry.name) {
            errors.push(format!(
                "`{ours}`: expected one tensor, found `{other}` and `{}`",
                entry.name
            ));
        }
        Some(Match { entry, number, is_transposed })
    };
    let files = source.files.iter();
    let found: Matches<'a> =
        files.map(|file| file.entries.iter().map(&mut find).collect()).collect();
    let without = parameters.iter().zip(&theirs).filter(|it| it.1.is_none());
    let missing: Vec<&str> = without.map(|it| it.0.name.as_str()).collect();
    let unmatched = Unmatched { missing: &missing, unused: &unused, mapping };
    errors.extend(unmatched.errors());
    let matched = found.iter().flatten().flatten();
    let hashes = matched.map(|it| (parameters[it.number].name.as_str(), it.entry.use_hash));
    errors.extend(exchanged(parameters, &hashes.collect()));
    if !errors.is_empty() {
        let (path, model, errors) = (source.path.display(), &spec.model, listed(errors, "; "));
        let message = format!("{path}: expected weights of the model `{model}`: {errors}");
        return Err(Error::new(ErrorKind::Parameters, message));
    }
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    let n_tensors = parameters.len() - missing.len();
    let unused = unused.iter().map(|it| it.0).collect();
    Ok((found, Loaded { n_tensors, missing: owned(missing), unused: owned(unused) }))
}

/// Describes the error in a matched tensor, if there is one.
fn error_of(entry: &Entry, ours: &str, expected: &[usize], is_transposed: bool) -> Option<String> {
    let Entry { name, dtype, shape, .. } = entry;
    let turned: Vec<usize> = match is_transposed {
        true => shape.iter().rev().copied().collect(),
        false => shape.clone(),
    };
    let which =
        if name == ours { format!("`{ours}`") } else { format!("`{ours}` (their `{name}`)") };
    if is_transposed && shape.len() != 2 {
        return Some(format!("{which}: expected a matrix to transpose, found shape {shape:?}"));
    }
    if turned != expected {
        let of = if is_transposed { ", transposed" } else { "" };
        return Some(format!("{which}: expected shape {expected:?}, found {turned:?}{of}"));
    }
    let wrong_type = || format!("{which}: expected F32, F64, F16 or BF16, found {dtype}");
    (!is_number(*dtype)).then(wrong_type)
}

/// The names without a counterpart.
struct Unmatched<'a> {
    missing: &'a [&'a str],
    /// The names in the file, and the names to which they are mapped.
    unused: &'a [(&'a str, String)],
    mapping: &'a Mapping,
}

impl Unmatched<'_> {
    fn errors(&self) -> Vec<String> {
        let missing = self.missing.iter().filter(|it| !self.mapping.is_missing_allowed(it));
        let unused = self.unused.iter().filter(|it| !self.mapping.is_unused_allowed(it.0));
        let missing: Vec<String> =
            missing.enumerate().map(|(at, name)| self.missing(at, name)).collect();
        let unused: Vec<String> = unused.enumerate().map(|(at, it)| self.unused(at, it)).collect();
        let group = |what: &str, names: Vec<String>| {
            (!names.is_empty()).then(|| format!("{what} {}", listed(names, ", ")))
        };
        [group("missing", missing), group("unused", unused)].into_iter().flatten().collect()
    }

    fn missing(&self, at: usize, name: &str) -> String {
        let others = self.unused.iter().map(|it| it.1.as_str());
        let near = (at < MAX_SUGGESTIONS).then(|| nearest(name, others)).flatten();
        let theirs = near.and_then(|near| self.unused.iter().find(|it| it.1 == near));
        theirs.map_or_else(
            || format!("`{name}`"),
            |(theirs, _)| format!("`{name}` (is it their `{theirs}`?)"),
        )
    }

    fn unused(&self, at: usize, (theirs, ours): &(&str, String)) -> String {
        let others = self.missing.iter().copied();
        let near = (at < MAX_SUGGESTIONS).then(|| nearest(ours, others)).flatten();
        near.map_or_else(
            || format!("`{theirs}`"),
            |near| format!("`{theirs}` (is it our `{near}`?)"),
        )
    }
}
