//! The command line, through the example `digits`.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;
use soybean_test_support::{example, run};

fn digits(arguments: &str) -> (Option<i32>, String, String) {
    run(example!("digits").args(arguments.split_whitespace()))
}

#[test]
fn plan_as_json_has_the_fields_of_the_stable_interface() {
    let (code, output, errors) = digits("plan --format json");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let plan: Value = serde_json::from_str(&output).expect("JSON alone");
    assert_eq!(plan["gpus"], 8);
    assert_eq!(plan["axes"], serde_json::json!([2, 2, 2]));
    assert!(plan["model"].is_string() && plan["strategy"].is_string(), "{plan}");
    assert!(plan["objective"].is_string(), "{plan}");
    assert!(plan["search"]["optimal"].is_boolean(), "{plan}");
    for number in ["lower_bound_bytes", "milliseconds", "tables"] {
        assert!(plan["search"][number].is_number(), "search.{number} in {plan}");
    }
    for number in ["bytes_total", "peak_memory_bytes_per_gpu"] {
        assert!(plan[number].is_u64(), "{number} in {plan}");
    }
    for strategy in ["data", "model", "recursive"] {
        assert!(plan["baselines"][strategy].is_u64(), "baselines.{strategy} in {plan}");
    }
    assert_eq!(plan["bytes_per_axis"].as_array().unwrap().len(), 3);
    check_tensors(plan["tensors"].as_array().unwrap());
    check_operators(&plan);
}

#[test]
fn devices_are_listed_with_the_one_that_is_used() {
    let (code, output, errors) = digits("devices");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(output.starts_with("`auto` runs on "), "{output}");
    assert!(output.contains("\n  CPU "), "{output}");
    #[cfg(feature = "cuda")]
    for name in ["driver", "NVRTC", "cuBLASLt", "cuDNN", "NCCL"] {
        assert!(output.contains(&format!("\n  {name} ")), "{name} in {output}");
    }
    assert_eq!(digits("devices --seed 1").0, Some(2));
}

fn check_tensors(tensors: &[Value]) {
    let kinds = ["input", "param", "state", "activation", "gradient", "output"];
    for tensor in tensors {
        assert!(tensor["name"].is_string() && tensor["dtype"].is_string(), "{tensor}");
        assert!(kinds.contains(&tensor["kind"].as_str().unwrap()), "{tensor}");
        assert!(tensor["shape"].as_array().unwrap().iter().all(Value::is_u64), "{tensor}");
        assert_eq!(tensor["tiling"].as_array().unwrap().len(), 3, "{tensor}");
    }
    for kind in ["input", "param", "state"] {
        assert!(tensors.iter().any(|tensor| tensor["kind"] == kind), "no {kind}");
    }
}

fn check_operators(plan: &Value) {
    let ids: Vec<&Value> = plan["tensors"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    let mut bytes = 0;
    for operator in plan["ops"].as_array().unwrap() {
        assert!(operator["name"].is_string() && operator["signature"].is_string(), "{operator}");
        assert!(operator["flops"].is_u64(), "{operator}");
        assert_eq!(operator["form"].as_array().unwrap().len(), 3, "{operator}");
        assert!(ids.contains(&&operator["output"]), "{operator}");
        assert!(
            operator["inputs"].as_array().unwrap().iter().all(|it| ids.contains(&it)),
            "{operator}"
        );
        for conversion in operator["conversions"].as_array().unwrap() {
            assert!(ids.contains(&&conversion["tensor"]), "{conversion}");
            assert_eq!(conversion["from"].as_array().unwrap().len(), 3, "{conversion}");
            assert_eq!(conversion["to"].as_array().unwrap().len(), 3, "{conversion}");
            bytes += conversion["bytes"].as_u64().unwrap();
        }
    }
    assert_eq!(plan["bytes_total"], bytes, "the conversions add up to the total");
}

#[test]
fn plan_has_a_table_and_pictures() {
    let (code, text, _) = digits("plan");
    assert_eq!(code, Some(0));
    for part in ["dense.1.w", "column 8", "examples/digits.rs:", "proved optimal"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    for (format, start) in [("dot", "digraph"), ("svg", "<?xml"), ("html", "<!doctype html>")] {
        let (code, output, errors) = digits(&format!("plan --format {format}"));
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{format}");
        let beginning: String = output.chars().take(60).collect();
        assert!(beginning.to_lowercase().starts_with(start), "{format}: {beginning}");
    }
}

#[test]
#[cfg(feature = "cuda")]
fn plan_lists_launches() {
    let (code, text, errors) = digits("plan --gpus 1 --precision bf16 --format launches");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    for part in ["forward, bf16", "contraction", "GFLOP", "total", "not measured"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// Returns a plan without the duration of its search.
fn without_time(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.trim_start().starts_with("search  ")).collect()
}

#[test]
fn the_plan_compiled_again_is_the_one_of_the_program() {
    let (_, built, _) = digits("plan");
    let (code, again, _) = digits("plan --gpus 8 --strategy auto --precision f32");
    assert_eq!(code, Some(0));
    assert_eq!(without_time(&again), without_time(&built));
}

#[test]
fn plans_are_made_with_other_options() {
    let (code, text, errors) = digits("plan --gpus 4 --strategy data --precision bf16");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let heading = "plan of `digits` for 4 GPUs, mesh [2, 2], strategy data, precision bf16";
    assert_eq!(text.lines().next(), Some(heading));
    assert!(text.contains("data 4"), "{text}");
    let (code, output, errors) = digits("plan --gpus 0x");
    assert_eq!((code, output.as_str()), (Some(2), ""), "{errors}");
    let (code, output, errors) = digits("plan --gpus 4099");
    assert_eq!((code, output.as_str()), (Some(1), ""));
    assert!(errors.contains("must lie between 1 and 4096, found 4099"), "{errors}");
}

#[test]
fn plans_are_made_for_other_machines() {
    let (code, text, errors) = digits("plan --cluster dgx-h100 --objective time");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(
        text.contains("predicted for dgx-h100") && text.contains(" % of the fastest"),
        "{text}"
    );
    let (code, text, errors) = digits("plan --cluster dgx-h100 --objective time --why dense.1.w");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(text.contains("  tiling      time "), "{text}");
    let (code, text, errors) = digits("plan --memory 1MiB");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let memory = text.lines().find(|it| it.contains("memory of each GPU")).unwrap();
    assert!(memory.ends_with(" of 1.0 MB"), "{memory}");
    let (code, unshared, errors) = digits("plan --unshared --memory 1MiB");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    // The best plan needs no replicas; that of `model` does.
    assert_ne!(without_time(&unshared), without_time(&text));
    for (arguments, expected, message) in [
        ("plan --memory 1kB", 1, "which have 1.0 kB"),
        ("plan --memory lots", 2, "--memory: "),
        ("plan --cluster abacus", 2, "`abacus` is neither one of p2.8xlarge, "),
        ("plan --cluster dgx-h100 --gpus 7 --padding off", 1, "can be split over 7 GPUs"),
    ] {
        let (code, output, errors) = digits(arguments);
        assert_eq!((code, output.as_str()), (Some(expected), ""), "{arguments}");
        assert!(errors.contains(message), "{arguments}: {errors}");
    }
}

#[test]
fn a_calibrated_cluster_predicts_plans() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join("calibrated.toml").display().to_string();
    let (code, output, errors) =
        digits(&format!("bench --device cpu --max-kernel 64kB --calibrate {file}"));
    assert_eq!(code, Some(0), "{errors}");
    assert!(output.contains("8 virtual devices on the CPU"), "{output}");
    assert!(errors.contains("measuring all-to-all of 8 ranks (round 3 of 3)"), "{errors}");
    let error = output.lines().last().unwrap();
    assert!(error.starts_with("update ") && error.contains(" measured, "), "{output}");
    assert!(error.contains(" predicted (") && error.ends_with(" %)"), "{output}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# Measured by `bench --calibrate` of a program for 8 ranks"));
    let cluster = soybean_cluster::read("calibrated", &file, &text).unwrap();
    assert_eq!(cluster.n_gpus(), 8);
    let names: BTreeSet<&str> = cluster.measurements.kernels.iter().map(|it| &*it.name).collect();
    assert_eq!(names, soybean_plan::measured_names().collect());
    // Four kinds in groups of 2, 4 and 8 ranks.
    assert_eq!(cluster.measurements.collectives.len(), 12);
    let (code, text, errors) = digits(&format!("plan --cluster {file}"));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(text.contains("predicted for calibrated"), "{text}");
    let (code, text, errors) = digits(&format!("plan --cluster {file} --objective time --gpus 4"));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(text.contains("predicted for calibrated"), "{text}");
}

#[test]
fn calibrations_refuse_bad_arguments() {
    for (arguments, expected, message) in [
        ("bench --device cpu --calibrate /nowhere/cluster.toml", 1, "cannot write /nowhere/"),
        ("bench --calibrate x.toml --max-kernel 1kB", 2, "expected at least 64kB, found `1kB`"),
        ("plan --calibrate x.toml", 2, "--calibrate is not a flag of `plan`"),
        ("bench --calibrate", 2, "missing argument for option '--calibrate'"),
    ] {
        let (code, _, errors) = digits(arguments);
        assert_eq!(code, Some(expected), "{arguments}: {errors}");
        assert!(errors.contains(message), "{arguments}: {errors}");
    }
}

#[test]
fn why_lists_the_tilings_of_a_tensor() {
    let (code, text, errors) = digits("plan --why dense.1.w");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let rows: Vec<&str> = text.lines().skip(3).collect();
    assert_eq!(rows.len(), 10, "multisets of three of `P0`, `P1` and `r`: {text}");
    assert!(rows[0].ends_with("1.00 x  proved  the plan's"), "{text}");
    // A name that the model builds in a loop.
    assert_eq!(digits("plan --why h.1").0, Some(0));
    let (code, output, errors) = digits("plan --why dense.1.v");
    assert_eq!((code, output.as_str()), (Some(1), ""));
    assert!(errors.contains("no tensor `dense.1.v`; names like it are dense.1.w,"), "{errors}");
}

#[test]
fn diff_compares_strategies_and_files() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = |name: &str| folder.join(name).display().to_string();
    let (saved, broken) = (file("plan-of-four.json"), file("no-plan.json"));
    let (code, output, errors) = digits(&format!("plan --gpus 4 --format json -o {saved}"));
    assert_eq!((code, output.as_str(), errors.as_str()), (Some(0), "", ""));
    let (code, text, errors) = digits(&format!("plan --diff {saved} data"));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    for part in ["(strategy auto, 4 GPUs, f32)", "(strategy data, 8 GPUs, f32)", "dense.1.w"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    fs::write(&broken, "{ \"model\": \"digits\" }").unwrap();
    for (argument, message) in [
        (broken.as_str(), "not a plan: expected a list at `tensors`"),
        ("fast", "unknown strategy `fast`"),
    ] {
        let (code, output, errors) = digits(&format!("plan --diff {argument} data"));
        assert_eq!((code, output.as_str()), (Some(1), ""), "{argument}");
        assert!(errors.contains(message), "{argument}: {errors}");
    }
    let (code, _, errors) = digits(&format!("plan -o {}/none/plan.txt", folder.display()));
    assert_eq!(code, Some(1));
    assert!(errors.contains("cannot write"), "{errors}");
}

#[test]
fn passes_are_written_as_numbered_files() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("passes-of-digits");
    let _ = fs::remove_dir_all(&folder);
    let (code, output, errors) = digits(&format!("plan --passes {}", folder.display()));
    assert_eq!((code, output.as_str(), errors.as_str()), (Some(0), "", ""));
    for (file, part) in [
        ("01-differentiate.txt", "\ngradient of v2: "),
        ("02-add-updates.txt", "\nupdate v2 = "),
        ("10-search.txt", "mesh "),
        ("15-plan-memory.txt", "\narena: "),
    ] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        assert!(text.contains(part), "{file}: {text}");
    }
    let (code, _, errors) = digits("plan --passes x --why dense.1.w");
    assert_eq!(code, Some(2));
    assert!(errors.contains("--passes writes files"), "{errors}");
}

#[test]
fn help_lists_commands_and_flags() {
    let (code, text, _) = digits("--help");
    assert_eq!(code, Some(0));
    for word in ["train", "plan", "check", "bench", "--epochs", "--batch-limit", "--threads"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    for command in ["train", "plan", "check", "bench"] {
        let (code, text, _) = digits(&format!("{command} --help"));
        assert_eq!(code, Some(0), "{command}");
        assert!(text.contains("Flags:"), "{text}");
    }
}

#[test]
fn bad_usage_names_the_flag_and_the_nearest_one() {
    for (arguments, message) in [
        ("--epoch 3", "unknown flag --epoch; the nearest is --epochs"),
        ("plann", "unknown command `plann`; the nearest is `plan`"),
        (
            "plan --format xml",
            "--format: expected one of text, json, dot, svg, html, launches, found `xml`",
        ),
        ("plan --gpus many", "--gpus: expected a whole number from 1, found `many`"),
        (
            "plan --strategy fast",
            "--strategy: unknown strategy `fast`; the strategies are auto, recursive, data, model",
        ),
        ("plan --precision f64", "--precision: expected one of f32, tf32, bf16, found `f64`"),
        ("plan --max-work 0.5", "--max-work: expected a number from 1, found `0.5`"),
        ("plan --diff auto", "missing argument for option '--diff'"),
        ("plan --why x --format json", "--why and --diff give text only"),
        ("plan --why x --diff auto data", "--why and --diff are two questions: ask one at a time"),
        ("train --gpus 2", "--gpus is not a flag of `train`"),
        ("--lr fast", "--lr: expected a number from 0 to 3.4e38, found `fast`"),
    ] {
        let (code, output, errors) = digits(arguments);
        assert_eq!((code, output.as_str()), (Some(2), ""), "{arguments}");
        assert!(errors.contains(message), "{arguments}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn training_ends_with_the_accuracy_and_leaves_its_metrics() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("digits-run");
    let arguments = format!("train --epochs 2 --batch-limit 3 --out {}", folder.display());
    let (code, output, errors) = digits(&arguments);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    let last = output.lines().last().unwrap();
    let accuracy: f64 = last.strip_prefix("accuracy ").expect(last).parse().unwrap();
    assert!((0.0..=1.0).contains(&accuracy), "{last}");
    let table = fs::read_to_string(folder.join("metrics.csv")).unwrap();
    assert_eq!(table.lines().count(), 3, "{table}");
    let plot = fs::read_to_string(folder.join("metrics.svg")).unwrap();
    assert!(plot.starts_with("<svg") && plot.contains("accuracy"), "a plot");
}

#[test]
fn check_compares_the_trainer_with_the_function() {
    let (code, output, errors) = digits("check");
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    assert!(output.contains("first update"), "{output}");
}

#[test]
fn check_compares_runs_on_several_numbers_of_threads() {
    let (code, output, errors) = digits("check --determinism --device cpu --threads 16");
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0].contains("16 threads") && lines[0].contains("6 parameters of "), "{output}");
    for (line, n_threads) in lines[1..].iter().zip([16, 8, 24]) {
        assert!(line.starts_with("ok    8 virtual devices on the CPU, "), "{output}");
        assert!(line.contains(&format!(" {n_threads} threads ")), "{output}");
        assert!(line.ends_with("the same bits"), "{output}");
    }
    assert!(lines.len() >= 5 && lines.last().unwrap().starts_with("all "), "{output}");
    assert_eq!(digits("train --determinism").0, Some(2));
}

#[test]
fn bench_reports_time_and_bytes() {
    let (code, output, errors) = digits("bench --steps 2");
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    for word in ["steps per second", "waited for", "predicted", "counted", "contraction", "memory"]
    {
        assert!(output.contains(word), "{word} in {output}");
    }
    let feeding = output.lines().find_map(|it| it.strip_prefix("feeding ")).unwrap();
    let mut numbers = feeding.split_whitespace().filter_map(|it| it.parse::<u64>().ok());
    let [predicted, counted] = [(); 2].map(|()| numbers.next().unwrap());
    assert!(predicted == counted && counted > 0, "{output}");
    assert!(!output.contains("-0.0"), "{output}");
}

fn predict(arguments: &str) -> (Option<i32>, String, String) {
    run(example!("predict").args(arguments.split_whitespace()))
}

#[test]
fn predictors_have_a_command_line_of_their_own() {
    let (code, output, errors) = predict("check --seed 3");
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    assert!(output.contains("ok    output `output.0`"), "{output}");
    assert!(output.contains("bytes of a prediction"), "{output}");
    let (code, output, _) = predict("bench --steps 2");
    assert_eq!(code, Some(0));
    assert!(output.contains("predictions/s"), "{output}");
    assert_eq!(predict("train").0, Some(2));
}

#[test]
fn plans_of_predictors_are_explained() {
    let (code, output, _) = predict("plan --gpus 2");
    assert_eq!(code, Some(0));
    assert!(output.starts_with("plan of `one` in mode inference for 2 GPUs"), "{output}");
    let (code, output, _) = predict("plan --format json");
    assert_eq!(code, Some(0));
    let plan: Value = serde_json::from_str(&output).expect("JSON alone");
    assert_eq!((&plan["mode"], &plan["gpus"]), (&"inference".into(), &4.into()));
    let passes = plan["ops"].as_array().unwrap().iter().map(|it| &it["pass"]);
    assert!(passes.into_iter().all(|it| it == "forward"), "{plan}");
    let (code, output, _) = predict("plan --why perceptron.linear.1.weight");
    assert_eq!(code, Some(0));
    assert!(output.contains("the plan's"), "{output}");
    let (code, output, _) = predict("plan --diff data model");
    assert_eq!(code, Some(0));
    assert!(output.contains("bytes moved in one prediction"), "{output}");
}
