//! Mistakes in the settings of updates that only the whole model shows.

use soybean_plan::{DType, Pattern, nearest_names};

use super::Optimizer;
use crate::{
    diagnostic::{ModelDiagnostic, ModelPart},
    graph::Graph,
};

/// A setting with its patterns, the kind and the names of what they match, and their place.
type PatternList<'a> = (&'a str, &'a [String], &'a str, &'a [&'a str], fn(usize) -> ModelPart);

impl Optimizer {
    /// Reports the patterns that match nothing, and the settings that have no effect together.
    pub(crate) fn faults(&self, graph: &Graph) -> Vec<ModelDiagnostic> {
        let parameters: Vec<&str> =
            graph.parameters().map(|it| graph.node(it).name.as_str()).collect();
        let inputs: Vec<&str> = graph.inputs().map(|it| graph.node(it).name.as_str()).collect();
        let of_groups: Vec<String> = self.groups.iter().map(|it| it.pattern.clone()).collect();
        let lists: [PatternList<'_>; 4] = [
            ("no_decay", &self.no_decay, "parameter", &parameters, ModelPart::NoDecay),
            ("groups", &of_groups, "parameter", &parameters, ModelPart::Group),
            ("freeze", &self.freeze, "parameter", &parameters, ModelPart::Freeze),
            ("input_gradients", &self.input_gradients, "input", &inputs, ModelPart::InputGradient),
        ];
        let mut found = Vec::new();
        for (setting, patterns, kind, names, at) in lists {
            let is_idle = |pattern: &str| {
                let pattern = Pattern::new(pattern);
                !names.iter().any(|it| pattern.is_match(it))
            };
            let idle = patterns.iter().enumerate().filter(|it| is_idle(it.1));
            found.extend(idle.map(|(position, pattern)| ModelDiagnostic {
                at: at(position),
                message: format!("`{setting}`: no {kind} has a name like `{pattern}`"),
                help: nearest(pattern, kind, names),
            }));
        }
        found.extend(self.idle_settings());
        found.extend(self.faults_of_inputs(graph, &parameters));
        found
    }

    /// Reports settings of updates that no update follows.
    fn idle_settings(&self) -> Vec<ModelDiagnostic> {
        let mut found = Vec::new();
        let keeping = self.rules().find(|it| it.method().keeps_parameters);
        if let (Some(rule), Some(_)) = (keeping, self.ema) {
            let name = rule.method().name;
            found.push(ModelDiagnostic {
                at: ModelPart::Setting("ema"),
                message: format!("`ema` averages updated parameters, but `{name}` updates none"),
                help: Some("remove `ema`, and average what the loop writes".to_owned()),
            });
        }
        for (position, group) in self.groups.iter().enumerate() {
            let method = group.rule.method();
            if method.keeps_parameters && group.learning_rate_factor.to_bits() != 1_f64.to_bits() {
                let message = format!("`learning_rate_factor` has no effect on `{}`", method.name);
                let help = Some("remove it, and multiply in the loop".to_owned());
                found.push(ModelDiagnostic { at: ModelPart::Group(position), message, help });
            }
        }
        found
    }

    /// Reports inputs whose gradients cannot be kept.
    fn faults_of_inputs(&self, graph: &Graph, parameters: &[&str]) -> Vec<ModelDiagnostic> {
        let mut found = Vec::new();
        if self.accumulate > 1 && !self.input_gradients.is_empty() {
            found.push(ModelDiagnostic {
                at: ModelPart::Setting("input_gradients"),
                message: "`input_gradients` needs steps that all update, found `accumulate`"
                    .to_owned(),
                help: Some("each step has a batch of its own; remove one of the two".to_owned()),
            });
        }
        for (position, pattern) in self.input_gradients.iter().enumerate() {
            let pattern = Pattern::new(pattern);
            let named = graph.inputs().map(|it| graph.node(it));
            for input in named.filter(|it| pattern.is_match(&it.name)) {
                let name = &input.name;
                let message = match () {
                    () if input.dtype == DType::I32 => {
                        format!("the input `{name}` has integers, which have no gradient")
                    }
                    () if parameters.contains(&name.as_str()) => {
                        format!(
                            "the gradients of the input `{name}` and of a parameter have one name"
                        )
                    }
                    () => continue,
                };
                let at = ModelPart::InputGradient(position);
                found.push(ModelDiagnostic { at, message, help: None });
            }
        }
        found
    }
}

/// Suggests the names that are nearest to a pattern.
fn nearest(pattern: &str, kind: &str, names: &[&str]) -> Option<String> {
    const N_NAMED: usize = 3;
    let letters = pattern.replace('*', "");
    let near = nearest_names(&letters, names.iter().copied());
    let near: Vec<String> = near.iter().take(N_NAMED).map(|it| format!("`{}`", it.name)).collect();
    match &near[..] {
        [] => None,
        [one] => Some(format!("the only {kind} is {one}")),
        several => Some(format!("the nearest {kind}s are {}", several.join(", "))),
    }
}
