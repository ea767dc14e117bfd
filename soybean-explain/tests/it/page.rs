//! Tests of a plan's page: its data, and its behavior in a browser.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use soybean_compiler::{
    Argument, Builder, Compiled, Content, Optimizer, Options, Report, Strategy, compile,
};
use soybean_explain::page::html;
use soybean_plan::{
    BUFFER_ALIGNMENT, BufferId, DType, Init, Kernel, Mode, Precision, Program, Tile,
};
use soybean_zoo::{Layers, cnn5, perceptron};

use crate::{
    browser::opened,
    support::{compiled, compiled_with, n_edges, n_tensors, plans},
};

/// Returns the bytes of each kind at each step.
fn memory_by_step(memory: &Json) -> Vec<Vec<usize>> {
    let changes = memory["changes"].as_array().unwrap();
    let n_steps = changes[0].as_array().unwrap().len();
    let mut now = vec![0; changes.len()];
    let mut step = |at: usize| {
        for (now, changes) in now.iter_mut().zip(changes) {
            *now += changes[at].as_i64().unwrap();
        }
        now.iter().map(|it| usize::try_from(*it).unwrap()).collect()
    };
    (0..n_steps).map(&mut step).collect()
}

/// Returns the page's data.
fn data(page: &str) -> Json {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn numbers(list: &Json) -> Vec<usize> {
    let number = |it: &Json| usize::try_from(it.as_u64().unwrap()).unwrap();
    list.as_array().unwrap().iter().map(number).collect()
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_keeps_names_apart_from_markup() {
    let page = html(&compiled("</script><b>&\"", 4, perceptron(32, &[16, 8])));
    for link in ["src=", "@import", "url(", "http-equiv"] {
        assert!(!page.contains(link), "{link}");
    }
    assert!(page.contains("<h1>&lt;/script&gt;&lt;b&gt;&amp;&quot;</h1>"));
    assert_eq!(data(&page)["plan"]["model"], "</script><b>&\"");
    assert!(!page.contains("{{"));
}

/// Checks that the index ranges of each rank are those of its tile.
fn check_tiles(compiled: &Compiled) {
    let (data, tiled) = (data(&html(compiled)), &compiled.report.search().tiled);
    let graph = &tiled.network.graph;
    for value in graph.values() {
        let tile = Tile::new(graph.shape(value), tiled.tilings[value.index()]);
        for dim in 0..tile.shape.len() {
            let axes = tile.tiling.axes_of(dim);
            if axes.is_empty() {
                continue;
            }
            let key = format!("{}:{}", tile.shape[dim], axes.0);
            let ranks = data["ranks"]["splits"][&key].as_array().unwrap();
            assert_eq!(ranks.len(), tiled.mesh.n_ranks().min(64));
            for (rank, shown) in ranks.iter().enumerate() {
                let runs: Vec<Vec<usize>> =
                    shown[1].as_array().unwrap().iter().map(numbers).collect();
                assert_eq!(shown[0].as_u64().unwrap(), runs.len() as u64);
                let shown: Vec<usize> = runs.iter().flat_map(|it| it[0]..it[0] + it[1]).collect();
                assert_eq!(shown, tile.indices(dim, &tiled.mesh, &tiled.mesh.coordinates(rank)));
            }
        }
    }
}

#[test]
fn the_page_knows_the_tile_of_each_gpu() {
    check_tiles(&compiled("small", 8, perceptron(32, &[24, 48, 12])));
    check_tiles(&compiled("uneven", 6, perceptron(36, &[12, 18, 6])));
    check_tiles(&compiled("many", 81, perceptron(81, &[162, 81])));
}

/// Returns the numbers of a buffer's blocks, each as long as the alignment.
fn blocks(program: &Program, buffer: BufferId) -> std::ops::Range<usize> {
    let it = &program.tables.buffers[buffer];
    let end = it.offset + it.n_elements * it.dtype.bytes();
    it.offset / BUFFER_ALIGNMENT..end.div_ceil(BUFFER_ALIGNMENT)
}

/// Returns the bytes that are live at a step, counted block by block, without and with the buffers
/// of collectives that may be in progress.
fn held_at(program: &Program, at: usize) -> [usize; 2] {
    let (tables, steps) = (&program.tables, &program.train[0]);
    let mut held: BTreeSet<usize> = BTreeSet::new();
    let kept = tables.inputs.iter().map(|it| it.buffer);
    let kept = kept.chain(tables.parameters.iter().map(|it| it.buffer));
    let kept = kept.chain(tables.states.iter().map(|it| it.buffer));
    kept.chain(tables.constants.iter().map(|it| it.buffer))
        .for_each(|it| held.extend(blocks(program, it)));
    for buffer in 0..tables.buffers.len() {
        let is_written = steps[..=at].iter().any(|it| it.results.contains(&buffer));
        let is_read = steps[at..].iter().any(|it| it.inputs.contains(&buffer));
        let is_fresh = steps[at].results.contains(&buffer);
        let is_left = [tables.loss(), tables.gradient_norm()].contains(&Some(buffer));
        if is_written && (is_read || is_fresh || is_left) {
            held.extend(blocks(program, buffer));
        }
    }
    let mut held_or_moving = held.clone();
    for step in &steps[..=at] {
        if let Kernel::Communicate(_) = &program.kernels[step.kernel] {
            let buffers = step.inputs.iter().chain(&step.results);
            buffers.for_each(|&it| held_or_moving.extend(blocks(program, it)));
        }
    }
    [held, held_or_moving].map(|it| it.len() * BUFFER_ALIGNMENT)
}

/// Checks that the page shows the live memory at each step, and at the peak the contents of the
/// report.
fn check_timeline(compiled: &Compiled) {
    let program = &compiled.program;
    let memory = &data(&html(compiled))["memory"];
    assert_eq!(memory["arena"], program.tables.arena_bytes);
    let steps = memory_by_step(memory);
    assert_eq!(steps.len(), program.train[0].len());
    let total = |kinds: &Vec<usize>| kinds.iter().sum::<usize>();
    for (at, kinds) in steps.iter().enumerate().step_by(7) {
        let [least, most] = held_at(program, at);
        assert!((least..=most).contains(&total(kinds)), "step {at}: {kinds:?}");
    }
    let names = Content::NAMES.into_iter().filter(|it| it.2 != Content::Gaps);
    let held = compiled.report.peak().by_content();
    let peak: Vec<usize> = names.map(|(.., it)| usize::try_from(held[&it]).unwrap()).collect();
    assert!(steps.contains(&peak), "{peak:?}");
    assert_eq!(steps.iter().map(total).max(), Some(total(&peak)));
    let bytes = |buffer: BufferId| blocks(program, buffer).len() * BUFFER_ALIGNMENT;
    let (parameters, buffers): (Vec<_>, Vec<_>) =
        program.tables.parameters.iter().partition(|it| it.is_trained);
    let parameters: usize = parameters.iter().map(|it| bytes(it.buffer)).sum();
    let states: usize = program.tables.states.iter().map(|it| bytes(it.buffer)).sum();
    let states = states + buffers.iter().map(|it| bytes(it.buffer)).sum::<usize>();
    assert!(steps.iter().all(|it| it[..2] == [parameters, states]));
    // No activations are live during updates, and no gradients at the start of the forward work.
    assert!(steps[0][4] == 0 && steps.iter().any(|it| it[3] > 0 && it[4] > 0));
    let last = &steps[steps.len() - 1];
    assert!(last[3] <= bytes(program.tables.loss().unwrap()), "{last:?}");
}

#[test]
fn the_timeline_shows_what_the_memory_plan_holds_at_each_step() {
    let normalized = || {
        Layers::new(DType::F32, &[4, 3, 8, 8], false)
            .normal_conv(4, [3; 2], 1, [1; 2])
            .apply("mean", &[Argument::List([2, 3].map(Argument::Integer).to_vec())])
            .dense(8)
            .classified(&[4])
    };
    let guarded =
        [("clip_norm", Argument::Float(1.0)), ("non_finite", Argument::Text("skip".to_owned()))];
    check_timeline(&compiled("alone", 1, perceptron(96, &[64, 128, 10])));
    check_timeline(&compiled("small", 4, perceptron(96, &[64, 128, 10])));
    check_timeline(&compiled("cnn5", 2, cnn5(4, 4, 8)));
    check_timeline(&compiled("normalized", 2, normalized()));
    check_timeline(&compiled_with("guarded", 2, normalized(), &guarded));
}

#[test]
fn the_page_of_a_prediction_shows_its_steps() {
    let mut builder = Builder::in_mode(Mode::Inference);
    let mut here = builder.input("x", DType::F32, &[1, 64]);
    for layer in 0..3 {
        let init = Init::Normal { mean: 0.0, std: 0.1 };
        let w = builder.parameter(&format!("{layer}.w"), &[64, 64], init);
        let operands = [here, w].map(Argument::Tensor);
        let Ok(Argument::Tensor(product)) = builder.call("matmul", &operands) else {
            unreachable!("the shapes fit")
        };
        here = product;
    }
    let options = Options {
        name: "net".to_owned(),
        n_gpus: 4,
        search: Strategy::Auto.into(),
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    };
    let outputs = [("y".to_owned(), here)];
    let compiled = compile(builder, None, &outputs, &options, &|| 0.0).unwrap();
    let page = html(&compiled);
    assert!(page.contains("Bytes moved in one prediction"));
    let data = data(&page);
    assert_eq!(data["plan"]["mode"], "inference");
    let (program, used) = (&compiled.program, memory_by_step(&data["memory"]));
    assert_eq!(used.len(), program.evaluate[0].len());
    assert_eq!(data["program"]["steps"].as_array().unwrap().len(), program.evaluate[0].len());
    // Content::NAMES: parameters first, gradients fifth.
    let weights = 3 * 64 * 64 * 4 / 4;
    assert!(used.iter().all(|it| it[0] == weights && it[4] == 0), "{used:?}");
}

/// A script that counts what is drawn, at first without the optimizer's states.
const COUNTS: &str = "{
  const say = (name, value) => { document.documentElement.dataset[name] = value; };
  const sum = () => [...boxes.keys()].reduce((sum, id) => sum + tensors.get(id).n_equal, 0);
  say('equalHidden', sum());
  document.getElementById('states').click();
  say('equalShown', sum());
  say('boxes', boxes.size);
  say('edges', picture.querySelectorAll('.edge').length);
}";

/// Counts the optimizer's states and their next values.
fn n_states(report: &Report) -> usize {
    let groups = report.search().tiled.network.update_groups();
    groups.iter().map(|group| 2 * (group.len() - 1)).sum()
}

#[test]
fn a_browser_shows_all_of_a_plan() {
    for (name, compiled) in plans() {
        let report = &compiled.report;
        let Some(page) = opened(&format!("all-{name}"), &html(&compiled), "", COUNTS) else {
            return;
        };
        assert_eq!(
            page.number("data-equal-hidden"),
            n_tensors(report) - n_states(report),
            "{name}"
        );
        assert_eq!(page.number("data-equal-shown"), n_tensors(report), "{name}");
        if page.number("data-boxes") == n_tensors(report) {
            assert_eq!(page.number("data-edges"), n_edges(report), "{name}");
        }
        let tilings: BTreeSet<String> =
            report.search().tiled.tilings.iter().map(ToString::to_string).collect();
        assert_eq!(page.text.matches("aria-pressed=\"false\"").count(), tilings.len(), "{name}");
        let links = page.text.matches("<td><span><a href=\"#tensor=").count();
        assert_eq!(links, report.transfers().len().min(40), "{name}");
        let [kinds, bars] = ["data-kind=", "class=\"track"].map(|it| page.text.matches(it).count());
        assert_eq!([kinds, bars], [6, 5], "{name}");
    }
}

#[test]
fn a_fragment_chooses_a_tensor() {
    let compiled = compiled("digits", 4, perceptron(96, &[64, 128, 10]));
    let Some(page) = opened("fragment", &html(&compiled), "#tensor=1.weight.momentum%27", "")
    else {
        return;
    };
    assert_eq!(page.count("tensor state chosen"), 1);
    // One of the two operands of the update is converted; both edges are marked.
    assert!(page.count("near") >= 2);
    assert!(page.text.contains("<h3>1.weight.momentum'</h3>"));
    assert_eq!(page.text.matches("<figure data-rank=").count(), 4);
}

#[test]
fn of_many_gpus_the_first_are_shown() {
    let compiled = compiled("many", 81, perceptron(81, &[162, 81]));
    let Some(page) = opened("many", &html(&compiled), "#tensor=0.weight", "") else { return };
    assert_eq!(page.text.matches("<figure data-rank=").count(), 64);
    assert!(page.text.contains("<p>and 17 more GPUs</p>"));
}

/// A script with a user's actions: keys, the wheel, a drag, a click, a typed name, a chosen dim and
/// tiling, the slider, and the other colors.
const USER: &str = "{
  const say = (name, value) => { document.documentElement.dataset[name] = value; };
  const box = () => [view.x, view.y, view.width, view.height];
  const key = (key) => canvas.dispatchEvent(new KeyboardEvent('keydown', { key }));
  const point = (type, target, x, y) =>
    target.dispatchEvent(new PointerEvent(type, { clientX: x, clientY: y, bubbles: true }));
  const start = box();
  key('+');
  say('zoomed', box()[2] < start[2]);
  key('ArrowRight');
  say('moved', box()[0] > start[0]);
  const before = box();
  canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: 200, clientX: 300, clientY: 300 }));
  say('wheeled', box()[2] > before[2]);
  point('pointerdown', canvas, 300, 300);
  const held = box();
  point('pointermove', canvas, 340, 300);
  point('pointerup', canvas, 340, 300);
  say('dragged', box()[0] < held[0] && box()[1] === held[1]);
  const first = boxes.get(1);
  point('pointerdown', first, 200, 200);
  point('pointerup', first, 200, 200);
  const name = location.hash;
  say('clicked', name === '#tensor=' + encodeURIComponent(plan.tensors[1].name));
  addEventListener('hashchange', () => {
    key('n');
    say('next', chosen === 1 && location.hash !== name);
    document.querySelector('#axes select').dispatchEvent(new Event('change'));
    say('tiles', document.querySelectorAll('#tiles canvas').length);
    document.querySelector('#legend button').click();
    say('kept', document.querySelectorAll('.tensor.kept').length);
    document.getElementById('step').value = 0;
    document.getElementById('step').dispatchEvent(new Event('input'));
    say('moment', document.querySelector('#moment b').textContent.split(':')[0]);
    document.getElementById('scheme').click();
    say('scheme', document.documentElement.style.colorScheme);
  }, { once: true });
}";

#[test]
fn keys_wheel_pointer_and_buttons_do_what_they_say() {
    let compiled = compiled("digits", 4, perceptron(96, &[64, 128, 10]));
    let Some(page) = opened("user", &html(&compiled), "", USER) else { return };
    for it in ["zoomed", "moved", "wheeled", "dragged", "clicked", "next"] {
        assert!(page.text.contains(&format!("data-{it}=\"true\"")), "{it}: {}", page.head());
    }
    assert!(page.text.contains("data-tiles=\"4\""), "{}", page.head());
    assert!(page.text.contains("data-moment=\"Step 1\""), "{}", page.head());
    assert!(page.text.contains("data-scheme=\"dark\""), "{}", page.head());
    assert_eq!(page.count("kept"), page.number("data-kept"));
}

#[test]
fn warnings_stand_at_the_top() {
    let compiled = compiled("net", 4, perceptron(17, &[8, 8, 8]));
    let [warning] = &compiled.report.warnings()[..] else {
        panic!("{:?}", compiled.report.warnings())
    };
    if let Some(page) = opened("warnings", &html(&compiled), "", "") {
        let (_, rest) = page.text.split_once("<ul id=\"warnings\">").unwrap();
        let shown = rest.split_once("</ul>").unwrap().0;
        assert_eq!(shown, format!("<li>Warning: {warning}</li>"));
    }
}
