//! Tests of explanations of plans: texts, pictures and the page.

#![expect(clippy::unwrap_used, reason = "tests")]

mod browser;
mod diff;
mod large;
mod page;
mod parallelism;
mod pictures;
mod support;
mod why;
