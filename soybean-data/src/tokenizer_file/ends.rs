//! The tokens after which a text ends, from a tokenizer and the files beside it.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use crate::{
    Error,
    file::{MAX_JSON_BYTES, guarded, named, read_json, read_whole},
};

/// The names of special tokens that end a text or a turn of a chat, in the files of published
/// models. The first one that a file has ends the texts of a file of tokens.
const NAMES: [&str; 20] = [
    "<|endoftext|>",
    "</s>",
    "<|end_of_text|>",
    "<eos>",
    "<|eos|>",
    "[EOS]",
    "<|EOT|>",
    "<｜end▁of▁sentence｜>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end_of_turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|endofturn|>",
    "<|return|>",
    "<|assistant_end|>",
];

/// Returns the ends of texts without repetition. The first one is the end of a text; others may be
/// those of turns.
pub(super) fn ends(path: &Path, tokenizer: &tokenizers::Tokenizer) -> Result<Vec<u32>, Error> {
    let beside = |name: &str| Some(path.with_file_name(name)).filter(|it| it.exists());
    let json = |name: &str| beside(name).map(|it| Ok((read_json(&it)?, it))).transpose();
    let special: BTreeMap<String, u32> = guarded(path, || {
        let added = tokenizer.get_added_tokens_decoder().into_iter();
        Ok(added.filter(|it| it.1.special).map(|(number, it)| (it.content, number)).collect())
    })?;
    let mut ends = Vec::new();
    let config = json("tokenizer_config.json")?.map(|it| it.0).unwrap_or_default();
    let end = &config["eos_token"];
    // It is a name, or an object with the name.
    let end = end.as_str().or_else(|| end["content"].as_str());
    let number = |name: &str| special.get(name).copied().or_else(|| tokenizer.token_to_id(name));
    ends.extend(end.and_then(number));
    for name in ["generation_config.json", "config.json"] {
        if let Some((config, path)) = json(name)? {
            ends.extend(listed(&config["eos_token_id"]).map_err(|it| named(&path, &it))?);
        }
    }
    ends.extend(NAMES.iter().filter_map(|it| special.get(*it)));
    let mut templates = texts(&config["chat_template"]);
    if let Some((value, _)) = json("chat_template.json")? {
        templates.extend(texts(&value["chat_template"]));
    }
    if let Some(path) = beside("chat_template.jinja") {
        templates.push(String::from_utf8_lossy(&read_whole(&path, MAX_JSON_BYTES)?).into_owned());
    }
    ends.extend(templates.iter().filter_map(|it| end_of_turn(it, &special, end.and_then(number))));
    let mut known = std::collections::BTreeSet::new();
    ends.retain(|it| known.insert(*it));
    Ok(ends)
}

/// Returns the numbers of `eos_token_id`: one, several or none.
fn listed(value: &Value) -> Result<Vec<u32>, String> {
    let number = |it: &Value| {
        let number = it.as_u64().and_then(|it| u32::try_from(it).ok());
        number.ok_or_else(|| format!("`eos_token_id`: expected the number of a token, found {it}"))
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(values) => values.iter().map(number).collect(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Ok(vec![number(value)?])
        }
    }
}

/// Returns the templates of chats: one, or a list of them with names.
fn texts(value: &Value) -> Vec<String> {
    let one = value.as_str().into_iter();
    let several = value.as_array().into_iter().flatten().filter_map(|it| it["template"].as_str());
    one.chain(several).map(str::to_owned).collect()
}

/// Returns the token that ends a turn in a template: the last one before the template begins a new
/// turn, which it does if `add_generation_prompt` is set.
fn end_of_turn(template: &str, special: &BTreeMap<String, u32>, end: Option<u32>) -> Option<u32> {
    let turns = &template[..template.rfind("add_generation_prompt")?];
    let names = special.iter().map(|(name, number)| (name.as_str(), *number));
    let names = names.chain(end.map(|it| ("eos_token", it)));
    // Of names at the same place, the longest is meant.
    let place = |(name, number): (&str, u32)| Some((turns.rfind(name)?, name.len(), number));
    names.filter(|it| !it.0.is_empty()).filter_map(place).max().map(|it| it.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of published templates that matter here.
    #[test]
    fn the_last_token_of_a_turn_is_found() {
        let names = ["<s>", "<|im_start|>", "<|im_end|>", "<|end|>", "<|user|>", "<|x_end|>", ""];
        let special = names.iter().map(|it| (*it).to_owned()).zip(0..).collect();
        let found = |template: &str| end_of_turn(template, &special, Some(9));
        let qwen = "{% for m in messages %}{{'<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
        assert_eq!(found(qwen), Some(2));
        let phi = "{{'<|user|>\n' + m['content'] + '<|end|>\n'}}{% if add_generation_prompt %}";
        assert_eq!(found(phi), Some(3));
        let zephyr = "{% if not add_generation_prompt is defined %}{% endif %}{{ '<|user|>' + m.content + eos_token }}{% if loop.last and add_generation_prompt %}";
        assert_eq!(found(zephyr), Some(9));
        assert_eq!(found("{{ m.content + eos_token }}"), None);
        assert_eq!(found("{% if add_generation_prompt %}<|user|>"), None);
    }

    #[test]
    fn ends_are_one_or_several() {
        let listed = |text: &str| listed(&serde_json::from_str(text).unwrap());
        assert_eq!(listed("3"), Ok(vec![3]));
        assert_eq!(listed("[3, 4]"), Ok(vec![3, 4]));
        assert_eq!(listed("null"), Ok(vec![]));
        let fault = "`eos_token_id`: expected the number of a token, found ";
        for wrong in ["-1", "\"3\"", "4294967296", "1.5", "{}"] {
            assert_eq!(listed(wrong), Err(format!("{fault}{wrong}")));
        }
        assert_eq!(listed("[3, null]"), Err(format!("{fault}null")));
    }
}
