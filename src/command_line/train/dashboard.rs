//! The dashboard: a few lines that are redrawn on standard error. Without a terminal nothing is
//! drawn.

use std::{
    collections::VecDeque,
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use soybean_runtime::Process;

use crate::run::{Decimal, EvaluationRecord, Event, Start, StepRecord, TrainConfig};

/// Minimum time between two frames.
const INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of points of the loss curve.
const N_BARS: usize = 40;

pub(super) struct Dashboard {
    /// The progress bar and a line for each part of [`Board::lines`]; `None` without a terminal.
    screen: Option<Screen>,
    board: Board,
    drawn: Option<Instant>,
}

struct Screen {
    all: MultiProgress,
    bar: ProgressBar,
    lines: Vec<ProgressBar>,
}

/// The displayed values.
#[derive(Default)]
struct Board {
    start: Option<Start>,
    began: Option<Instant>,
    step: Option<StepRecord>,
    losses: Losses,
    evaluation: Option<EvaluationRecord>,
    evaluating: Option<(usize, usize)>,
    best: Option<f64>,
    checkpoint: Option<String>,
    has_patience: bool,
}

impl Dashboard {
    pub(super) fn new(config: &TrainConfig, process: Process) -> Self {
        let is_seen = process.is_first() && io::stderr().is_terminal();
        let screen = is_seen.then(Screen::new);
        let board = Board { has_patience: config.patience.is_some(), ..Board::default() };
        Self { screen, board, drawn: None }
    }

    pub(super) fn show(&mut self, event: &Event<'_>) {
        let Some(screen) = &self.screen else { return };
        self.board.take(event);
        if self.drawn.is_some_and(|it| it.elapsed() < INTERVAL) {
            return;
        }
        self.drawn = Some(Instant::now());
        screen.draw(&self.board);
    }

    /// Runs `work` with the dashboard hidden, since it writes to the terminal.
    pub(super) fn suspend(&self, write: impl FnOnce()) {
        match &self.screen {
            Some(screen) => screen.all.suspend(write),
            None => write(),
        }
    }

    pub(super) fn clear(&self) {
        if let Some(screen) = &self.screen {
            // A line that cannot be cleared stays.
            let _ = screen.all.clear();
        }
    }
}

impl Screen {
    fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let style =
            |template| ProgressStyle::with_template(template).expect("the template is well formed");
        let bar = all.add(ProgressBar::new(1));
        bar.set_style(style("{prefix} {bar:24} {msg}"));
        let line = |_| {
            let line = all.add(ProgressBar::new(1));
            line.set_style(style("{msg}"));
            line
        };
        let lines = (0..N_LINES).map(line).collect();
        Self { all, bar, lines }
    }

    fn draw(&self, board: &Board) {
        let Some((start, step)) = board.start.as_ref().zip(board.step.as_ref()) else { return };
        self.bar.set_length(start.n_steps);
        self.bar.set_prefix(format!("epoch {}/{}", step.epoch, start.n_epochs));
        self.bar.set_position(step.step.min(start.n_steps));
        self.bar.set_message(board.position(start, step));
        for (line, text) in self.lines.iter().zip(board.lines(step)) {
            line.set_message(text);
        }
    }
}

const N_LINES: usize = 3;

impl Board {
    fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(start) => {
                (self.start, self.began) = (Some((*start).clone()), Some(Instant::now()));
            }
            Event::Step(record) => {
                self.losses.add(record.loss);
                self.step = Some((*record).clone());
                self.evaluating = None;
            }
            Event::Evaluating { n_done, n_batches } => {
                self.evaluating = Some((*n_done, *n_batches));
            }
            Event::Evaluation(record) => {
                let best = self.best.unwrap_or(f64::INFINITY);
                self.best = Some(best.min(record.held_out_loss));
                self.evaluation = Some((*record).clone());
                self.evaluating = None;
            }
            Event::Checkpoint(path) => {
                self.checkpoint = path.file_name().map(|it| it.to_string_lossy().into_owned());
            }
            Event::Note(_) => {}
        }
    }

    /// Returns the position in the run, and the estimated time until the end.
    fn position(&self, start: &Start, step: &StepRecord) -> String {
        let place = format!("step {}/{}", step.step, start.n_steps);
        let n_done = step.step.saturating_sub(start.n_done);
        let Some(began) = self.began.filter(|_| n_done > 0) else { return place };
        let seconds = began.elapsed().as_secs_f64() / n_done as f64;
        let left = seconds * start.n_steps.saturating_sub(step.step) as f64;
        let most = if self.has_patience { "at most " } else { "" };
        format!("{place}  {most}{} left", format_duration(left))
    }

    fn lines(&self, step: &StepRecord) -> [String; N_LINES] {
        let norm = step.gradient_norm.map(|it| format!("  gradient norm {it:.3}"));
        let skipped = Some(step.n_skipped).filter(|it| *it > 0);
        let skipped = skipped.map(|it| format!("  {it} skipped")).unwrap_or_default();
        let loss = format!(
            "loss {} {}  lr {:.3e}{}{skipped}",
            Decimal(step.loss.into()),
            self.losses.curve(),
            step.learning_rate,
            norm.unwrap_or_default()
        );
        let held_out = match (&self.evaluation, self.evaluating) {
            (_, Some((n_done, n))) => format!("evaluating: {n_done} of {n} batches"),
            (Some(it), None) => {
                let metrics =
                    it.metrics.iter().map(|(name, value)| format!("  {name} {}", Decimal(*value)));
                let best = Decimal(self.best.unwrap_or(it.held_out_loss));
                let metrics: String = metrics.collect();
                format!("held-out loss {} (best {best}){metrics}", Decimal(it.held_out_loss))
            }
            (None, None) => "not evaluated so far".to_owned(),
        };
        let checkpoint = self.checkpoint.as_deref().unwrap_or("none");
        let pace = format!(
            "{:.0} samples/s  {:.1} % waiting for data  last checkpoint {checkpoint}",
            step.samples_per_second,
            100.0 * step.data_wait
        );
        [loss, held_out, pace]
    }
}

/// The losses of a run, averaged over groups of steps so that the curve has bounded length.
#[derive(Default)]
struct Losses {
    means: VecDeque<f64>,
    /// Steps in a group.
    n_steps: usize,
    sum: f64,
    n: usize,
}

impl Losses {
    fn add(&mut self, loss: f32) {
        self.n_steps = self.n_steps.max(1);
        self.sum += f64::from(loss);
        self.n += 1;
        if self.n < self.n_steps {
            return;
        }
        self.means.push_back(self.sum / self.n as f64);
        (self.sum, self.n) = (0.0, 0);
        if self.means.len() == 2 * N_BARS {
            let pairs = self.means.make_contiguous().chunks(2);
            self.means = pairs.map(|it| it.iter().sum::<f64>() / it.len() as f64).collect();
            self.n_steps *= 2;
        }
    }

    /// Returns the curve in block characters, from the least to the greatest mean.
    fn curve(&self) -> String {
        const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let per_bar = self.means.len().div_ceil(N_BARS).max(1);
        let means: Vec<f64> = self.means.iter().copied().filter(|it| it.is_finite()).collect();
        let mean = |it: &[f64]| it.iter().sum::<f64>() / it.len() as f64;
        let bars: Vec<f64> = means.chunks(per_bar).map(mean).collect();
        let low = bars.iter().copied().fold(f64::INFINITY, f64::min);
        let high = bars.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let block = |it: &f64| {
            let share = if high > low { (it - low) / (high - low) } else { 0.0 };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "from 0 to 7"
            )]
            let number = (share * 7.0).round() as usize;
            BLOCKS[number.min(7)]
        };
        bars.iter().map(block).collect()
    }
}

/// Formats a duration for people.
fn format_duration(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole seconds")]
    let seconds = seconds.round() as u64;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match hours {
        0 => format!("{minutes}:{:02} min", seconds % 60),
        1..48 => format!("{hours}:{minutes:02} h"),
        _ => format!("{} days {} h", hours / 24, hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::run::record_tests::{evaluation, step};

    /// Returns two epochs of 50 batches, after `n_done` steps.
    fn start(n_done: u64) -> Start {
        Start {
            n_done,
            n_steps: 100,
            n_batches: 50,
            n_epochs: 2,
            batch_rows: 32,
            n_train: 1600,
            n_held_out: 64,
            resumed: None,
        }
    }

    #[test]
    fn the_dashboard_shows_the_progress() {
        let mut board = Board::default();
        let start = start(0);
        board.take(&Event::Start(&start));
        let lines = board.lines(&step(1));
        assert!(lines[1].contains("not evaluated") && lines[2].ends_with("checkpoint none"));
        for number in 1..=50 {
            let loss = 5.0 - number as f32 / 10.0;
            board.take(&Event::Step(&StepRecord { loss, ..step(number) }));
        }
        board.take(&Event::Evaluating { n_done: 1, n_batches: 2 });
        let record = step(50);
        assert_eq!(board.lines(&record)[1], "evaluating: 1 of 2 batches");
        board.take(&Event::Evaluation(&evaluation(50, Some(0.5))));
        board.take(&Event::Checkpoint(Path::new("out/checkpoints/step-0000000050")));
        let [loss, held_out, pace] = board.lines(&record);
        assert!(loss.starts_with("loss 0.1000 █") && loss.contains("▁  lr 5.000e-2"), "{loss}");
        assert_eq!(held_out, "held-out loss 2.5000 (best 2.5000)  accuracy 0.5000");
        let expected = "1000 samples/s  1.6 % waiting for data  last checkpoint step-0000000050";
        assert_eq!(pace, expected);
        let place = board.position(&start, &record);
        assert!(place.starts_with("step 50/100  0:00 min left"), "{place}");
    }

    #[test]
    fn the_bar_shows_the_progress_of_the_run() {
        let start = start(8);
        let step = StepRecord { epoch: 3, batch: 4, ..step(12) };
        let screen = Screen::new();
        screen.draw(&Board { start: Some(start), step: Some(step), ..Board::default() });
        assert_eq!((screen.bar.position(), screen.bar.length()), (12, Some(100)));
    }

    #[test]
    fn curves_have_a_bounded_length() {
        let mut losses = Losses::default();
        for number in 0..10_000 {
            losses.add(-(number as f32));
            assert!(losses.curve().chars().count() <= N_BARS, "after {number}");
        }
        let curve = losses.curve();
        assert!(curve.starts_with('█') && curve.ends_with('▁'), "{curve}");
        assert!(curve.chars().count() >= N_BARS / 2, "{curve}");
    }

    #[test]
    fn times_are_readable() {
        let texts = [0.4, 75.0, 3600.0 * 5.5, 3600.0 * 50.0].map(format_duration);
        assert_eq!(texts, ["0:00 min", "1:15 min", "5:30 h", "2 days 2 h"]);
    }
}
