//! Signed values have one spelling only: a second one would be a second signature for the same
//! request.

use std::fmt::Write;

/// A whole number without sign or leading zeros.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    text.parse::<u64>().ok().filter(|number| number.to_string() == text)
}

/// Lower-case hex.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Exactly 32 bytes, in lower-case hex.
pub(crate) fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_spelling_is_parsed() {
        let bytes: [u8; 32] = std::array::from_fn(|at| (at * 8) as u8);
        let text = to_hex(&bytes);
        assert_eq!(parse_hex(&text), Some(bytes));
        for wrong in [text.to_uppercase(), text[1..].to_owned(), format!("{text}0"), text.replacen('0', "g", 1)] {
            assert_eq!(parse_hex(&wrong), None, "{wrong}");
        }
        assert_eq!(parse_number("1763270000"), Some(1_763_270_000));
        for wrong in ["", "01", "+1", "-1", " 1", "1 ", "1.0", "1e3", "0x1", "18446744073709551616", "١"] {
            assert_eq!(parse_number(wrong), None, "{wrong}");
        }
    }
}
