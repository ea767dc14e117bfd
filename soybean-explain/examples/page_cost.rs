//! The cost of a plan's page: its size, the boxes of its graph, and the time of a frame while the
//! whole graph moves in headless Chromium.
//!
//! `cargo run --release -p soybean-explain --example page_cost`
#![expect(clippy::print_stdout, reason = "it prints a table")]

use std::{
    error::Error,
    fs,
    io::{BufRead, BufReader, ErrorKind, Write},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use soybean_compiler::{Compiled, Options, SearchRequest, compile, optimizer};
use soybean_explain::page::html;
use soybean_plan::Precision;
use soybean_zoo::{GPT, Model, Transformer};

/// The number of measured frames.
const N_FRAMES: usize = 60;
/// The longest time for all frames of a page.
const LIMIT: Duration = Duration::from_secs(180);

fn main() -> Result<(), Box<dyn Error>> {
    println!("| network | tensors | boxes | page | a frame |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for n_blocks in [2, 12, 24, 48] {
        let compiled = gpt(n_blocks)?;
        let page = html(&compiled);
        let n_tensors = compiled.report.search().tiled.network.graph.n_values();
        let (shown, _) = page.split_once("<template").ok_or("the page has a second graph")?;
        let n_boxes = shown.matches("<g class=\"tensor").count();
        let kilobytes = page.len() / 1000;
        let frame = match frame_milliseconds(&page)? {
            Some(time) => format!("{time:.1} ms"),
            None => "no Chromium".to_owned(),
        };
        println!("| GPT-{n_blocks} | {n_tensors} | {n_boxes} | {kilobytes} kB | {frame} |");
    }
    Ok(())
}

/// Compiles a GPT that is trained with Adam on 8 GPUs.
fn gpt(n_blocks: usize) -> Result<Compiled, String> {
    let Model { builder, loss, .. } = Transformer { n_blocks, ..GPT }.decoder();
    let options = Options {
        name: "gpt".to_owned(),
        n_gpus: 8,
        search: SearchRequest::default(),
        precision: Precision::F32,
        optimizer: optimizer("adam", &[]).map_err(|it| format!("{it:?}"))?,
    };
    compile(builder, loss, &[], &options, &|| 0.0).map_err(|it| format!("{it:?}"))
}

/// Opens a page, moves the whole graph in each frame, and returns the mean time of a frame. Returns
/// none without a browser.
fn frame_milliseconds(page: &str) -> Result<Option<f64>, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let script = format!(
        "<script>addEventListener('load', () => {{
          const times = [];
          const frame = () => {{
            times.push(performance.now());
            if (times.length <= {N_FRAMES}) {{
              pan(times.length % 2 ? 3 * scale() : -3 * scale(), scale());
              requestAnimationFrame(frame);
            }} else {{
              new Image().src = `http://{}/?${{(times.at(-1) - times[0]) / {N_FRAMES}}}`;
            }}
          }};
          showAll();
          setTimeout(() => requestAnimationFrame(frame), 1000);
        }});</script></body>",
        listener.local_addr()?
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/page-cost");
    fs::create_dir_all(&folder)?;
    let file = folder.join("page.html");
    fs::write(&file, page.replace("</body>", &script))?;
    let Some(mut browser) = started(&folder, &file)? else { return Ok(None) };
    let answer = answer(&listener);
    browser.kill()?;
    browser.wait()?;
    answer.map(Some)
}

fn started(folder: &Path, file: &Path) -> Result<Option<Child>, Box<dyn Error>> {
    for browser in ["chromium", "chromium-browser", "google-chrome"] {
        let child = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--disable-background-networking", "--window-size=1400,1000"])
            .arg("--remote-debugging-port=0")
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg(file)
            .stderr(Stdio::null())
            .spawn();
        match child {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => return Ok(Some(other?)),
        }
    }
    Ok(None)
}

/// Waits for the page's request, and reads the number in it.
fn answer(listener: &TcpListener) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false)?;
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line)?;
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
                let number = line.split(['?', ' ', '%']).nth(2).ok_or("no number")?;
                return Ok(number.parse()?);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && start.elapsed() < LIMIT => {
                thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
