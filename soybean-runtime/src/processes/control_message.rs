//! Control messages between processes and their encoding.

use super::progress::{OPERATION_BYTES, Operation};

/// A control message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ControlMessage {
    /// The process has failed for this reason.
    Failed(String),
    /// The process has waited for long in this command of a trainer. `positions` lists all its
    /// trainers with the last command that each has begun.
    Waiting { trainer: u64, sequence: u64, operation: Operation, positions: Vec<(u64, u64)> },
    /// The process has closed a trainer after this command.
    Closed { trainer: u64, sequence: u64 },
    /// The process has ended.
    Ended,
    /// The process has started a write that must not be interrupted.
    Writing,
    /// The process has finished that write.
    Written,
    /// A sign of life.
    Alive,
}

/// The encoding of [`ControlMessage::Alive`], which needs no memory of its own.
pub(super) static ALIVE: [u8; 1] = [6];

/// Maximum length of a message in bytes, short enough to be sent eagerly.
pub(super) const MAX_BYTES: usize = 2048;

/// Maximum number of trainers in a message.
const MAX_POSITIONS: usize = 100;

impl ControlMessage {
    /// Encodes the message. Long texts are truncated.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Failed(text) => {
                bytes.push(0);
                let end = text.floor_char_boundary(MAX_BYTES - 1);
                bytes.extend_from_slice(&text.as_bytes()[..end]);
            }
            Self::Waiting { trainer, sequence, operation, positions } => {
                bytes.push(1);
                bytes.extend_from_slice(&operation.to_bytes());
                write_position(&mut bytes, (*trainer, *sequence));
                positions.iter().take(MAX_POSITIONS).for_each(|it| write_position(&mut bytes, *it));
            }
            Self::Closed { trainer, sequence } => {
                bytes.push(2);
                write_position(&mut bytes, (*trainer, *sequence));
            }
            Self::Ended => bytes.push(3),
            Self::Writing => bytes.push(4),
            Self::Written => bytes.push(5),
            Self::Alive => bytes.extend(ALIVE),
        }
        bytes
    }

    /// Decodes a message. Returns `None` if the bytes are not valid.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            0 => Some(Self::Failed(String::from_utf8_lossy(rest).into_owned())),
            1 => {
                let (operation, rest) = rest.split_at_checked(OPERATION_BYTES)?;
                let mut positions = positions(rest);
                let (trainer, sequence) = positions.next()?;
                let operation = Operation::from_bytes(operation)?;
                Some(Self::Waiting { trainer, sequence, operation, positions: positions.collect() })
            }
            2 => {
                positions(rest).next().map(|(trainer, sequence)| Self::Closed { trainer, sequence })
            }
            3 => Some(Self::Ended),
            4 => Some(Self::Writing),
            5 => Some(Self::Written),
            6 => Some(Self::Alive),
            _ => None,
        }
    }
}

/// Writes a trainer and the number of its command.
fn write_position(bytes: &mut Vec<u8>, (trainer, sequence): (u64, u64)) {
    bytes.extend([trainer, sequence].iter().flat_map(|it| it.to_le_bytes()));
}

/// Reads the output of [`write_position`].
fn positions(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let words = bytes.as_chunks().0.as_chunks().0.iter();
    words.map(|[trainer, sequence]| (u64::from_le_bytes(*trainer), u64::from_le_bytes(*sequence)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::progress::OperationKind;

    #[test]
    fn messages_round_trip() {
        let operation =
            Operation { kind: OperationKind::Train, id: 7, argument: 0.5_f32.to_bits() };
        let messages = [
            ControlMessage::Failed("rank 3: panicked".to_owned()),
            ControlMessage::Waiting {
                trainer: 2,
                sequence: 300,
                operation,
                positions: vec![(2, 300), (1 << 40, 7)],
            },
            ControlMessage::Closed { trainer: 2, sequence: 301 },
            ControlMessage::Ended,
            ControlMessage::Writing,
            ControlMessage::Written,
            ControlMessage::Alive,
        ];
        for message in messages {
            let bytes = message.to_bytes();
            assert_eq!(ControlMessage::from_bytes(&bytes), Some(message));
        }
        let long = ControlMessage::Failed("ü".repeat(MAX_BYTES)).to_bytes();
        assert!(long.len() <= MAX_BYTES && ControlMessage::from_bytes(&long).is_some());
        let positions = vec![(1, 2); MAX_BYTES];
        let many =
            ControlMessage::Waiting { trainer: 2, sequence: 300, operation, positions }.to_bytes();
        assert!(many.len() <= MAX_BYTES && ControlMessage::from_bytes(&many).is_some());
        assert_eq!(ControlMessage::from_bytes(&[]), None);
        assert_eq!(ControlMessage::from_bytes(&[1, 2, 3]), None);
    }
}
