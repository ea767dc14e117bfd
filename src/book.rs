//! The code blocks of the README and of the book, which `cargo test --doc` compiles and runs.
//!
//! Each page is the documentation of an item of its own, so that a failure names the page.

macro_rules! pages {
    ($($page:ident = $path:literal),* $(,)?) => {
        $(
            #[doc = include_str!($path)]
            mod $page {}
        )*
    };
}

pages! {
    readme = "../README.md",
    introduction = "../docs/introduction.md",
    getting_started = "../docs/getting-started.md",
    models = "../docs/models.md",
    custom_operators = "../docs/custom-operators.md",
    plans = "../docs/plans.md",
    training = "../docs/training.md",
    data = "../docs/data.md",
    checkpoints = "../docs/checkpoints.md",
    inference = "../docs/inference.md",
    precision = "../docs/precision.md",
    memory = "../docs/memory.md",
    gpu = "../docs/gpu.md",
    clusters = "../docs/clusters.md",
    processes = "../docs/processes.md",
    how_it_works = "../docs/how-it-works.md",
    operators = "../docs/operators.md",
    optimizers = "../docs/optimizers.md",
    attribute = "../docs/attribute.md",
    commands = "../docs/commands.md",
    plan_json = "../docs/plan-json.md",
    examples = "../docs/examples.md",
    planner = "../docs/planner.md",
    any_number = "../docs/any-number.md",
    language_models = "../docs/language-models.md",
    long_sequences = "../docs/long-sequences.md",
    evaluation = "../docs/evaluation.md",
    models_compared = "../docs/models-compared.md",
    performance = "../docs/performance.md",
    launches = "../docs/launches.md",
    limits = "../docs/limits.md",
}
