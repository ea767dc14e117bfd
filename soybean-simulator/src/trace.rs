//! Simulations as traces in Chrome's format.

use soybean_plan::Lane;

use crate::{Simulation, Span};

pub(crate) fn chrome_trace(simulation: &Simulation) -> String {
    let mut events = Vec::new();
    for (rank, spans) in simulation.spans.iter().enumerate() {
        events.push(label("process_name", rank, 0, &format!("rank {rank} (simulated)")));
        for lane in Lane::ALL {
            events.push(label("thread_name", rank, lane as usize, lane.name()));
        }
        events.extend(spans.iter().map(|it| event(rank, it)));
    }
    format!("{{\"traceEvents\":[\n{}\n]}}\n", events.join(",\n"))
}

fn event(rank: usize, Span { name, lane, start, end, .. }: &Span) -> String {
    let (thread, category) = (*lane as usize, lane.name());
    let (start, duration) = (start * 1e6, (end - start) * 1e6);
    format!(
        r#"{{"ph":"X","name":"{name}","cat":"{category}","pid":{rank},"tid":{thread},"ts":{start:.3},"dur":{duration:.3}}}"#
    )
}

fn label(what: &str, rank: usize, thread: usize, name: &str) -> String {
    format!(
        r#"{{"ph":"M","name":"{what}","pid":{rank},"tid":{thread},"args":{{"name":"{name}"}}}}"#
    )
}
