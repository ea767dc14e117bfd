//! Files of Hugging Face's tokenizers: whole texts, the tokens around them, and their ends.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use soybean_data::{
    ByteTokenizer, Error, SpecialTokens, TextField, TokenWidth, Tokenizer, TokenizerFile,
    Vocabulary, read_file, tokenize_file, tokenize_json_lines,
};

/// The folder of a model, with files of JSON. It is removed when this is dropped.
struct Model(PathBuf);

impl Model {
    fn new(name: &str, tokenizer: &Value, others: &[(&str, Value)]) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tokenizers").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let others = others.iter().map(|(name, value)| (*name, value));
        for (name, value) in others.chain([("tokenizer.json", tokenizer)]) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            fs::write(folder.join(name), text).unwrap();
        }
        Self(folder)
    }

    fn open(&self) -> Result<TokenizerFile, Error> {
        TokenizerFile::open(self.0.join("tokenizer.json"))
    }

    /// Opens the tokenizer of a file whose tokens are these words, of which those with brackets are
    /// special.
    fn ends(name: &str, words: &[&str], others: &[(&str, Value)]) -> Vec<u32> {
        Self::new(name, &words_of(words, &json!({})), others).open().unwrap().ends()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the file of a tokenizer of words, with some other members.
pub(crate) fn words_of(words: &[&str], members: &Value) -> Value {
    let numbers = words.iter().zip(0..).map(|(word, number)| ((*word).to_owned(), json!(number)));
    let added = |(content, id): (&&str, u32)| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true
        })
    };
    let is_special = |it: &(&&str, u32)| it.0.starts_with(['<', '[']);
    let mut file = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "added_tokens": words.iter().zip(0..).filter(is_special).map(added).collect::<Vec<_>>(),
        "model": {
            "type": "WordLevel", "vocab": numbers.collect::<serde_json::Map<_, _>>(),
            "unk_token": words[0]
        }
    });
    for (key, value) in members.as_object().unwrap() {
        file[key] = value.clone();
    }
    file
}

const WORDS: [&str; 6] = ["[UNK]", "<s>", "</s>", "a", "b", "c"];

/// Returns a post-processor with tokens around texts.
fn around(start: &[&str], end: &[&str]) -> Value {
    let special = |it: &&str| json!({"SpecialToken": {"id": it, "type_id": 0}});
    let text = [json!({"Sequence": {"id": "A", "type_id": 0}})];
    let single: Vec<Value> =
        start.iter().map(special).chain(text).chain(end.iter().map(special)).collect();
    let number = |it: &&str| WORDS.iter().position(|word| word == it).unwrap();
    let token =
        |it: &&str| (it.to_string(), json!({"id": it, "ids": [number(it)], "tokens": [it]}));
    let tokens: serde_json::Map<_, _> = start.iter().chain(end).map(token).collect();
    json!({"post_processor": {
        "type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": tokens
    }})
}

fn of_words(name: &str, members: &Value) -> TokenizerFile {
    Model::new(name, &words_of(&WORDS, members), &[]).open().unwrap()
}

// Guards: lines that lose their end, or are filled, because the file asks for it.
#[test]
fn texts_are_encoded_as_a_whole() {
    let truncation = |direction: &str, strategy: &str, stride: u32| {
        json!({"truncation": {
            "direction": direction, "max_length": 4, "strategy": strategy, "stride": stride
        }})
    };
    let padding = |strategy: Value, direction: &str, multiple: Value| {
        json!({"padding": {
            "strategy": strategy, "direction": direction, "pad_to_multiple_of": multiple,
            "pad_id": 2, "pad_type_id": 0, "pad_token": "</s>"
        }})
    };
    let mut both = truncation("Right", "LongestFirst", 0);
    both["padding"] = padding(json!({"Fixed": 8}), "Right", Value::Null)["padding"].clone();
    let text = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("whole.txt");
    fs::write(&text, "a b c a b c\na b\n").unwrap();
    for (number, members) in [
        truncation("Right", "LongestFirst", 0),
        truncation("Left", "LongestFirst", 2),
        truncation("Right", "OnlyFirst", 0),
        truncation("Right", "OnlySecond", 0),
        padding(json!({"Fixed": 8}), "Right", Value::Null),
        padding(json!({"Fixed": 8}), "Left", Value::Null),
        padding(json!("BatchLongest"), "Right", json!(16)),
        both,
    ]
    .iter()
    .enumerate()
    {
        let tokenizer = of_words(&format!("whole{number}"), members);
        assert_eq!(tokenizer.encode("a b c a b c").unwrap(), [3, 4, 5, 3, 4, 5], "{members}");
        assert_eq!(tokenizer.encode("a").unwrap(), [3], "{members}");
        let tokens = text.with_extension(format!("{number}.u16"));
        assert_eq!(tokenize_file(&text, &tokens, TokenWidth::U16, &tokenizer).unwrap(), 8);
        let expected: Vec<u8> =
            [3, 4, 5, 3, 4, 5, 3, 4].into_iter().flat_map(|it| [it, 0]).collect();
        assert_eq!(read_file(&tokens).unwrap(), expected);
    }
}

// Guards: the same text with other tokens at each call.
#[test]
fn merges_are_not_dropped() {
    let model = json!({"model": {
        "type": "BPE", "dropout": 0.5, "unk_token": null, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
        "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3}, "merges": [["a", "b"], ["ab", "ab"]]
    }, "added_tokens": []});
    let tokenizer = of_words("dropout", &model);
    for _ in 0..50 {
        assert_eq!(tokenizer.encode("abababab").unwrap(), [3, 3]);
    }
}

// Guards: a prompt that ends with the end of a text, so that nothing follows.
#[test]
fn special_tokens_are_a_choice() {
    let encoded = |start: &[&str], end: &[&str], text: &str| {
        [SpecialTokens::All, SpecialTokens::Start, SpecialTokens::None].map(|choice| {
            let tokenizer = of_words("special", &around(start, end));
            tokenizer.with_special_tokens(choice).encode(text).unwrap()
        })
    };
    let both = encoded(&["<s>"], &["</s>"], "a b");
    assert_eq!(both, [vec![1, 3, 4, 2], vec![1, 3, 4], vec![3, 4]]);
    assert_eq!(encoded(&[], &["</s>", "</s>"], "a"), [vec![3, 2, 2], vec![3], vec![3]]);
    assert_eq!(encoded(&["<s>"], &[], "a"), [vec![1, 3], vec![1, 3], vec![3]]);
    // What the text itself has stays.
    assert_eq!(
        encoded(&["<s>"], &["</s>"], "a</s>"),
        [vec![1, 3, 2, 2], vec![1, 3, 2], vec![3, 2]]
    );
    assert_eq!(encoded(&["<s>"], &["</s>"], ""), [vec![1, 2], vec![1], vec![]]);
}

#[test]
fn files_of_tokens_have_the_chosen_special_tokens() {
    let model = Model::new("chosen", &words_of(&WORDS, &around(&["<s>"], &["</s>"])), &[]);
    let (texts, tokens) = (model.0.join("texts.jsonl"), model.0.join("tokens.u16"));
    fs::write(&texts, "{\"text\": \"a b\"}\n{\"text\": \"c\"}\n").unwrap();
    let written = |choice: SpecialTokens| {
        let tokenizer = model.open().unwrap().with_special_tokens(choice);
        let field = TextField { name: "text", end: tokenizer.end() };
        tokenize_json_lines(&texts, field, &tokens, TokenWidth::U16, &tokenizer).unwrap();
        read_file(&tokens).unwrap().chunks(2).map(|it| it[0]).collect::<Vec<u8>>()
    };
    assert_eq!(written(SpecialTokens::All), [1, 3, 4, 2, 2, 1, 5, 2, 2]);
    assert_eq!(written(SpecialTokens::Start), [1, 3, 4, 2, 1, 5, 2]);
    assert_eq!(written(SpecialTokens::None), [3, 4, 2, 5, 2]);
}

// Guards: chats that go on behind the end of a turn, because one end alone is known.
#[test]
fn the_ends_of_published_models_are_a_set() {
    let qwen = ["[UNK]", "a", "<|endoftext|>", "<|im_start|>", "<|im_end|>"];
    assert_eq!(Model::ends("qwen", &qwen, &[]), [2, 4]);
    let config = ("tokenizer_config.json", json!({"eos_token": "<|im_end|>"}));
    let generation = ("generation_config.json", json!({"eos_token_id": [4, 2]}));
    assert_eq!(Model::ends("qwen", &qwen, &[config, generation]), [4, 2]);
    let llama = ["[UNK]", "a", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>"];
    assert_eq!(Model::ends("llama", &llama, &[]), [2, 3]);
    let gemma = ["[UNK]", "<eos>", "<start_of_turn>", "<end_of_turn>"];
    assert_eq!(Model::ends("gemma", &gemma, &[]), [1, 3]);
    assert_eq!(Model::ends("gpt2", &["<|endoftext|>", "a"], &[]), [0]);
    assert_eq!(Model::ends("none", &["[UNK]", "a"], &[]), Vec::<u32>::new());
    // A word is not special for its name.
    let words = words_of(&["[UNK]", "</s>"], &json!({"added_tokens": []}));
    assert_eq!(Model::new("html", &words, &[]).open().unwrap().ends(), Vec::<u32>::new());
}

#[test]
fn ends_are_read_beside_the_tokenizer() {
    let words = ["[UNK]", "a", "<stop>", "<turn>", "<halt>", "<u>"];
    let ends = |others: &[(&str, Value)]| Model::ends("beside", &words, others);
    let generation = |value: Value| ("generation_config.json", json!({"eos_token_id": value}));
    assert_eq!(ends(&[generation(json!(2))]), [2]);
    assert_eq!(ends(&[generation(json!([2, 4, 2]))]), [2, 4]);
    assert_eq!(ends(&[generation(Value::Null)]), Vec::<u32>::new());
    assert_eq!(ends(&[("config.json", json!({"eos_token_id": 4}))]), [4]);
    let template = "{{'<u>' + m.content + '<turn>'}}{% if add_generation_prompt %}<u>{% endif %}";
    let config = |value: Value| ("tokenizer_config.json", value);
    assert_eq!(ends(&[config(json!({"chat_template": template}))]), [3]);
    let several = json!([{"name": "default", "template": template}]);
    let all = json!({"eos_token": {"content": "<halt>"}, "chat_template": several});
    assert_eq!(ends(&[config(all), generation(json!(2))]), [4, 2, 3]);
    assert_eq!(ends(&[("chat_template.jinja", json!(template))]), [3]);
    assert_eq!(ends(&[("chat_template.json", json!({"chat_template": template}))]), [3]);
    let fault = |others: &[(&str, Value)]| {
        let model = Model::new("faults", &words_of(&words, &json!({})), others);
        let error = model.open().unwrap_err().to_string();
        error.strip_prefix(&format!("{}/", model.0.display())).unwrap().to_owned()
    };
    assert_eq!(
        fault(&[generation(json!("<stop>"))]),
        "generation_config.json: `eos_token_id`: expected the number of a token, found \"<stop>\""
    );
    let cut = fault(&[("tokenizer_config.json", json!("{\"eos"))]);
    assert!(cut.starts_with("tokenizer_config.json: expected JSON, found: EOF"), "{cut}");
}

/// Guards: numbers with gaps, of which the largest is no token of a file of 16 bits.
#[test]
fn the_vocabulary_has_the_largest_number() {
    let vocab = json!({"[UNK]": 0, "a": 70_000});
    let model = json!({"model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}});
    let tokenizer = of_words("gaps", &model);
    assert_eq!(tokenizer.vocabulary(), 70_001);
    let text = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gaps.txt");
    fs::write(&text, "a a\n").unwrap();
    let tokens = text.with_extension("u16");
    let error = tokenize_file(&text, &tokens, TokenWidth::U16, &tokenizer).unwrap_err();
    assert!(error.to_string().contains("at most 65536 tokens for U16, found 70001"), "{error}");
}

#[test]
fn tokens_have_numbers_by_name() {
    let tokenizer = of_words("named", &around(&["<s>"], &["</s>"]));
    assert_eq!([tokenizer.number_of("</s>"), tokenizer.number_of("c")], [Some(2), Some(5)]);
    assert_eq!([tokenizer.number_of("d"), tokenizer.number_of("a b")], [None; 2]);
    let letters = Vocabulary::of_characters("hello");
    assert_eq!([letters.number_of("h"), letters.number_of("he")], [Some(1), None]);
    assert_eq!(ByteTokenizer.number_of("\n"), Some(10));
}

#[test]
fn tokenizers_that_differ_have_other_fingerprints() {
    let letters = |text: &str| Vocabulary::of_characters(text).fingerprint();
    let words = |name: &str, members: Value| of_words(name, &members);
    let file = words("same", json!({}));
    let mut all = vec![
        ByteTokenizer.fingerprint(),
        letters("ab"),
        letters("abc"),
        Vocabulary::new(["ab", "c"]).unwrap().fingerprint(),
        Vocabulary::new(["a", "bc"]).unwrap().fingerprint(),
        file.fingerprint(),
        words("other", json!({"normalizer": {"type": "Lowercase"}})).fingerprint(),
        file.with_special_tokens(SpecialTokens::None).fingerprint(),
    ];
    assert_eq!(words("again", json!({})).fingerprint(), all[5]);
    let n = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), n);
}
