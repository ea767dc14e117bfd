//! Damaged token streams: the attributes neither panic, nor expand to what does not parse.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proc_macro2::{Delimiter, Group, Punct, Spacing, TokenStream, TokenTree};
use quote::quote;

use crate::{
    expand::{self, Environment},
    layer,
    relay::Arrived,
    relayed,
};

/// The number of damaged items.
const ROUNDS: usize = 1000;

const SEEDS: [&str; 4] = [
    r#"fn model(x: Tensor<f32, 4, 6>, y: Tensor<i32, 4>) -> (Tensor, Tensor) {
        let w = param("w", [6, 3], he_normal());
        let logits = x.matmul(w).relu() + param("b", [3], zeros()) * 2.0;
        (logits.cross_entropy(y), logits)
    }"#,
    r#"pub mod mlp {
        use soybean::prelude::*;
        const WIDTHS: [usize; 2] = [8, 2 * SMALL];
        const SMALL: usize = { let n: usize = 3; n.max(2) };
        fn dense(x: Tensor<f32, 4, { SMALL * 2 }>, (out, scale): (usize, f64)) -> Tensor {
            if scale > 1.0 { return x * scale; }
            x.matmul(param("w", [x.dim(1), out], normal(0.1)))
        }
        pub fn forward(x: Tensor<f32, 4, { SMALL * 2 }>) -> Tensor {
            let mut h = x;
            for (i, width) in WIDTHS.iter().enumerate() {
                if *width == 6 && i < 3 { h = dense(h, (*width, -1.5 + i as f64)); }
                h += h.clamp(-1.0, 1.0);
            }
            -h.mean(..)
        }
    }"#,
    r#"#[doc = "A layer."]
    pub(crate) fn layer(x: Tensor<f32, ROWS, 4>, n: usize) -> Tensor {
        other(x.reshape([n, 2, 2 << 1])[0], ROWS)
    }"#,
    "pub const WIDTHS: [usize; 3] = [1, 2, 1 << 4];",
];

const ATTRIBUTES: [&str; 3] = ["gpus = 2", "gpus = 2, mode = \"inference\"", ""];

/// Tokens that damage puts among those of the items.
const MORE: &str = r#"; , . .. : :: < > -> => = == ! - * & | # $ ? ' 'a 0 1 -1 65536 1.5 1e400
    9223372036854775807 "" "w" 'c' b"x" r#fn fn mod const static let mut if else for in while match
    return break continue self Self super crate use as pub impl struct enum move async unsafe where
    true false usize f32 Tensor param x () [] {} (1, 2) { 1 } [3, 4] #[cfg(a)] println!("")"#;

/// The generator xorshift64. Source: Marsaglia 2003.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).unwrap()
    }
}

fn tokens(text: &str) -> TokenStream {
    text.parse().unwrap()
}

/// Returns the tokens, and those of all groups.
fn all(stream: TokenStream, found: &mut Vec<TokenTree>) {
    for token in stream {
        if let TokenTree::Group(it) = &token {
            all(it.stream(), found);
        }
        found.push(token);
    }
}

/// Returns the tokens with one change at the token that `remaining` counts down to.
fn damaged(
    stream: TokenStream,
    remaining: &mut usize,
    pool: &[TokenTree],
    random: &mut Random,
) -> TokenStream {
    let mut result: Vec<TokenTree> = Vec::new();
    let mut held = None;
    for token in stream {
        let is_target = *remaining == 0;
        *remaining = remaining.wrapping_sub(1);
        let other = pool[random.below(pool.len())].clone();
        match (is_target.then(|| random.below(7)), token) {
            (None, TokenTree::Group(it)) => {
                let stream = damaged(it.stream(), remaining, pool, random);
                let mut group = Group::new(it.delimiter(), stream);
                group.set_span(it.span());
                result.push(group.into());
            }
            (None, token) => result.push(token),
            (Some(0), _) => {}
            (Some(1), token) => result.extend([token.clone(), token]),
            (Some(2), token) => {
                held = Some(token);
                continue;
            }
            (Some(3), TokenTree::Group(it)) => result.extend(it.stream()),
            (Some(4), TokenTree::Group(it)) => {
                let delimiters =
                    [Delimiter::Parenthesis, Delimiter::Brace, Delimiter::Bracket, Delimiter::None];
                result.push(Group::new(delimiters[random.below(4)], it.stream()).into());
            }
            (Some(5), token) => result.extend([token, other]),
            (Some(_), _) => result.push(other),
        }
        result.extend(held.take());
    }
    result.extend(held);
    result.into_iter().collect()
}

/// Returns the expansion of both halves.
fn expansion(seed: usize, attribute: &str, item: &TokenStream) -> TokenStream {
    let environment = Environment::default();
    match seed {
        2 => layer::expand(crate::kind::Kind::Layer, quote!(), item.clone(), &environment),
        3 => layer::expand(crate::kind::Kind::Constant, quote!(), item.clone(), &environment),
        _ => {
            let attribute = tokens(attribute);
            let first = expand::expand(attribute.clone(), item.clone(), &environment);
            let second = quote!([] model "id" { #attribute } { #item } {} {} {} {} {} {} {} {});
            match syn::parse2::<Arrived>(second) {
                Ok(arrived) if first.to_string().contains("__continue") => {
                    let second = relayed::arrived(arrived, &environment).0;
                    quote!(#first #second)
                }
                _ => first,
            }
        }
    }
}

#[test]
fn damaged_items_expand_to_items() {
    let mut pool = Vec::new();
    all(tokens(MORE), &mut pool);
    pool.push(Punct::new('\'', Spacing::Joint).into());
    SEEDS.iter().for_each(|it| all(tokens(it), &mut pool));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let rounds = std::env::var("SOYBEAN_DAMAGED_ITEMS").map_or(ROUNDS, |it| it.parse().unwrap());
    let mut faults = Vec::new();
    for _ in 0..rounds {
        let seed = random.below(SEEDS.len());
        let mut item = tokens(SEEDS[seed]);
        for _ in 0..=random.below(2) {
            let mut found = Vec::new();
            all(item.clone(), &mut found);
            let mut target = random.below(found.len());
            item = damaged(item, &mut target, &pool, &mut random);
        }
        let attribute = ATTRIBUTES[random.below(ATTRIBUTES.len())];
        let text = item.to_string();
        match catch_unwind(AssertUnwindSafe(|| expansion(seed, attribute, &item))) {
            Err(_) => faults.push(format!("panic: {text}")),
            Ok(expansion) => {
                if let Err(error) = syn::parse2::<syn::File>(expansion.clone()) {
                    faults.push(format!("{error}: {text}\n   expands to {expansion}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
