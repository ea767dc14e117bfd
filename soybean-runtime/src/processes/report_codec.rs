//! Encoding of reports for other processes.

use soybean_plan::Lane;

use super::progress::{OPERATION_BYTES, Operation};
use crate::{Error, ErrorKind, KernelCategory, Profile, ranks::Report, trace::Span};

/// Header of the reports of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReportHeader {
    /// Number of the command.
    pub(super) sequence: u64,
    pub(super) operation: Operation,
    /// Answer of the process to a question asked of all.
    pub(super) flag: bool,
    /// Length of the extra data, which is too large or too variable for the fixed part.
    pub(super) n_extra_bytes: u64,
}

const HEADER_BYTES: usize = 8 + OPERATION_BYTES + 1 + 8;
const REPORT_BYTES: usize = 8 + 8 + 4 + 5 + 8 + 8 * Profile::N_WORDS;

/// Returns the length of the reports of a process with this many ranks.
pub(super) const fn n_bytes(n_ranks: usize) -> usize {
    HEADER_BYTES + n_ranks * REPORT_BYTES
}

/// Writes the header, which the reports follow.
pub(super) fn write_header(header: &ReportHeader, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&header.sequence.to_le_bytes());
    bytes.extend_from_slice(&header.operation.to_bytes());
    bytes.push(u8::from(header.flag));
    bytes.extend_from_slice(&header.n_extra_bytes.to_le_bytes());
}

/// Writes the fixed part of a report.
pub(super) fn write(report: &Report, bytes: &mut Vec<u8>) {
    // Several processes do not inspect steps.
    let Report {
        moved_bytes,
        fed_bytes,
        loss,
        gradient_norm,
        non_finite_state,
        profile,
        parts: _,
        spans: _,
        inspection: _,
    } = report;
    bytes.extend_from_slice(&moved_bytes.to_le_bytes());
    bytes.extend_from_slice(&fed_bytes.to_le_bytes());
    bytes.extend_from_slice(&loss.to_le_bytes());
    bytes.push(u8::from(gradient_norm.is_some()));
    bytes.extend_from_slice(&gradient_norm.unwrap_or(0.0).to_le_bytes());
    let state = non_finite_state.map_or(0, |buffer| buffer as u64 + 1);
    bytes.extend_from_slice(&state.to_le_bytes());
    for word in profile.words() {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}

/// Writes the extra data of a report: parts of tensors and spans of a trace.
pub(super) fn write_extra(report: &Report, bytes: &mut Vec<u8>) {
    let count = |bytes: &mut Vec<u8>, n: usize| bytes.extend_from_slice(&(n as u64).to_le_bytes());
    count(bytes, report.parts.len());
    for part in &report.parts {
        count(bytes, part.len());
        bytes.extend(part.iter().flat_map(|it| it.to_le_bytes()));
    }
    count(bytes, report.spans.len());
    for span in &report.spans {
        count(bytes, span.name.len());
        bytes.extend_from_slice(span.name.as_bytes());
        let work = span.work.and_then(|work| KernelCategory::ALL.iter().position(|it| *it == work));
        count(bytes, work.map_or(0, |it| it + 1));
        count(bytes, span.kernel.map_or(0, |it| it + 1));
        count(bytes, span.buffer.map_or(0, |it| it + 1));
        let stream = STREAMS.iter().position(|it| *it == span.stream);
        count(bytes, stream.unwrap_or(0));
        bytes.extend_from_slice(&span.start.to_le_bytes());
        bytes.extend_from_slice(&span.duration.to_le_bytes());
        bytes.extend([span.n_bytes, span.n_operations].iter().flat_map(|it| it.to_le_bytes()));
    }
}

/// Names of the streams of a rank: one on the CPU, one for each lane on GPUs.
const STREAMS: [&str; 3] = ["thread", Lane::Compute.name(), Lane::Communication.name()];

/// Reader of encoded reports.
pub(super) struct ReportReader<'a>(pub(super) &'a [u8]);

impl ReportReader<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (first, rest) = self.0.split_first_chunk().ok_or_else(|| short(N, self.0.len()))?;
        self.0 = rest;
        Ok(*first)
    }

    fn word(&mut self) -> Result<u64, Error> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn slice(&mut self, n_bytes: usize) -> Result<&[u8], Error> {
        let (first, rest) =
            self.0.split_at_checked(n_bytes).ok_or_else(|| short(n_bytes, self.0.len()))?;
        self.0 = rest;
        Ok(first)
    }

    fn count(&mut self) -> Result<usize, Error> {
        let word = self.word()?;
        usize::try_from(word).map_err(|_| short(usize::MAX, self.0.len()))
    }

    /// Reads the header of a process.
    pub(super) fn header(&mut self) -> Result<ReportHeader, Error> {
        let sequence = self.word()?;
        let operation = self.bytes::<OPERATION_BYTES>()?;
        let operation =
            Operation::from_bytes(&operation).ok_or_else(|| short(OPERATION_BYTES, 0))?;
        let [flag] = self.bytes()?;
        Ok(ReportHeader { sequence, operation, flag: flag != 0, n_extra_bytes: self.word()? })
    }

    /// Reads the output of [`write()`].
    pub(super) fn report(&mut self, report: &mut Report) -> Result<(), Error> {
        report.moved_bytes = self.word()?;
        report.fed_bytes = self.word()?;
        report.loss = self.bytes().map(f32::from_le_bytes)?;
        let [has_norm] = self.bytes()?;
        let norm = self.bytes().map(f32::from_le_bytes)?;
        report.gradient_norm = (has_norm != 0).then_some(norm);
        report.non_finite_state = self.count()?.checked_sub(1);
        let mut words = [0; Profile::N_WORDS];
        for word in &mut words {
            *word = self.word()?;
        }
        report.profile = Profile::from_words(&words);
        Ok(())
    }

    /// Reads the output of [`write_extra`].
    pub(super) fn extra(&mut self, report: &mut Report) -> Result<(), Error> {
        // The memory is reused when a state is fetched piece by piece.
        report.parts.resize_with(self.count()?, Vec::new);
        for part in &mut report.parts {
            let n_elements = self.count()?;
            let bytes = self.slice(n_elements.saturating_mul(4))?;
            part.clear();
            part.extend(bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it)));
        }
        report.spans.clear();
        for _ in 0..self.count()? {
            let length = self.count()?;
            let name = String::from_utf8_lossy(self.slice(length)?).into_owned();
            // Fields are read in the order in which they were written.
            report.spans.push(Span {
                name: name.into(),
                work: self
                    .count()?
                    .checked_sub(1)
                    .and_then(|it| KernelCategory::ALL.get(it))
                    .copied(),
                kernel: self.count()?.checked_sub(1),
                buffer: self.count()?.checked_sub(1),
                stream: STREAMS.get(self.count()?).copied().unwrap_or(STREAMS[0]),
                start: self.bytes().map(f64::from_le_bytes)?,
                duration: self.bytes().map(f64::from_le_bytes)?,
                n_bytes: self.word()?,
                n_operations: self.word()?,
            });
        }
        Ok(())
    }
}

fn short(expected: usize, found: usize) -> Error {
    let message = format!("a report of another process: expected {expected} bytes, found {found}");
    Error::new(ErrorKind::Process, message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::processes::progress::OperationKind;

    #[test]
    fn reports_round_trip() {
        let mut profile = Profile::default();
        profile.n_steps += 3;
        profile.add(KernelCategory::Map, Duration::from_micros(5));
        let span = |name: &'static str, work, buffer: Option<usize>, stream| Span {
            name: name.into(),
            kernel: buffer.map(|it| it + 3),
            buffer,
            work,
            stream,
            start: 0.5,
            duration: 2.0,
            n_bytes: 11,
            n_operations: 13,
        };
        let sent = Report {
            moved_bytes: 77,
            fed_bytes: 88,
            loss: 0.25,
            gradient_norm: Some(2.5),
            non_finite_state: Some(4),
            parts: vec![vec![], vec![1.0, f32::NAN, -0.0]],
            profile,
            spans: vec![
                span("map", Some(KernelCategory::Map), Some(0), "thread"),
                span("start", None, None, "communication"),
            ],
            ..Report::default()
        };
        let operation = Operation { kind: OperationKind::Fetch, id: 3, argument: 9 };
        let header = ReportHeader { sequence: 12, operation, flag: true, n_extra_bytes: 1 << 40 };
        let (mut bytes, mut extra) = (Vec::new(), Vec::new());
        write_header(&header, &mut bytes);
        write(&sent, &mut bytes);
        assert_eq!(bytes.len(), n_bytes(1));
        write_extra(&sent, &mut extra);

        let mut reader = ReportReader(&bytes);
        let mut found = Report::default();
        assert_eq!(reader.header().unwrap(), header);
        reader.report(&mut found).unwrap();
        ReportReader(&extra).extra(&mut found).unwrap();
        assert_eq!((found.moved_bytes, found.fed_bytes), (77, 88));
        assert_eq!((found.loss, found.profile), (0.25, profile));
        assert_eq!(found.gradient_norm, Some(2.5));
        assert_eq!(found.non_finite_state, Some(4));
        assert_eq!(found.spans, sent.spans);
        let bits = |report: &Report| -> Vec<Vec<u32>> {
            report.parts.iter().map(|it| it.iter().map(|it| it.to_bits()).collect()).collect()
        };
        assert_eq!(bits(&found), bits(&sent));
        let error = ReportReader(&extra[..extra.len() - 1]).extra(&mut found).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Process);
    }
}
