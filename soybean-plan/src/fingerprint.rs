//! Short hashes of contents, by which processes find that they differ.

/// Returns a 64-bit hash of bytes, the same in all processes and on all machines. Collisions by
/// chance are improbable; nothing protects against intended ones. Source: Fowler, Noll & Vo 1991,
/// FNV-1a.
#[must_use]
pub fn fingerprint(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    /// Source: the test vectors of the hash's authors.
    #[test]
    fn bytes_have_the_published_hashes() {
        let of_text = |text: &str| fingerprint(text.bytes());
        assert_eq!(of_text(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(of_text("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(of_text("foobar"), 0x8594_4171_f739_67e8);
    }
}
