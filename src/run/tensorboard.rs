//! TensorBoard's event files: protocol buffers in TensorFlow's record framing, as far as scalars
//! need them.
//!
//! A record is the length of its data (8 bytes), its checksum, the data and their checksum. Numbers
//! are little-endian, checksums are masked CRC-32C. Sources:
//! `tensorflow/core/lib/io/record_writer.cc`, `tensorboard/compat/proto/event.proto` and
//! `summary.proto`.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use super::record::Record;

/// An open file of events.
pub(crate) struct EventFile {
    file: File,
}

impl EventFile {
    /// Creates a file in `folder`. If `step` is not 0, it invalidates later steps of the folder's
    /// other files.
    pub(crate) fn create(folder: &Path, step: u64) -> io::Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // TensorBoard reads the files of a folder in the order of their names.
        let create = |micros: u128| {
            let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
            let name = format!("events.out.tfevents.{seconds:010}.{rest:06}.soybean");
            OpenOptions::new().create_new(true).append(true).open(folder.join(name))
        };
        let is_new = |it: &io::Result<File>| {
            !it.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
        };
        // A clock that stands, or is before 1970, gives the name of another run's file.
        let file = (now.as_micros()..).map(create).find(is_new);
        let file = file.expect("there are fewer files than microseconds")?;
        let mut events = Self { file };
        let time = now.as_secs_f64();
        let mut bytes = record(&event(time, step, &text(3, "brain.Event:2")));
        if step > 0 {
            // A session start makes TensorBoard drop this step and later ones.
            const SESSION_LOG: u32 = 7;
            let start = varint_field(1, 1);
            bytes.extend(record(&event(time, step + 1, &bytes_field(SESSION_LOG, &start))));
        }
        events.file.write_all(&bytes)?;
        Ok(events)
    }

    /// Appends the points of a record in one write.
    pub(crate) fn add(&mut self, record: &Record) -> io::Result<()> {
        let time = match record {
            Record::Step(it) => it.time,
            Record::Evaluation(it) => it.time,
        };
        self.file.write_all(&self::record(&event(time, record.step(), &summary(&scalars(record)))))
    }
}

/// Returns the points that a record adds, by curve.
fn scalars(record: &Record) -> Vec<(String, f64)> {
    let named = |name: &str, value: f64| (name.to_owned(), value);
    match record {
        Record::Step(it) => {
            let mut scalars = vec![
                named("loss/train", it.loss.into()),
                named("learning_rate", it.learning_rate.into()),
                named("speed/samples_per_second", it.samples_per_second),
                named("speed/data_wait", it.data_wait),
            ];
            scalars.extend(it.gradient_norm.map(|it| named("gradient_norm", it.into())));
            scalars
        }
        Record::Evaluation(it) => {
            let metrics = it.metrics.iter().map(|(name, it)| (format!("metrics/{name}"), *it));
            [named("loss/held_out", it.held_out_loss)].into_iter().chain(metrics).collect()
        }
    }
}

/// `Event { double wall_time = 1; int64 step = 2; .. }`
fn event(time: f64, step: u64, what: &[u8]) -> Vec<u8> {
    let mut bytes = key(1, 1);
    bytes.extend(time.to_le_bytes());
    bytes.extend(varint_field(2, step));
    bytes.extend(what);
    bytes
}

/// `Event { Summary summary = 5; }`, `Summary { repeated Value value = 1; }`, `Value { string tag =
/// 1; float simple_value = 2; }`
fn summary(scalars: &[(String, f64)]) -> Vec<u8> {
    let value = |(name, value): &(String, f64)| {
        #[expect(clippy::cast_possible_truncation, reason = "curves are in single precision")]
        let number = *value as f32;
        let mut bytes = text(1, name);
        bytes.extend(key(2, 5));
        bytes.extend(number.to_le_bytes());
        bytes_field(1, &bytes)
    };
    bytes_field(5, &scalars.iter().flat_map(value).collect::<Vec<u8>>())
}

fn text(field: u32, text: &str) -> Vec<u8> {
    bytes_field(field, text.as_bytes())
}

fn bytes_field(field: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = key(field, 2);
    bytes.extend(varint(content.len() as u64));
    bytes.extend(content);
    bytes
}

fn varint_field(field: u32, number: u64) -> Vec<u8> {
    let mut bytes = key(field, 0);
    bytes.extend(varint(number));
    bytes
}

/// Returns the key of a field: its number and its wire type. Types: 0 a varint, 1 eight bytes, 2 a
/// length and that many bytes, 5 four bytes.
fn key(field: u32, wire: u32) -> Vec<u8> {
    varint(u64::from(field << 3 | wire))
}

/// Encodes seven bits per byte, lowest first; all but the last byte have the eighth bit set.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut bytes = length.to_vec();
    bytes.extend(masked(crc32c(&length)).to_le_bytes());
    bytes.extend(data);
    bytes.extend(masked(crc32c(data)).to_le_bytes());
    bytes
}

/// Masks a checksum: plain checksums of data that contain checksums are weak.
const fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit, since events are short.
fn crc32c(data: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32, _| (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
    !data.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use soybean_test_support::python_with;

    use super::*;
    use crate::run::{
        output::tests::folder,
        record::tests::{evaluation, step},
    };

    /// An independent decoder, with a table-driven CRC: returns the data of each record.
    fn framed(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let table: Vec<u32> = (0..256_u32)
            .map(|byte| {
                (0..8).fold(byte, |c, _| if c % 2 == 1 { (c / 2) ^ 0x82F63B78 } else { c / 2 })
            })
            .collect();
        let crc = |data: &[u8]| {
            let next =
                |c: u32, byte: &u8| table[((c ^ u32::from(*byte)) & 255) as usize] ^ (c >> 8);
            let crc = u64::from(data.iter().fold(u32::MAX, next) ^ u32::MAX);
            u32::try_from((crc / 32768 + crc * 131_072 % (1 << 32) + 0xA282EAD8) % (1 << 32))
                .unwrap()
        };
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let length = usize::try_from(word(0)).unwrap();
            assert_eq!((word(4), word(8)), (0, crc(&bytes[..8])));
            let data = &bytes[12..12 + length];
            assert_eq!(word(12 + length), crc(data));
            records.push(data.to_vec());
            bytes = &bytes[16 + length..];
        }
        records
    }

    /// Returns the fields of a message: the number, and the content (a number as eight bytes).
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let end = bytes.iter().position(|it| *it < 128).unwrap() + 1;
            let (head, tail) = bytes.split_at(end);
            *bytes = tail;
            head.iter().rev().fold(0, |number, it| number * 128 + u64::from(it % 128))
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let content = match key % 8 {
                0 => varint(&mut bytes).to_le_bytes().to_vec(),
                wire => {
                    let length = match wire {
                        1 => 8,
                        5 => 4,
                        _ => usize::try_from(varint(&mut bytes)).unwrap(),
                    };
                    let (head, tail) = bytes.split_at(length);
                    bytes = tail;
                    head.to_vec()
                }
            };
            fields.push((key / 8, content));
        }
        fields
    }

    fn scalars_in(event: &[u8]) -> Vec<(String, f32)> {
        let summaries = fields(event).into_iter().filter(|it| it.0 == 5);
        let values = summaries.flat_map(|it| fields(&it.1));
        let scalar = |(_, value): (u64, Vec<u8>)| {
            let parts = fields(&value);
            let number = f32::from_le_bytes(parts[1].1.clone().try_into().unwrap());
            (String::from_utf8(parts[0].1.clone()).unwrap(), number)
        };
        values.map(scalar).collect()
    }

    fn write(folder: &Path) {
        let mut events = EventFile::create(folder, 0).unwrap();
        for number in 1..=300 {
            events.add(&Record::Step(step(number))).unwrap();
        }
        events.add(&Record::Evaluation(evaluation(300, Some(0.75)))).unwrap();
    }

    #[test]
    fn checksums_are_those_of_the_standard() {
        // RFC 3720, B.4, and the check value of CRC catalogs.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn events_can_be_decoded() {
        let folder = folder("events");
        write(&folder);
        let file = fs::read_dir(&*folder).unwrap().next().unwrap().unwrap().path();
        let events = framed(&fs::read(file).unwrap());
        assert_eq!(events.len(), 302);
        assert!(fields(&events[0]).contains(&(3, b"brain.Event:2".to_vec())));
        for (number, event) in (1_u64..=300).zip(&events[1..]) {
            let fields = fields(event);
            assert_eq!(fields[0], (1, 1.5e9_f64.to_le_bytes().to_vec()));
            assert_eq!(fields[1], (2, number.to_le_bytes().to_vec()));
            let expected = [
                ("loss/train", 0.1),
                ("learning_rate", 0.05),
                ("speed/samples_per_second", 1000.0),
            ];
            let expected = expected.map(|(name, value)| (name.to_owned(), value));
            assert_eq!(scalars_in(event)[..3], expected);
        }
        let expected = [("loss/held_out".to_owned(), 2.5), ("metrics/accuracy".to_owned(), 0.75)];
        assert_eq!(scalars_in(&events[301]), expected);
    }

    /// TensorBoard itself reads the events, also those of a run resumed at step 200.
    #[test]
    #[expect(clippy::print_stdout, reason = "skipped tests say why")]
    fn tensorboard_reads_the_events() {
        let Some(python) = python_with("tensorboard") else {
            println!("skipped: no Python with the package tensorboard");
            return;
        };
        let folder = folder("tensorboard");
        write(&folder);
        let mut events = EventFile::create(&folder, 200).unwrap();
        for number in 201..=250 {
            events.add(&Record::Step(step(number))).unwrap();
        }
        const SCRIPT: &str = r#"
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
points = events.Scalars("loss/train")
assert [point.step for point in points] == list(range(1, 251)), [point.step for point in points]
assert all(abs(point.value - 0.1) < 1e-7 and point.wall_time == 1.5e9 for point in points)
print(sorted(events.Tags()["scalars"]))
"#;
        let output = Command::new(python).args(["-c", SCRIPT]).arg(&*folder).output();
        let output = output.expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("speed/data_wait"), "{}", text(&output.stdout));
    }
}
