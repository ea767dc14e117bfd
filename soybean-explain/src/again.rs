//! Compiles a model again while its program runs, with the same or other options.

use std::time::Instant;

use soybean_compiler::{Compiled, Objective, Observer, Padding, Recipe, SearchEffort, Strategy};
use soybean_plan::{Cluster, Precision};

/// The options that differ from those of the built program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The number of GPUs.
    pub n_gpus: Option<usize>,
    /// The strategy of the search.
    pub strategy: Option<Strategy>,
    /// The precision of products.
    pub precision: Option<Precision>,
    /// The memory of each GPU, in bytes.
    pub memory: Option<u64>,
    /// The cluster.
    pub cluster: Option<Cluster>,
    /// The objective of the search.
    pub objective: Option<Objective>,
    /// The work that the search may do.
    pub effort: Option<SearchEffort>,
    /// The dims that may be padded.
    pub padding: Option<Padding>,
    /// The most work of a plan for which bytes alone count.
    pub max_work: Option<f64>,
    /// True if tensors that several operators read may be converted once for all of them.
    pub shares: Option<bool>,
}

impl Changes {
    /// Reads a recipe and applies these changes.
    ///
    /// # Errors
    /// If the text is not a recipe.
    pub fn apply(&self, recipe: &str) -> Result<Recipe, String> {
        let mut recipe: Recipe = recipe.parse().map_err(|fault| format!("{fault}"))?;
        let options = &mut recipe.options;
        options.n_gpus = self.n_gpus.unwrap_or(options.n_gpus);
        options.search.strategy = self.strategy.unwrap_or(options.search.strategy);
        options.precision = self.precision.unwrap_or(options.precision);
        options.search.memory = self.memory.or(options.search.memory);
        options.search.cluster = self.cluster.clone().or(options.search.cluster.take());
        options.search.objective = self.objective.unwrap_or(options.search.objective);
        options.search.effort = self.effort.unwrap_or(options.search.effort);
        options.search.padding = self.padding.unwrap_or(options.search.padding);
        options.search.max_work = self.max_work.unwrap_or(options.search.max_work);
        options.search.shares = self.shares.unwrap_or(options.search.shares);
        Ok(recipe)
    }
}

/// The text form of a model after one pass of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassText {
    /// The name of the pass.
    pub name: &'static str,
    /// The text form.
    pub text: String,
}

/// Compiles a model.
///
/// # Errors
/// If it cannot be compiled with these options: for example, if nothing can be split over the
/// number of GPUs.
pub fn compile_again(recipe: &Recipe) -> Result<Compiled, String> {
    compile_observed(recipe, &mut |_, _| {})
}

/// Compiles a model and returns its text form after each pass, in the order of the passes.
///
/// # Errors
/// As [`compile_again`].
pub fn pass_texts(recipe: &Recipe) -> Result<Vec<PassText>, String> {
    let mut texts = Vec::new();
    compile_observed(recipe, &mut |name, stage| {
        texts.push(PassText { name, text: stage.text() });
    })?;
    Ok(texts)
}

fn compile_observed(recipe: &Recipe, observer: Observer<'_>) -> Result<Compiled, String> {
    let start = Instant::now();
    let compiled = recipe.compile_observed(&|| start.elapsed().as_secs_f64() * 1e3, observer);
    compiled.map_err(|faults| {
        let text = |help: Option<String>| help.map_or_else(String::new, |it| format!("; {it}"));
        let faults = faults.into_iter().map(|it| it.message + &text(it.help));
        faults.collect::<Vec<_>>().join("; ")
    })
}

/// Compiles a recipe and returns its plan as JSON.
///
/// # Errors
/// If the text is not a recipe, or cannot be compiled.
pub fn json(recipe: &str) -> Result<String, String> {
    Ok(compile_again(&Changes::default().apply(recipe)?)?.report.json())
}
