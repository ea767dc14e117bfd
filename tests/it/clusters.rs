//! Models for a cluster, from its file or a preset to a plan for its levels and training on its
//! mesh.

use std::{fs, path::Path};

use soybean::{Config, Split, TrainConfig, prelude::*};
use soybean_compiler::Recipe;
use soybean_plan::Plan;

/// Three nodes of two devices: the axis of three comes first in the mesh.
#[soybean::model(gpus = 6, cluster = "tests/machines/abacus.toml", objective = "time")]
fn counted(x: Tensor<f32, 12, 6>, y: Tensor<i32, 12>) -> Tensor {
    let h = x.matmul(param("w", [6, 24], he_normal())).relu();
    h.matmul(param("v", [24, 6], he_normal())).cross_entropy(y)
}

#[soybean::model(gpus = 6)]
fn plain(x: Tensor<f32, 12, 6>, y: Tensor<i32, 12>) -> Tensor {
    let h = x.matmul(param("w", [6, 24], he_normal())).relu();
    h.matmul(param("v", [24, 6], he_normal())).cross_entropy(y)
}

#[soybean::model(gpus = 8, cluster = "2x8-h100-ib")]
fn shipped(x: Tensor<f32, 16, 8>) -> Tensor {
    x.matmul(param("w", [8, 8], he_normal())).mean(..)
}

/// Compiles the model of a plan again, and returns the new plan as JSON.
fn plan(plan: Plan) -> serde_json::Value {
    let compiled = plan.recipe.parse::<Recipe>().unwrap().compile(&|| 0.0).unwrap();
    assert_eq!(compiled.report.bytes_total, plan.bytes_total);
    serde_json::from_str(&compiled.report.json()).unwrap()
}

#[test]
fn plans_are_made_for_the_levels_of_the_cluster() {
    let timed = plan(counted::Trainer::PLAN);
    assert_eq!(timed["objective"], "time");
    assert_eq!(timed["cluster"], "abacus");
    assert_eq!(timed["axes"], serde_json::json!([3, 2]));
    assert_eq!(timed["levels"][0]["axes"], serde_json::json!([0]));
    assert!(timed["seconds"].as_f64().unwrap() >= timed["times"]["plan"].as_f64().unwrap() * 0.999);
    let of_levels: u64 = (0..2).map(|it| timed["levels"][it]["bytes"].as_u64().unwrap()).sum();
    assert_eq!(timed["bytes_total"], of_levels);
}

#[test]
fn fewer_gpus_than_the_cluster_has_stand_close_together() {
    let counted = plan(shipped::Trainer::PLAN);
    assert_eq!(
        (&counted["objective"], &counted["cluster"]),
        (&"bytes".into(), &"2x8-h100-ib".into())
    );
    assert_eq!(counted["levels"][0]["bytes"], 0);
    assert_eq!(counted["levels"][1]["axes"], serde_json::json!([0, 1, 2]));
    assert!(plan(plain::Trainer::PLAN)["cluster"].is_null());
}

#[test]
fn trainings_on_the_mesh_of_a_cluster_are_like_others() {
    let x: Vec<f32> = (0..72).map(|it| (it % 7) as f32 / 7.0 - 0.4).collect();
    let y: Vec<i32> = (0..12).map(|it| it % 6).collect();
    let mut timed = counted::Trainer::new(Config::default()).unwrap();
    let mut other = plain::Trainer::new(Config::default()).unwrap();
    for step in 0..5 {
        let one = timed.step(&counted::Batch { x: &x, y: &y }).unwrap();
        let two = other.step(&plain::Batch { x: &x, y: &y }).unwrap();
        // Sums of some dozen terms in another order.
        assert!((one - two).abs() <= 1e-4 * two.abs(), "step {step}: {one} and {two}");
    }
}

#[test]
fn a_trace_shows_the_predicted_step_beside_the_measured_one() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trace-of-a-cluster.json");
    let config = TrainConfig { trace: Some(file.clone()), ..TrainConfig::new(1, 0.1) };
    let split = Split::random::<counted::Network>(24, 12, 0);
    counted::Trainer::new(config.trainer.clone()).unwrap().fit(&config, &split).unwrap();
    let trace: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for rank in 0..6 {
        let of_rank = || events.iter().filter(|it| it["pid"] == rank);
        let rows: Vec<&str> = of_rank()
            .filter(|it| it["name"] == "thread_name")
            .map(|it| it["args"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(rows, ["thread", "predicted compute", "predicted communication"]);
        let names = |row: &str| -> Vec<&str> {
            let of_row = of_rank().filter(|it| it["cat"] == row);
            of_row.map(|it| it["name"].as_str().unwrap()).collect()
        };
        for row in ["thread", "predicted compute"] {
            assert!(names(row).iter().any(|it| it.starts_with("matmul, ")), "{:?}", names(row));
        }
    }
}
