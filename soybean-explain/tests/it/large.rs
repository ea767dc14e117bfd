//! The page of a large plan: small, and all of its tensors are found.

use soybean_compiler::{Compiled, Options, SearchRequest, Strategy, compile, optimizer};
use soybean_explain::page::html;
use soybean_plan::Precision;
use soybean_zoo::{GPT, Transformer, perceptron};

use crate::{
    browser::opened,
    support::{compiled, n_tensors},
};

/// Returns the plan of a transformer that is trained with Adam on a described machine.
fn gpt(n_blocks: usize, cluster: Option<&str>) -> Compiled {
    let model = Transformer { n_blocks, ..GPT }.decoder();
    let cluster = cluster.map(|it| soybean_cluster::preset(it).unwrap());
    let search = SearchRequest { cluster, ..SearchRequest::from(Strategy::Auto) };
    let options = Options {
        name: "gpt".to_owned(),
        n_gpus: 8,
        search,
        precision: Precision::F32,
        optimizer: optimizer("adam", &[]).unwrap(),
    };
    compile(model.builder, model.loss, &[], &options, &|| 0.0).unwrap()
}

#[test]
fn the_page_of_a_deep_transformer_is_small() {
    let compiled = gpt(24, None);
    let page = html(&compiled);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    let n_boxes = page.matches("<g class=\"tensor").count();
    assert!(n_boxes < 1000, "{n_boxes} boxes for {} tensors", n_tensors(&compiled.report));
}

#[test]
fn a_tensor_of_a_repeated_layer_leads_to_the_one_that_is_drawn() {
    let compiled = gpt(6, Some("dgx-h100"));
    let page = html(&compiled);
    let names = compiled.report.names();
    let (value, name) =
        names.iter().rfind(|it| it.1.contains(".weight.") && it.1.ends_with('\'')).unwrap();
    let script = "{
      const say = (name, value) => { document.documentElement.dataset[name] = value; };
      const names = new Set([...document.querySelectorAll('#names option')].map((it) => it.value));
      say('names', names.size);
      for (const name of [...names, 'v1', 'v100', 'v500']) if (!named(name)) say('missing', name);
    }";
    for fragment in [name.replace('\'', "%27"), value.to_string()] {
        let Some(page) = opened("folded", &page, &format!("#tensor={fragment}"), script) else {
            return;
        };
        assert!(!page.text.contains("data-missing="), "{}", page.head());
        assert!(page.number("data-names") >= names.values().count() / 2);
        assert_eq!(page.count("tensor state chosen"), 1);
        assert!(page.text.contains(" equal tensors of repeated layers"));
        assert!(page.text.contains(" predicted on "), "the cluster and its time are shown");
    }
}

#[test]
fn a_canvas_of_size_0_shows_the_whole_graph() {
    let page = html(&compiled("digits", 4, perceptron(96, &[64, 128, 10])));
    let hidden = page.replace("</head>", "<style>main { display: none }</style></head>");
    let script = "{
      const say = (name, value) => { document.documentElement.dataset[name] = value; };
      const seen = () => [view.x, view.y, view.width, view.height];
      const isWhole = () => seen().join() === [0, 0, size.width, size.height].join();
      say('first', isWhole());
      goTo(plan.tensors[2]);
      zoom(2);
      pan(10, 10);
      say('then', isWhole());
      document.querySelector('style:last-of-type').remove();
      requestAnimationFrame(() => requestAnimationFrame(() => {
        const [, , width, height] = seen();
        say('shape', Math.abs(width / height - canvas.clientWidth / canvas.clientHeight) < 0.01);
      }));
    }";
    let Some(page) = opened("size-0", &hidden, "", script) else { return };
    for it in ["first", "then", "shape"] {
        assert!(page.text.contains(&format!("data-{it}=\"true\"")), "{it}: {}", page.head());
    }
}
