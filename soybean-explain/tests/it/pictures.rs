//! Tests of pictures of plans: their contents, and that other programs can read them.

use std::{
    io::{ErrorKind, Write},
    process::{Command, Stdio},
};

use roxmltree::{Document, Node};
use soybean_compiler::{Compiled, Report};
use soybean_explain::picture::{dot, svg};
use soybean_zoo::{GPT, Transformer, perceptron};

use crate::support::{compiled, n_edges, n_tensors, plans};

fn with_class<'a>(document: &'a Document<'_>, class: &str) -> Vec<Node<'a, 'a>> {
    let has = |it: &Node<'_, '_>| {
        it.attribute("class").is_some_and(|it| it.split(' ').any(|it| it == class))
    };
    document.descendants().filter(has).collect()
}

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).unwrap().parse().unwrap()
}

/// Checks the picture, and returns the number of its boxes.
fn check_svg(report: &Report) -> usize {
    let text = svg(report);
    let document = Document::parse(&text).unwrap();
    let (tensors, edges) = (with_class(&document, "tensor"), with_class(&document, "edge"));
    let n_equal: f64 = tensors.iter().map(|it| number(*it, "data-equal")).sum();
    assert_eq!(n_equal, n_tensors(report) as f64, "every tensor is drawn, or an equal one");
    if tensors.len() == n_tensors(report) {
        assert_eq!(edges.len(), n_edges(report));
    }
    let bytes: f64 = tensors.iter().chain(&edges).map(|it| number(*it, "data-bytes")).sum();
    assert_eq!(bytes, report.bytes_total as f64, "every moved byte is at a tensor or an edge");
    let [width, height] = ["width", "height"].map(|it| number(document.root_element(), it));
    let names = report.names();
    for tensor in &tensors {
        let id = tensor.attribute("data-tensor").unwrap();
        let (value, name) = names.iter().find(|it| it.0.index().to_string() == id).unwrap();
        let texts = |tag| tensor.children().filter(move |it| it.has_tag_name(tag));
        let lines: Vec<&str> = texts("text").filter_map(|it| it.text()).collect();
        let title = texts("title").find_map(|it| it.text()).unwrap();
        assert!(title.starts_with(&format!("{name} = ")), "{title} of {name}");
        assert!(lines[0].starts_with(name.as_str()), "{lines:?} of {name}");
        assert!(lines[1].ends_with(&report.search().tiled.tilings[value.index()].to_string()));
        let place = tensor.attribute("transform").unwrap();
        let place: Vec<f64> = place["translate(".len()..place.len() - 1]
            .split(' ')
            .map(|it| it.parse().unwrap())
            .collect();
        let frame = tensor.children().find(|it| it.attribute("class") == Some("frame")).unwrap();
        assert!(place[0] >= 0.0 && place[0] + number(frame, "width") <= width, "{name}");
        assert!(place[1] >= 0.0 && place[1] + number(frame, "height") <= height, "{name}");
    }
    tensors.len()
}

/// Returns the plan of a transformer with this many blocks.
fn blocks(n_blocks: usize) -> Compiled {
    compiled("gpt", 8, Transformer { n_blocks, ..GPT }.decoder())
}

#[test]
fn of_repeated_layers_the_first_is_drawn() {
    let [few, many] = [8, 12].map(|n| blocks(n).report);
    let n_boxes = [check_svg(&few), check_svg(&many)];
    assert_eq!(n_boxes[0], n_boxes[1], "four more blocks look the same");
    assert!(3 * n_boxes[0] < n_tensors(&few), "{n_boxes:?} of {}", n_tensors(&few));
    let drawing = svg(&many);
    assert!(drawing.contains(" × 1"), "boxes say for how many they stand");
    assert!(dot(&many).contains("\\nx 1"));
    // Two blocks, and the three projections of attention, are drawn one by one.
    let two = blocks(2).report;
    assert_eq!(check_svg(&two), n_tensors(&two));
}

#[test]
fn an_svg_shows_every_tensor_edge_and_byte() {
    for (_, compiled) in plans() {
        assert!(check_svg(&compiled.report) > 0);
    }
    for n_gpus in [1, 6] {
        let report = compiled("small", n_gpus, perceptron(36, &[12, 6])).report;
        assert_eq!(check_svg(&report), n_tensors(&report));
    }
}

#[test]
fn equal_plans_give_equal_pictures() {
    let pictures = || {
        let it = compiled("small", 4, perceptron(32, &[16, 8, 4]));
        (svg(&it.report), dot(&it.report))
    };
    assert_eq!(pictures(), pictures());
}

/// Returns the output of a Graphviz tool for a text, or none without Graphviz.
fn graphviz(tool: &str, arguments: &[&str], text: &str) -> Option<String> {
    let child = Command::new(tool)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        other => other.unwrap(),
    };
    let mut input = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && complaints.is_empty(), "{tool}: {complaints}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
#[expect(clippy::print_stderr, reason = "says what is not tested")]
fn graphviz_reads_every_tensor_and_edge() {
    for (name, Compiled { report, .. }) in plans() {
        let Some(counts) = graphviz("gc", &["-n", "-e"], &dot(&report)) else {
            eprintln!("skipped: Graphviz is not installed");
            return;
        };
        let counts: Vec<usize> =
            counts.split_whitespace().take(2).map(|it| it.parse().unwrap()).collect();
        let drawing = svg(&report);
        let drawn =
            ["<g class=\"tensor ", "<path class=\"edge"].map(|it| drawing.matches(it).count());
        assert_eq!(counts, drawn, "{name}");
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "says what is not tested")]
fn graphviz_draws_layers_stripes_and_bytes() {
    let report = compiled("quoted \"name\"", 8, perceptron(64, &[512, 512, 8])).report;
    let Some(drawn) = graphviz("dot", &["-Tsvg"], &dot(&report)) else {
        eprintln!("skipped: Graphviz is not installed");
        return;
    };
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = Document::parse_with_options(&drawn, options).unwrap();
    assert_eq!(with_class(&document, "node").len(), n_tensors(&report));
    assert_eq!(with_class(&document, "edge").len(), n_edges(&report));
    let titles = |class: &str| -> Vec<String> {
        let texts = with_class(&document, class).into_iter().filter_map(|it| {
            it.descendants().find(|it| it.has_tag_name("text")).and_then(|it| it.text())
        });
        texts.map(str::to_owned).collect()
    };
    assert_eq!(titles("cluster"), ["0", "1"]);
    let label = titles("node");
    assert!(label.iter().any(|it| it == "0.weight"), "{label:?}");
}
