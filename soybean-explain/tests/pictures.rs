//! Pictures of plans.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use soybean_explain::{page, picture::{dot, svg}};

#[test]
fn try_it() {
    for (name, compiled) in support::plans() {
        let start = std::time::Instant::now();
        let picture = svg(&compiled.report);
        println!("{name} {} tensors {:?}", compiled.report.search().tiled.network.graph.n_values(), start.elapsed());
        std::fs::write(format!("/tmp/page-{name}.svg"), picture).unwrap();
        std::fs::write(format!("/tmp/page-{name}.dot"), dot(&compiled.report)).unwrap();
        let start = std::time::Instant::now(); let text = page::html(&compiled); println!("page {} kB {:?}", text.len()/1000, start.elapsed());
 std::fs::write(format!("/tmp/page-{name}.html"), text).unwrap();
    }
}
