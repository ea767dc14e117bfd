//! The distribution of tensors to files.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{
    Error, TensorSpec, naming,
    tensor_file::{checkpoint_error, header},
};

/// A file of tensors that is to be written.
pub(crate) struct Shard {
    pub(crate) name: String,
    pub(crate) header: Vec<u8>,
    pub(crate) tensors: Vec<TensorSpec>,
}

/// Distributes tensors to files, in their order. Returns the text of the index if there are
/// several files.
///
/// The elements of a file have at most `max_bytes`, unless it holds one longer tensor.
pub(crate) fn shards(
    stem: &str,
    tensors: Vec<TensorSpec>,
    max_bytes: u64,
) -> Result<(Vec<Shard>, Option<String>), Error> {
    if tensors.is_empty() {
        return Ok((Vec::new(), None));
    }
    let total = tensors.iter().map(n_bytes).sum::<u64>();
    let groups = groups(tensors, max_bytes);
    let count = groups.len();
    let shard = |(number, tensors): (usize, Vec<TensorSpec>)| {
        let name = naming::shard(stem, number + 1, count);
        let header = header(&tensors)?;
        Ok(Shard { name, header, tensors })
    };
    let shards: Vec<Shard> =
        groups.into_iter().enumerate().map(shard).collect::<Result<_, Error>>()?;
    let index = (count > 1).then(|| index(&shards, total)).transpose()?;
    Ok((shards, index))
}

fn groups(tensors: Vec<TensorSpec>, max_bytes: u64) -> Vec<Vec<TensorSpec>> {
    let mut groups: Vec<Vec<TensorSpec>> = Vec::new();
    let mut group_bytes = 0;
    for tensor in tensors {
        let n_bytes = n_bytes(&tensor);
        match groups.last_mut() {
            Some(group) if group_bytes + n_bytes <= max_bytes => {
                group_bytes += n_bytes;
                group.push(tensor);
            }
            Some(_) | None => {
                group_bytes = n_bytes;
                groups.push(vec![tensor]);
            }
        }
    }
    groups
}

fn n_bytes(tensor: &TensorSpec) -> u64 {
    4 * tensor.n_elements() as u64
}

/// Returns the text of an index in the format of Hugging Face.
fn index(shards: &[Shard], total: u64) -> Result<String, Error> {
    let files =
        shards.iter().flat_map(|shard| shard.tensors.iter().map(|it| (&it.name, &shard.name)));
    let files: BTreeMap<&String, &String> = files.collect();
    let index = json!({ "metadata": { "total_size": total }, "weight_map": files });
    serde_json::to_string_pretty(&index)
        .map_err(|error| checkpoint_error(format!("an index of tensors: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_in_the_order_of_the_model_and_files_within_the_limit() {
        let tensor = |name: &str, n_elements| TensorSpec {
            name: name.to_owned(),
            shape: vec![n_elements],
            n_terms: 1,
            use_hash: 0,
        };
        let tensors = vec![tensor("a", 2), tensor("b", 2), tensor("c", 9), tensor("d", 1)];
        let (shards, index) = shards("model", tensors.clone(), 16).unwrap();
        let found: Vec<Vec<&str>> = shards
            .iter()
            .map(|it| it.tensors.iter().map(|it| it.name.as_str()).collect())
            .collect();
        assert_eq!(found, [vec!["a", "b"], vec!["c"], vec!["d"]]);
        assert_eq!(shards[1].name, "model-00002-of-00003.safetensors");
        let index: serde_json::Value = serde_json::from_str(&index.unwrap()).unwrap();
        assert_eq!(index["weight_map"]["d"], "model-00003-of-00003.safetensors");
        assert_eq!(index["metadata"]["total_size"], 56);
        let (whole, index) = super::shards("model", tensors, 56).unwrap();
        assert_eq!((whole.len(), whole[0].name.as_str(), index), (1, "model.safetensors", None));
    }
}
