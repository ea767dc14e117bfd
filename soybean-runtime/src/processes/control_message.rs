//! What processes tell each other beside the work: that they have failed, wait, write, or have ended.

use super::progress::{OPERATION_BYTES, Operation};

/// A message on the channel of control.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ControlMessage {
    /// The process has failed, for this root_cause.
    Failed(String),
    /// It waits for peers in this order of a trainer, and has done so for long. `places` are all its trainers, each with the last order that it has begun.
    Waiting { trainer: u64, order: u64, operation: Operation, places: Vec<(u64, u64)> },
    /// It has ended a trainer after this order.
    Closed { trainer: u64, order: u64 },
    /// It has ended.
    Ended,
    /// It has begun to write something that must not be cut off.
    Writing,
    /// It has written that.
    Written,
}

/// The longest message, in bytes: short enough to be sent at once.
pub(super) const MAX_BYTES: usize = 2048;

/// The most trainers whose places are told.
const MAX_PLACES: usize = 100;

impl ControlMessage {
    /// The message as bytes; texts are cut where they are too long.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Failed(text) => {
                bytes.push(0);
                let end = text.floor_char_boundary(MAX_BYTES - 1);
                bytes.extend_from_slice(&text.as_bytes()[..end]);
            }
            Self::Waiting { trainer, order, operation, places } => {
                bytes.push(1);
                bytes.extend_from_slice(&operation.to_bytes());
                put(&mut bytes, (*trainer, *order));
                places.iter().take(MAX_PLACES).for_each(|it| put(&mut bytes, *it));
            }
            Self::Closed { trainer, order } => {
                bytes.push(2);
                put(&mut bytes, (*trainer, *order));
            }
            Self::Ended => bytes.push(3),
            Self::Writing => bytes.push(4),
            Self::Written => bytes.push(5),
        }
        bytes
    }

    /// The message with these bytes, if they are one.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            0 => Some(Self::Failed(String::from_utf8_lossy(rest).into_owned())),
            1 => {
                let (operation, rest) = rest.split_at_checked(OPERATION_BYTES)?;
                let mut places = places(rest);
                let (trainer, order) = places.next()?;
                let operation = Operation::from_bytes(operation)?;
                Some(Self::Waiting { trainer, order, operation, places: places.collect() })
            }
            2 => places(rest).next().map(|(trainer, order)| Self::Closed { trainer, order }),
            3 => Some(Self::Ended),
            4 => Some(Self::Writing),
            5 => Some(Self::Written),
            _ => None,
        }
    }
}

/// Writes a trainer and its order.
fn put(bytes: &mut Vec<u8>, (trainer, order): (u64, u64)) {
    bytes.extend([trainer, order].iter().flat_map(|it| it.to_le_bytes()));
}

/// What [`put`] has written.
fn places(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let words = bytes.as_chunks().0.as_chunks().0.iter();
    words.map(|[trainer, order]| (u64::from_le_bytes(*trainer), u64::from_le_bytes(*order)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::progress::OperationKind;

    #[test]
    fn messages_come_as_they_were_sent() {
        let operation =
            Operation { kind: OperationKind::Train, id: 7, argument: 0.5_f32.to_bits() };
        let messages = [
            ControlMessage::Failed("rank 3: panicked".to_owned()),
            ControlMessage::Waiting {
                trainer: 2,
                order: 300,
                operation,
                places: vec![(2, 300), (1 << 40, 7)],
            },
            ControlMessage::Closed { trainer: 2, order: 301 },
            ControlMessage::Ended,
            ControlMessage::Writing,
            ControlMessage::Written,
        ];
        for message in messages {
            let bytes = message.to_bytes();
            assert_eq!(ControlMessage::from_bytes(&bytes), Some(message));
        }
        let long = ControlMessage::Failed("ü".repeat(MAX_BYTES)).to_bytes();
        assert!(long.len() <= MAX_BYTES && ControlMessage::from_bytes(&long).is_some());
        let places = vec![(1, 2); MAX_BYTES];
        let many = ControlMessage::Waiting { trainer: 2, order: 300, operation, places }.to_bytes();
        assert!(many.len() <= MAX_BYTES && ControlMessage::from_bytes(&many).is_some());
        assert_eq!(ControlMessage::from_bytes(&[]), None);
        assert_eq!(ControlMessage::from_bytes(&[1, 2, 3]), None);
    }
}
