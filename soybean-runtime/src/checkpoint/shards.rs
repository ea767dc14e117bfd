//! Which tensors go into which file.

use std::collections::BTreeMap;

use serde_json::json;

use super::naming;
use crate::{
    Error,
    tensor_file::{fault, header},
};

/// A file of tensors that is to be written.
pub(super) struct Shard {
    pub(super) name: String,
    pub(super) header: Vec<u8>,
    /// The name and the number of elements of each.
    pub(super) tensors: Vec<(String, usize)>,
}

/// Names and shapes.
type Shapes = Vec<(String, Vec<usize>)>;

/// The files of these tensors, in the order of their elements, each of at most `most` bytes of elements where tensors are not longer themselves; and the index where
/// there are several.
pub(super) fn shards(
    stem: &str,
    tensors: Shapes,
    most: u64,
) -> Result<(Vec<Shard>, Option<String>), Error> {
    if tensors.is_empty() {
        return Ok((Vec::new(), None));
    }
    let total = tensors.iter().map(|it| n_bytes(&it.1)).sum::<u64>();
    let groups = groups(tensors, most);
    let count = groups.len();
    let shard = |(number, tensors): (usize, &Shapes)| {
        let name = naming::shard(stem, number + 1, count);
        let n_elements = |it: &(String, Vec<usize>)| (it.0.clone(), it.1.iter().product());
        let header = header(tensors)?;
        Ok(Shard { name, header, tensors: tensors.iter().map(n_elements).collect() })
    };
    let shards: Vec<Shard> = groups.iter().enumerate().map(shard).collect::<Result<_, Error>>()?;
    let index = (count > 1).then(|| index(&shards, total)).transpose()?;
    Ok((shards, index))
}

fn groups(tensors: Shapes, most: u64) -> Vec<Shapes> {
    let mut groups: Vec<Shapes> = Vec::new();
    let mut held = 0;
    for tensor in tensors {
        let n_bytes = n_bytes(&tensor.1);
        match groups.last_mut() {
            Some(group) if held + n_bytes <= most => {
                held += n_bytes;
                group.push(tensor);
            }
            Some(_) | None => {
                held = n_bytes;
                groups.push(vec![tensor]);
            }
        }
    }
    groups
}

fn n_bytes(shape: &[usize]) -> u64 {
    4 * shape.iter().product::<usize>() as u64
}

/// The index as Hugging Face has it.
fn index(shards: &[Shard], total: u64) -> Result<String, Error> {
    let files = shards.iter().flat_map(|shard| shard.tensors.iter().map(|it| (&it.0, &shard.name)));
    let files: BTreeMap<&String, &String> = files.collect();
    let index = json!({ "metadata": { "total_size": total }, "weight_map": files });
    serde_json::to_string_pretty(&index)
        .map_err(|error| fault(format!("an index of tensors: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_in_the_order_of_the_model_and_files_within_the_limit() {
        let tensor = |name: &str, n_elements| (name.to_owned(), vec![n_elements]);
        let tensors = vec![tensor("a", 2), tensor("b", 2), tensor("c", 9), tensor("d", 1)];
        let (shards, index) = shards("model", tensors.clone(), 16).unwrap();
        let found: Vec<Vec<&str>> =
            shards.iter().map(|it| it.tensors.iter().map(|it| it.0.as_str()).collect()).collect();
        assert_eq!(found, [vec!["a", "b"], vec!["c"], vec!["d"]]);
        assert_eq!(shards[1].name, "model-00002-of-00003.safetensors");
        let index: serde_json::Value = serde_json::from_str(&index.unwrap()).unwrap();
        assert_eq!(index["weight_map"]["d"], "model-00003-of-00003.safetensors");
        assert_eq!(index["metadata"]["total_size"], 56);
        let (whole, index) = super::shards("model", tensors, 56).unwrap();
        assert_eq!((whole.len(), whole[0].name.as_str(), index), (1, "model.safetensors", None));
    }
}
