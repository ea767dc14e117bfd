//! The check that equal layers have not changed places since weights were written.

use std::collections::BTreeMap;

use crate::TensorSpec;

/// Returns what the user has to know if tensors of a file belong to others of the model than their
/// names say. `stored` has the hashes in the file, by the name in the model.
///
/// Only the names of calls that are told apart by numbers depend on their order in the source. Any
/// other name says what the user means.
pub(crate) fn exchanged(parameters: &[TensorSpec], stored: &BTreeMap<&str, u64>) -> Option<String> {
    let by_use: BTreeMap<u64, &str> =
        parameters.iter().rev().map(|it| (it.use_hash, it.name.as_str())).collect();
    let mut exchanged = parameters.iter().filter_map(|parameter| {
        let name = parameter.name.as_str();
        let use_hash = stored.get(name).copied().filter(|it| *it != 0)?;
        let other = by_use.get(&use_hash).filter(|_| use_hash != parameter.use_hash)?;
        (words(name) == words(other)).then_some((name, other))
    });
    let (name, other) = exchanged.next()?;
    Some(format!(
        "`{name}` was written by a model that uses it as this one uses `{other}`: equal layers have \
         changed places in the source, and their names with them. Put them back, or name them with \
         `scope` and map the names of the file"
    ))
}

/// Returns the parts of a name that are not numbers.
pub(crate) fn words(name: &str) -> Vec<&str> {
    name.split('.').filter(|part| !part.bytes().all(|it| it.is_ascii_digit())).collect()
}
