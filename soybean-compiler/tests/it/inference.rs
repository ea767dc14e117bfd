//! Mode inference: the forward computation alone is planned, lowered and reported.

use expect_test::expect;
use soybean_compiler::{
    Argument, Builder, Compiled, Optimizer, Options, Padding, Recipe, SearchRequest, Strategy,
    Value, build_network, compile, verify, verify_program,
};
use soybean_plan::{DType, Init, Mode, Precision, Rows};
use soybean_zoo::{GPT, Layers, Model, Transformer, mlp, resnet20};

use crate::support::{self, call};

fn options(n_gpus: usize, search: SearchRequest) -> Options {
    Options {
        name: "model".to_owned(),
        n_gpus,
        search,
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    }
}

/// Returns the recipe of a training model's outputs without its loss, in mode inference.
fn recipe(model: Model, options: Options) -> Recipe {
    let Model { builder, loss, output, .. } = model;
    let outputs = vec![("logits".to_owned(), output)];
    let text = Recipe { builder, loss: Some(loss), outputs, options }.to_string();
    let (first, rest) = text.split_once('\n').unwrap();
    let kept = rest.lines().filter(|it| !it.starts_with("loss") && !it.starts_with("optimizer"));
    let lines: Vec<&str> = [first, "mode \"inference\""].into_iter().chain(kept).collect();
    (lines.join("\n") + "\n").parse().unwrap()
}

fn compiled(model: Model, n_gpus: usize, search: impl Into<SearchRequest>) -> Compiled {
    recipe(model, options(n_gpus, search.into())).compile(&|| 0.0).unwrap()
}

/// Returns a small convolutional network with batch norm and dropout.
fn cnn(batch: usize) -> Model {
    let it = Layers::new(DType::F32, &[batch, 3, 8, 8], true).conv(8, 3, 1, 1);
    let here = it.here();
    let model = it.averaged();
    let mut builder = model.builder;
    let mut x = Argument::Tensor(here);
    let numbers = [0.1, 1e-5].map(Argument::Float);
    let vectors = [
        builder.buffer("mean", &[8], Init::Constant(0.0)),
        builder.buffer("var", &[8], Init::Constant(1.0)),
        builder.parameter("scale", &[8], Init::Constant(1.0)),
        builder.parameter("shift", &[8], Init::Constant(0.0)),
    ];
    let arguments = [vec![x], vectors.map(Argument::Tensor).to_vec(), numbers.to_vec()].concat();
    x = Argument::Tensor(call(&mut builder, "batch_norm", &arguments));
    x = Argument::Tensor(call(&mut builder, "relu", &[x]));
    x = Argument::Tensor(call(&mut builder, "dropout", &[x, Argument::Float(0.5)]));
    let shape = [batch, 8 * 64].map(|it| Argument::Integer(i64::try_from(it).unwrap()));
    x = Argument::Tensor(call(&mut builder, "reshape", &[x, Argument::List(shape.to_vec())]));
    let w = builder.parameter("w", &[8 * 64, 16], Init::Normal { mean: 0.0, std: 0.1 });
    let output = call(&mut builder, "matmul", &[x, Argument::Tensor(w)]);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(output), Argument::All]);
    Model::new(builder, loss, output)
}

const SMALL: Transformer =
    Transformer { batch: 8, tokens: 16, width: 32, n_heads: 4, n_blocks: 2, ..GPT };

/// Checks what holds of every plan of mode inference.
fn check(what: &str, compiled: &Compiled) {
    let Compiled { program, report } = compiled;
    let network = &report.search().tiled.network;
    assert_eq!(verify(network), Ok(()), "{what}");
    assert_eq!(verify_program(program), Ok(()), "{what}");
    let tables = &program.tables;
    assert_eq!((tables.mode(), report.mode()), (Mode::Inference, Mode::Inference), "{what}");
    assert!(program.train.is_empty() && tables.states.is_empty(), "{what}");
    assert_eq!((tables.loss(), tables.train_bytes()), (None, 0), "{what}");
    let text = network.graph.to_string();
    assert!(!text.contains("by-phase") && !text.contains("noise("), "{what}:\n{text}");
    assert_eq!(tables.entries[0].bytes, report.search().tiled.bytes(), "{what}");
    assert_eq!(tables.entries[0].bytes, report.bytes_total, "{what}");
    assert_eq!(report.bytes_per_axis.iter().sum::<u64>(), report.bytes_total, "{what}");
    assert_eq!(report.peak().bytes(), tables.arena_bytes as u64, "{what}");
}

#[test]
fn the_bytes_of_a_prediction_are_minimized_under_every_strategy() {
    let networks: [(&str, &dyn Fn(usize) -> Model); 3] = [
        ("mlp", &|batch| mlp(batch, &[24, 48, 48, 24])),
        ("cnn", &cnn),
        ("encoder", &|batch| Transformer { batch, ..SMALL }.encoder(8)),
    ];
    for (name, model) in networks {
        for (n_gpus, batch) in [(1, 2), (2, 24), (2, 1), (4, 24), (4, 2), (6, 24), (8, 24), (8, 2)]
        {
            let mut least = u64::MAX;
            for (strategy, of) in Strategy::NAMES.into_iter().rev() {
                let what = format!("{name} of {batch} on {n_gpus}, {strategy}");
                // Padding takes work, for which `data` moves less than `auto` may.
                let search = SearchRequest { padding: Padding::Off, ..of.into() };
                let compiled = compiled(model(batch), n_gpus, search);
                check(&what, &compiled);
                let bytes = compiled.report.bytes_total;
                least = least.min(bytes);
                match of {
                    // Samples have nothing to do with each other.
                    Strategy::Data if batch.is_multiple_of(n_gpus) => {
                        assert_eq!(bytes, 0, "{what}");
                    }
                    Strategy::Auto => {
                        assert!(compiled.report.is_optimal(), "{what}");
                        assert_eq!(bytes, least, "{what}");
                        assert_eq!(bytes == 0, batch.is_multiple_of(n_gpus), "{what}");
                    }
                    Strategy::Data | Strategy::Model | Strategy::Recursive => {}
                }
            }
        }
    }
}

#[test]
fn strategies_split_the_batch_or_the_weights() {
    let tilings = |strategy| {
        let report = compiled(mlp(24, &[24, 48, 24]), 4, strategy).report;
        let tiled = &report.search().tiled;
        let of = |it: &Value| tiled.tilings[it.index()].to_string();
        let network = &tiled.network;
        (network.parameters.iter().map(of).collect::<Vec<_>>(), of(&network.inputs[0]))
    };
    assert_eq!(tilings(Strategy::Data), (vec!["[r r]".to_owned(); 2], "[P0 P0]".to_owned()));
    assert_eq!(tilings(Strategy::Model).0, ["[P1 P1]", "[P1 P1]"]);
}

#[test]
fn weights_are_stored_split_where_memory_is_short() {
    let model = || mlp(8, &[256, 256, 256, 256]);
    let whole = compiled(model(), 4, Strategy::Auto).report;
    assert_eq!(whole.bytes_total, 0);
    let limit = whole.peak_memory_bytes_per_gpu / 2;
    let request = SearchRequest { memory: Some(limit), ..SearchRequest::default() };
    let compiled = compiled(model(), 4, request);
    check("mlp within a limit", &compiled);
    assert!(compiled.report.peak_memory_bytes_per_gpu <= limit);
    assert!(compiled.report.bytes_total > 0);
}

#[test]
fn memory_holds_no_gradients_and_less_than_in_training() {
    let Model { builder, loss, .. } = resnet20(16);
    let training =
        compile(builder, loss, &[], &options(4, SearchRequest::default()), &|| 0.0).unwrap();
    let inference = compiled(resnet20(16), 4, Strategy::Auto);
    let bytes = |it: &Compiled| it.report.peak_memory_bytes_per_gpu;
    assert!(3 * bytes(&inference) < bytes(&training));
    let held = inference.report.peak().by_content();
    assert_eq!(held[&soybean_compiler::Content::Gradients], 0);
}

#[test]
fn recipes_say_the_mode() {
    let recipe = recipe(cnn(8), options(2, SearchRequest::default()));
    let text = recipe.to_string();
    let head: String = text.lines().take(5).map(|it| format!("{it}\n")).collect();
    expect![[r#"
        soybean recipe 1
        model "model"
        mode "inference"
        gpus 2
        strategy "auto"
    "#]]
    .assert_eq(&head);
    assert!(!text.contains("\nloss") && !text.contains("\noptimizer"), "{text}");
    let again: Recipe = text.parse().unwrap();
    assert_eq!(again.to_string(), text);
    let (one, other) = (recipe.compile(&|| 0.0).unwrap(), again.compile(&|| 0.0).unwrap());
    assert!(one.program == other.program);
    assert_eq!(one.report.json(), other.report.json());
    assert!(one.report.json().contains("\"mode\": \"inference\""));
    assert!(one.report.text().contains("bytes moved in one prediction"), "{}", one.report.text());
    let late = text.replace("mode \"inference\"\n", "") + "mode \"inference\"\n";
    let message = late.parse::<Recipe>().unwrap_err().to_string();
    assert!(message.ends_with("expected `mode` above all calls"), "{message}");
}

#[test]
fn programs_know_which_inputs_and_rows_predictions_need() {
    let (builder, loss, output) = support::classifier(8, &[4, 16, 8], true);
    let outputs = [("logits".to_owned(), output)];
    let options = options(2, SearchRequest::default());
    let tables =
        compile(builder, loss, &outputs, &options, &|| 0.0).unwrap().program.tables.clone();
    let queried: Vec<_> = tables.inputs.iter().map(|it| (&*it.name, it.is_queried)).collect();
    assert_eq!(queried, [("x", true), ("y", false)]);
    let rows: Vec<_> = tables.outputs.iter().map(|it| (&*it.name, it.rows)).collect();
    assert_eq!(rows, [("loss", Rows::Mixed), ("logits", Rows::Own { dim: 0 })]);
    let tables = compiled(SMALL.decoder(), 2, Strategy::Auto).program.tables.clone();
    assert_eq!(tables.outputs[0].rows, Rows::Own { dim: 0 });
}

#[test]
fn models_must_have_what_their_mode_needs() {
    let fault = |mode, has_loss: bool, has_output: bool| {
        let mut builder = Builder::in_mode(mode);
        let x = builder.input("x", DType::F32, &[4]);
        let w = builder.parameter("w", &[4], Init::Constant(1.0));
        let y = call(&mut builder, "mul", &[x, w].map(Argument::Tensor));
        let loss = call(&mut builder, "mean", &[Argument::Tensor(y), Argument::All]);
        let outputs = if has_output { vec![("y".to_owned(), y)] } else { Vec::new() };
        let found =
            build_network(builder, has_loss.then_some(loss), &outputs, &Optimizer::default());
        found.err().map(|it| it[0].message.clone())
    };
    assert_eq!(fault(Mode::Training, true, false), None);
    assert_eq!(fault(Mode::Inference, false, true), None);
    let none = "a model that is trained must have a loss, found none";
    assert_eq!(fault(Mode::Training, false, true).unwrap(), none);
    let loss = "a model of mode inference has no loss, found one";
    assert_eq!(fault(Mode::Inference, true, true).unwrap(), loss);
    let outputs = "a model of mode inference must have an output, found none";
    assert_eq!(fault(Mode::Inference, false, false).unwrap(), outputs);
    let mut builder = Builder::in_mode(Mode::Inference);
    let x = builder.input("x", DType::F32, &[4]);
    builder.parameter("head.w", &[4], Init::Constant(1.0));
    let outputs = [("y".to_owned(), call(&mut builder, "relu", &[Argument::Tensor(x)]))];
    let faults = build_network(builder, None, &outputs, &Optimizer::default()).unwrap_err();
    assert_eq!(faults[0].message, "no output depends on the parameter `head.w`");
}
