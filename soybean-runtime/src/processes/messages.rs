//! What processes tell each other beside the work: that they have failed, wait, or have ended.

use super::course::Deed;

/// A message on the channel of control.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// The process has failed, for this reason.
    Failed(String),
    /// It waits for others in this order of a trainer, and has done so for long.
    Waiting { trainer: u64, order: u64, deed: Deed },
    /// It has ended a trainer after this order.
    Closed { trainer: u64, order: u64 },
    /// It has ended.
    Ended,
}

/// The longest message, in bytes: short enough to be sent at once.
pub(super) const MAX_BYTES: usize = 2048;

impl Message {
    /// The message as bytes; texts are cut where they are too long.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Failed(text) => {
                bytes.push(0);
                let end = text.floor_char_boundary(MAX_BYTES - 1);
                bytes.extend_from_slice(&text.as_bytes()[..end]);
            }
            Self::Waiting { trainer, order, deed } => {
                bytes.push(1);
                bytes.extend_from_slice(&trainer.to_le_bytes());
                bytes.extend_from_slice(&order.to_le_bytes());
                bytes.extend_from_slice(&deed.to_bytes());
            }
            Self::Closed { trainer, order } => {
                bytes.push(2);
                bytes.extend_from_slice(&trainer.to_le_bytes());
                bytes.extend_from_slice(&order.to_le_bytes());
            }
            Self::Ended => bytes.push(3),
        }
        bytes
    }

    /// The message with these bytes, if they are one.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let word = |at: usize| {
            let bytes = rest.get(8 * at..8 * (at + 1))?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        match kind {
            0 => Some(Self::Failed(String::from_utf8_lossy(rest).into_owned())),
            1 => {
                let deed = Deed::from_bytes(rest.get(16..)?)?;
                Some(Self::Waiting { trainer: word(0)?, order: word(1)?, deed })
            }
            2 => Some(Self::Closed { trainer: word(0)?, order: word(1)? }),
            3 => Some(Self::Ended),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::course::Act;

    #[test]
    fn messages_come_as_they_were_sent() {
        let deed = Deed { act: Act::Train, word: 7, detail: 0.5_f32.to_bits() };
        let messages = [
            Message::Failed("rank 3: panicked".to_owned()),
            Message::Waiting { trainer: 2, order: 300, deed },
            Message::Closed { trainer: 2, order: 301 },
            Message::Ended,
        ];
        for message in messages {
            let bytes = message.to_bytes();
            assert_eq!(Message::from_bytes(&bytes), Some(message));
        }
        let long = Message::Failed("ü".repeat(MAX_BYTES)).to_bytes();
        assert!(long.len() <= MAX_BYTES && Message::from_bytes(&long).is_some());
        assert_eq!(Message::from_bytes(&[]), None);
        assert_eq!(Message::from_bytes(&[1, 2, 3]), None);
    }
}
