//! Every setting and every fact that a resumed run compares.

use super::*;
use crate::run::config::{set_setting, setting_values};

/// Returns the identity of a run with these settings and facts.
fn identity(config: &TrainConfig, facts: &[(&'static str, &str)], recipe: &str) -> RunIdentity {
    let settings = setting_values(config).map(|(name, value, on_resume)| {
        let value = value.unwrap_or_else(|| "none".to_owned());
        Fact { name, value, on_resume, kind: FactKind::Setting }
    });
    let facts = facts.iter().map(|(name, value)| Fact {
        name,
        value: (*value).to_owned(),
        on_resume: OnResume::Same,
        kind: FactKind::DataOrModel,
    });
    let facts = settings.chain(facts).collect();
    RunIdentity { facts, updates: updates(recipe), numberings: Numberings::default() }
}

/// Compares a run with a checkpoint of another one.
fn check(
    now: &RunIdentity,
    before: &RunIdentity,
    allowed: &[&str],
) -> Result<Option<String>, String> {
    let mut progress = Progress::default();
    before.store(&mut progress.extra);
    let allowed: Vec<String> = allowed.iter().map(|it| (*it).to_owned()).collect();
    now.check(Path::new("step-3"), &progress, &allowed, Noted::All).map_err(|it| it.to_string())
}

/// Returns a value of a setting that is not the default.
fn another_value(name: &str) -> &'static str {
    match name {
        "schedule" => "cosine",
        "watch" => "accuracy",
        "device" => "cpu",
        "map" => "a = b",
        "lr" | "min-lr" | "decay" | "min-delta" => "0.25",
        "evaluate-averages" | "no-checkpoints" | "async-checkpoint" | "no-graph"
        | "no-autotune" | "augment" => "true",
        "out" | "resume" | "weights" | "trace" | "data" | "data-dir" | "allow-change" => "other",
        _ => "77",
    }
}

/// Guards: no setting can be forgotten. Each new one says whether it may differ, and a setting on
/// which the results of steps depend is an error, unless it is allowed.
#[test]
fn each_setting_that_differs_is_an_error_or_is_told() {
    let config = TrainConfig::default();
    let before = identity(&config, &[], "");
    assert_eq!(check(&before, &before, &[]), Ok(None));
    let mut n_same = 0;
    let all: Vec<(&str, Option<String>, OnResume)> = setting_values(&config).collect();
    for (name, value, on_resume) in all {
        let mut changed = config.clone();
        set_setting(&mut changed, name, another_value(name)).unwrap();
        let now = identity(&changed, &[], "");
        let now_value = setting_values(&changed).find(|it| it.0 == name).unwrap().1;
        // The flag `data-dir` sets the key `data`.
        let key = if name == "data-dir" { "data" } else { name };
        assert!(name != key || value != now_value, "{name} has not changed");
        let value = |it: Option<String>| it.unwrap_or_else(|| "none".to_owned());
        let text = match name {
            "data-dir" => "expected data = none, found \"other\"".to_owned(),
            _ => format!(
                "expected {name} = {}, found {}",
                value(value_of(&config, name)),
                value(now_value)
            ),
        };
        let note = Ok(Some(format!("other than in step-3: {text}")));
        match on_resume {
            OnResume::Same => {
                n_same += 1;
                let error = format!(
                    "step-3: expected to go on with the run that wrote it: {text}; if that is \
                     meant, add --allow-change {name}"
                );
                assert_eq!(check(&now, &before, &[]), Err(error));
                assert_eq!(check(&now, &before, &[name]), note);
                assert!(check(&now, &before, &["epochs"]).is_err(), "{name}");
            }
            OnResume::Noted => assert_eq!(check(&now, &before, &[]), note, "{name}"),
            OnResume::Free => assert_eq!(check(&now, &before, &[]), Ok(None), "{name}"),
        }
    }
    assert_eq!(n_same, 9, "batch-limit, lr, the schedule, seed and augment");
}

fn value_of(config: &TrainConfig, name: &str) -> Option<String> {
    setting_values(config).find(|it| it.0 == name).and_then(|it| it.1)
}

/// Guards: all options of updates are compared, also those that are absent by default, and so are
/// ones that are added later.
#[test]
fn each_option_of_updates_that_differs_is_an_error() {
    let config = TrainConfig::default();
    let recipe = |lines: &str| {
        format!("soybean recipe 1\nprecision \"f32\"\n{lines}at \"a.rs:1\" \"\"\nv0 = ..\n")
    };
    let optimizer = "optimizer \"adam\" \"betas\" [0.9, 0.999]\n";
    let before = identity(&config, &[], &recipe(optimizer));
    for (lines, name, expected, found) in [
        (
            "optimizer \"adam\" \"betas\" [0.9, 0.99]\n",
            "optimizer",
            "adam betas [0.9, 0.999]",
            "adam betas [0.9, 0.99]",
        ),
        (
            "+group \"*.b\" 0.1 \"sgd\"\ngroup \"*.w\" 1.0 \"adam\"\n",
            "group",
            "none",
            "*.b 0.1 sgd and *.w 1.0 adam",
        ),
        ("+freeze [\"*.b\"]\n", "freeze", "none", "[*.b]"),
        ("+clip_norm 1.0\n", "clip-norm", "none", "1.0"),
        ("+accumulate 4\n", "accumulate", "none", "4"),
        ("+ema 0.999\n", "ema", "none", "0.999"),
        ("+non_finite \"scale\"\n", "non-finite", "none", "scale"),
        ("+later 7\n", "later", "none", "7"),
    ] {
        let lines =
            lines.strip_prefix('+').map_or(lines.to_owned(), |it| format!("{optimizer}{it}"));
        let now = identity(&config, &[], &recipe(&lines));
        for (now, before, expected, found) in
            [(&now, &before, expected, found), (&before, &now, found, expected)]
        {
            let error = check(now, before, &[]).unwrap_err();
            let text = format!("expected {name} = {expected}, found {found}; if that");
            assert!(error.contains(&text), "{error}");
            assert!(check(now, before, &[name]).unwrap().is_some(), "{name}");
        }
    }
}

#[test]
fn several_differences_are_one_error() {
    let config = TrainConfig::default();
    let of_data =
        |rows, hash| identity(&config, &[("training-rows", rows), ("training-data", hash)], "");
    let (now, before) = (of_data("8", "a"), of_data("9", "b"));
    assert_eq!(
        check(&now, &before, &[]).unwrap_err(),
        "step-3: expected to go on with the run that wrote it: expected training-rows = 9, found 8; \
         expected training-data = b, found a; if that is meant, add --allow-change training-rows \
         --allow-change training-data"
    );
    assert!(check(&now, &before, &["training-rows", "training-data"]).is_ok());
    assert_eq!(
        check(&now, &before, &["training-row"]).unwrap_err(),
        "allow-change: expected what may differ from a run that is resumed, found `training-row`; \
         the nearest is `training-rows`"
    );
}

#[test]
fn classes_are_compared_by_name() {
    let config = TrainConfig::default();
    let of = |names: &[&str]| {
        let classes = soybean_runtime::data::Classes::new(names.iter().copied()).unwrap();
        let numberings = Numberings::with_classes("label", classes);
        RunIdentity { numberings, ..identity(&config, &[], "") }
    };
    let before = of(&["cat", "dog"]);
    assert_eq!(check(&of(&["cat", "dog"]), &before, &[]), Ok(None));
    let error = check(&of(&["cat", "cow", "dog"]), &before, &[]).unwrap_err();
    let expected = "`label`: expected class 1 to be \"dog\", found \"cow\"; if that is meant, add \
                    --allow-change classes";
    assert!(error.ends_with(expected), "{error}");
    assert!(check(&of(&["cat", "cow", "dog"]), &before, &["classes"]).is_ok());
}

/// Guards: checkpoints of earlier versions and of other loops are resumed.
#[test]
fn a_checkpoint_that_does_not_say_is_not_compared() {
    let now = identity(&TrainConfig::default(), &[], "");
    let told = now.check(Path::new("step-3"), &Progress::default(), &[], Noted::All).unwrap();
    assert_eq!(
        told.unwrap(),
        "step-3 does not say which settings and data its run had: they are not compared"
    );
    // A fact that was added later.
    let mut progress = Progress::default();
    now.store(&mut progress.extra);
    progress.extra.get_mut("run").unwrap().as_object_mut().unwrap().remove("lr");
    let config = TrainConfig::new(10, 0.5);
    let now = identity(&config, &[], "");
    assert_eq!(now.check(Path::new("step-3"), &progress, &[], Noted::All).unwrap(), None);
}
