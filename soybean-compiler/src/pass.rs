//! Observation of passes: the result of each is verified in debug builds, and can be shown as text.

use std::fmt::Write as _;

use soybean_plan::Step;

use crate::{
    memory::Placed,
    network::Network,
    order::{Task, Tasks, Update},
    text::program_text,
    tiling::SearchResult,
    unplaced::Unplaced,
    verify::{verify, verify_partial_sums, verify_program, verify_steps},
};

/// The result of a pass.
pub trait Stage {
    /// Returns the text form.
    fn text(&self) -> String;

    /// Checks what must hold after every pass.
    ///
    /// # Errors
    /// Returns the first violation.
    fn verify(&self) -> Result<(), String>;
}

/// A callback that receives the name and the result of each pass.
pub type Observer<'a> = &'a mut dyn FnMut(&'static str, &dyn Stage);

/// The passes of one compilation.
pub(crate) struct Passes<'a> {
    pub(crate) observer: Observer<'a>,
}

impl Passes<'_> {
    /// Verifies the result of a pass in debug builds, shows it to the observer, and returns it.
    pub(crate) fn after<T: Stage>(&mut self, pass: &'static str, result: T) -> T {
        if cfg!(debug_assertions) {
            let verdict = result.verify();
            assert!(verdict.is_ok(), "after the pass `{pass}`: {verdict:?}");
        }
        (self.observer)(pass, &result);
        result
    }
}

impl Stage for Network {
    fn text(&self) -> String {
        self.to_string()
    }

    fn verify(&self) -> Result<(), String> {
        verify(self)
    }
}

/// The network with replicas, if they are wanted.
impl Stage for Option<Network> {
    fn text(&self) -> String {
        self.as_ref().map_or_else(|| "no replicas\n".to_owned(), Stage::text)
    }

    fn verify(&self) -> Result<(), String> {
        self.as_ref().map_or(Ok(()), verify)
    }
}

impl Stage for SearchResult {
    fn text(&self) -> String {
        self.tiled.to_string()
    }

    fn verify(&self) -> Result<(), String> {
        verify(&self.tiled.network)?;
        verify_partial_sums(&self.tiled)
    }
}

impl Stage for Tasks {
    fn text(&self) -> String {
        let mut text = String::new();
        let mut phases: Vec<_> = self.train.iter().map(|it| ("train", it)).collect();
        phases.push(("accumulate", &self.accumulate));
        phases.extend(self.evaluate.iter().map(|it| ("evaluate", it)));
        for (phase, tasks) in phases {
            if phase == "accumulate" && tasks.is_empty() {
                continue;
            }
            let _ = writeln!(text, "{phase}:");
            for task in tasks {
                let _ = match task {
                    Task::Compute(value) => writeln!(text, "  compute {value}"),
                    Task::Update(Update { next, cleared }) => {
                        let pairs = next.iter().map(|(source, next)| format!("{source} = {next}"));
                        let pairs = pairs.chain(cleared.map(|it| format!("{it} = 0")));
                        writeln!(text, "  update {}", pairs.collect::<Vec<_>>().join(", "))
                    }
                };
            }
        }
        text
    }

    fn verify(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Stage for Unplaced {
    fn text(&self) -> String {
        program_text(&self.program)
    }

    fn verify(&self) -> Result<(), String> {
        let check = |steps: &[Step]| verify_steps(steps, &self.program.kernels, &self.storage);
        self.program.train.iter().try_for_each(|it| check(it))?;
        check(&self.program.accumulate)?;
        self.program.evaluate.iter().try_for_each(|it| check(it))
    }
}

impl Stage for Placed {
    fn text(&self) -> String {
        let tables = &self.program.tables;
        let mut text = program_text(&self.program);
        let _ = writeln!(text, "arena: {} bytes", tables.arena_bytes);
        for (at, buffer) in tables.buffers.iter().enumerate() {
            let (n_elements, dtype) = (buffer.n_elements, buffer.dtype);
            let _ = writeln!(text, "  b{at}: {n_elements} {dtype} at {}", buffer.offset);
        }
        text
    }

    fn verify(&self) -> Result<(), String> {
        verify_program(&self.program)
    }
}
