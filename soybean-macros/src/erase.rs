//! Type erasure: replaces `Tensor<f32, BATCH, 784>` by the type `Tensor` of ordinary Rust.

use proc_macro2::{Group, Spacing, TokenStream, TokenTree};

/// Removes the arguments of every type `Tensor<..>` from tokens.
pub(crate) fn erase_dims(tokens: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut erased = Vec::new();
    let mut position = 0;
    while let Some(token) = tokens.get(position) {
        erased.push(within(token.clone()));
        position += 1;
        if matches!(token, TokenTree::Ident(ident) if ident == "Tensor") {
            position += arguments_length(&tokens[position..]);
        }
    }
    erased.into_iter().collect()
}

fn within(token: TokenTree) -> TokenTree {
    match token {
        TokenTree::Group(group) => {
            let mut erased = Group::new(group.delimiter(), erase_dims(group.stream()));
            erased.set_span(group.span());
            TokenTree::Group(erased)
        }
        other => other,
    }
}

/// Returns the number of tokens from `<` to the matching `>`, or 0 if tokens do not begin with a
/// list of arguments. The `>` of an arrow does not count.
fn arguments_length(tokens: &[TokenTree]) -> usize {
    let mut depth = 0;
    let mut is_arrow = false;
    for (position, token) in tokens.iter().enumerate() {
        if is_punct(token, '<') {
            depth += 1;
        } else if is_punct(token, '>') && !is_arrow {
            depth -= 1;
        }
        match depth {
            0 if position == 0 => return 0,
            0 => return position + 1,
            _ if is_punct(token, ';') => return 0,
            _ => {}
        }
        is_arrow = matches!(token, TokenTree::Punct(it) if it.spacing() == Spacing::Joint && matches!(it.as_char(), '-' | '='));
    }
    0
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(it) if it.as_char() == character)
}

#[cfg(test)]
mod tests {
    use super::erase_dims;

    fn check(source: &str, expected: &str) {
        let parse = |text: &str| text.parse().expect("the test's source has tokens");
        assert_eq!(erase_dims(parse(source)).to_string(), parse(expected).to_string());
    }

    #[test]
    fn dims_are_erased_everywhere() {
        check(
            "fn f(x: Tensor<f32, B, { 4 * H }>, y: Vec<soybean::Tensor<i32, B>>) -> (Tensor<f32>, Tensor) { let h: [Tensor<f32, 2>; 2] = g(a < b); }",
            "fn f(x: Tensor, y: Vec<soybean::Tensor>) -> (Tensor, Tensor) { let h: [Tensor; 2] = g(a < b); }",
        );
        check("Tensor < 3; a > b", "Tensor < 3; a > b");
        check("Tensor > b; Tensor <", "Tensor > b; Tensor <");
    }
}
