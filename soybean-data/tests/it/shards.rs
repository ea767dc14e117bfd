//! Datasets of many files, and files of tokens made of texts.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use soybean_data::{
    ByteTokenizer, Column, DataLoader, Dataset, Error, LoaderOptions, Shards, Subset, Table,
    TokenSpec, TokenWidth, Tokenizer, Tokens, Values, Vocabulary, files_matching, tokenize_file,
};

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("shards").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The number of rows of each of seven shards; one has none.
const COUNTS: [usize; 7] = [10, 3, 0, 12, 7, 9, 4];

/// Returns shards whose rows are numbered in all, and the number of times that one was opened.
fn numbered(n_buffered: usize) -> (Shards, Arc<AtomicUsize>) {
    let n_opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&n_opened);
    let files: Vec<(PathBuf, usize)> =
        COUNTS.iter().enumerate().map(|(number, n)| (number.to_string().into(), *n)).collect();
    let open = move |path: &Path| {
        count.fetch_add(1, Ordering::SeqCst);
        let number: usize = path.to_str().unwrap().parse().unwrap();
        let first: usize = COUNTS[..number].iter().sum();
        let rows = first..first + COUNTS[number];
        let values = Values::I32(rows.map(|it| i32::try_from(it).unwrap()).collect());
        Table::new(vec![Column { name: "row".to_owned(), row: vec![], values }])
    };
    let shards = Shards::with_counts(&files, n_buffered, open).unwrap();
    n_opened.store(0, Ordering::SeqCst);
    (shards, n_opened)
}

fn rows(dataset: impl Dataset + 'static, options: LoaderOptions, first_batch: usize) -> Vec<i32> {
    let mut loader = DataLoader::new(dataset, options).unwrap();
    loader.start(2, first_batch);
    loader.flat_map(|it| it.unwrap().i32s(0).to_vec()).collect()
}

#[test]
fn an_epoch_takes_some_shards_at_a_time() {
    let n_rows: usize = COUNTS.iter().sum();
    let options = |seed| LoaderOptions { n_threads: 0, ..LoaderOptions::training(1, seed) };
    for n_buffered in [1, 2, 3, 7, 100] {
        let (shards, n_opened) = numbered(n_buffered);
        let order = rows(shards, options(5), 0);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..i32::try_from(n_rows).unwrap()).collect::<Vec<_>>());
        // The first shard may be in memory since it was opened for its columns.
        let n_opened = n_opened.load(Ordering::SeqCst);
        assert!((5..=6).contains(&n_opened), "{n_buffered}: {n_opened} opened of 6 with rows");
        // The shards of consecutive rows form groups: a shard does not come back after its group.
        let shard = |row: &i32| {
            let row = usize::try_from(*row).unwrap();
            (0..7).find(|it| row < COUNTS[..=*it].iter().sum()).unwrap()
        };
        let visited: Vec<usize> = order.iter().map(shard).collect();
        for number in 0..7 {
            let first = visited.iter().position(|it| *it == number);
            let last = visited.iter().rposition(|it| *it == number);
            let Some((first, last)) = first.zip(last) else { continue };
            let mut between = visited[first..=last].to_vec();
            between.sort_unstable();
            between.dedup();
            assert!(between.len() <= n_buffered, "{n_buffered}: {visited:?}");
        }
        assert_ne!(order, rows(numbered(n_buffered).0, options(6), 0), "{n_buffered}");
    }
}

#[test]
fn shards_are_resumed_and_read_by_threads_in_the_same_order() {
    let options = |n_threads| LoaderOptions { n_threads, ..LoaderOptions::training(5, 9) };
    let whole = rows(numbered(2).0, options(0), 0);
    assert_eq!(whole.len(), 45);
    assert_eq!(whole, rows(numbered(2).0, options(3), 0));
    let (shards, n_opened) = numbered(2);
    assert_eq!(whole[35..], rows(shards, options(0), 7));
    assert!(n_opened.load(Ordering::SeqCst) <= 4, "only the shards of the last rows");
    // The order goes through datasets that read others.
    let (shards, _) = numbered(2);
    assert_eq!(whole, rows(shards.transform(0, |_, _| ()), options(0), 0));
    let even: Vec<usize> = (0..45).filter(|it| it % 2 == 0).collect();
    let subset = Subset::new(Arc::new(numbered(2).0), even).unwrap();
    let expected: Vec<i32> = whole.iter().copied().filter(|it| it % 2 == 0).collect();
    let one = LoaderOptions { n_threads: 0, ..LoaderOptions::training(1, 9) };
    assert_eq!(rows(subset, one, 0), expected);
}

#[test]
fn texts_become_shards_of_tokens() {
    let folder = folder("texts");
    let texts = ["one text\nof two lines\n".repeat(9), "äöü, and more of it".repeat(11)];
    for (number, text) in texts.iter().enumerate() {
        let (from, to) =
            (folder.join(format!("{number}.txt")), folder.join(format!("{number}.u16")));
        fs::write(&from, text).unwrap();
        let n_tokens = tokenize_file(&from, &to, TokenWidth::U16, &ByteTokenizer).unwrap();
        assert_eq!(n_tokens, text.len() as u64);
    }
    let spec = TokenSpec { length: 16, stride: 16, vocabulary: 256 };
    let files = files_matching(folder.join("*.u16")).unwrap();
    let shards = Shards::open(&files, 1, move |path| Tokens::open(path, TokenWidth::U16, spec));
    let shards = shards.unwrap();
    let counts = shards.counts();
    assert_eq!(counts.iter().map(|it| it.1).sum::<usize>(), shards.n_rows());
    let options = LoaderOptions { n_threads: 0, ..LoaderOptions::evaluation(1) };
    let mut loader = DataLoader::new(shards, options).unwrap();
    for (text, (_, n_rows)) in texts.iter().zip(&counts) {
        let bytes: Vec<i32> = text.bytes().map(i32::from).collect();
        assert_eq!(*n_rows, (bytes.len() - 16).div_ceil(16));
        for row in 0..*n_rows {
            let batch = loader.next().unwrap().unwrap();
            assert_eq!(batch.i32s(0), &bytes[16 * row..16 * row + 16]);
            assert_eq!(batch.i32s(1), &bytes[16 * row + 1..16 * row + 17]);
        }
    }
    assert!(loader.next().is_none());
    let wrong: Vec<(PathBuf, usize)> = counts.iter().map(|it| (it.0.clone(), it.1 + 1)).collect();
    let open = move |path: &Path| Tokens::open(path, TokenWidth::U16, spec);
    let error = Shards::with_counts(&wrong, 1, open).unwrap_err().to_string();
    assert!(error.ends_with(&format!(
        "expected {} rows, as were counted, found {}",
        wrong[0].1, counts[0].1
    )));
}

#[test]
fn vocabularies_are_kept_in_files() {
    let folder = folder("vocabulary");
    let text = "a \"quoted\" line\nand another\n";
    let path = folder.join("text.txt");
    fs::write(&path, text).unwrap();
    Vocabulary::of_characters(text).save(folder.join("letters.json")).unwrap();
    let letters = Vocabulary::open(folder.join("letters.json")).unwrap();
    assert_eq!(letters, Vocabulary::of_characters(text));
    let tokens = folder.join("text.u32");
    let n_tokens = tokenize_file(&path, &tokens, TokenWidth::U32, &letters).unwrap();
    assert_eq!(n_tokens, 28);
    let numbers: Vec<u32> = fs::read(&tokens)
        .unwrap()
        .chunks(4)
        .map(|it| u32::from_le_bytes(it.try_into().unwrap()))
        .collect();
    assert_eq!(letters.decode(&numbers).unwrap(), text);
    let merged = Vocabulary::new(["a", "b", "ab", "abba"]).unwrap();
    assert_eq!(merged.encode("ababbaab"), Ok(vec![2, 3, 2]));
    let fault = |it: Result<u64, Error>| it.unwrap_err().to_string();
    let place = path.display();
    assert_eq!(
        fault(tokenize_file(&path, &tokens, TokenWidth::U32, &merged)),
        format!(
            "{place}: line 1: byte 1: expected a token of the vocabulary, found \" \\\"quoted\""
        )
    );
    assert!(!folder.join("text.u32.partial").exists());
    assert_eq!(fs::read(&tokens).unwrap().len(), 4 * 28, "the earlier file is as it was");
    fs::write(&path, b"good\n\xff\n").unwrap();
    let error = fault(tokenize_file(&path, &tokens, TokenWidth::U16, &ByteTokenizer));
    assert!(
        error.starts_with(&format!("{place}: line 2: expected UTF-8 text, found: ")),
        "{error}"
    );
    let many = Vocabulary::new((0..65_537).map(|it| it.to_string())).unwrap();
    assert_eq!(
        fault(tokenize_file(&path, &tokens, TokenWidth::U16, &many)),
        "expected a vocabulary of at most 65536 tokens for U16, found 65537"
    );
    let error = Vocabulary::new(["a", "b", "a"]).unwrap_err().to_string();
    assert_eq!(error, "token 2: expected text that no other token has, found \"a\"");
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let folder = folder("other");
    let error = files_matching(folder.join("*.u16")).unwrap_err().to_string();
    assert!(error.ends_with("*.u16: expected files whose names match, found none"), "{error}");
    let open = |path: &Path| {
        let row = vec![usize::from(path == Path::new("b")) + 1];
        let values = Values::I32(vec![0; 2]);
        Table::new(vec![Column { name: "x".to_owned(), row, values }])
    };
    let error = Shards::open(&["a".into(), "b".into()], 1, open).unwrap_err().to_string();
    assert_eq!(
        error,
        "b: expected the columns of the first file, `x` of i32 [1], found `x` of i32 [2]"
    );
    for (files, n_buffered) in [(vec![], 1), (vec!["a".into()], 0)] {
        let error = Shards::open(&files, n_buffered, open).unwrap_err().to_string();
        assert!(error.starts_with("expected at least one file and one that is buffered, found "));
    }
}
