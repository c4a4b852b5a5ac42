//! Parser of sizes of memory on the command line and in the configuration.

/// Bytes of a size such as `64MiB`, `1.5GiB`, `2G` or `4096`; units are powers of 1024. `None` if the text is none.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return None,
    };
    let unit = 1u64 << shift;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(part) || part.len() > 6 {
        return None;
    }
    if digits.contains('.') && (part.is_empty() || shift == 0) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let scale = 10u64.pow(u32::try_from(part.len()).ok()?);
    let part = if part.is_empty() { 0 } else { part.parse::<u64>().ok()? };
    // A millionth of a TiB times a million fits.
    whole.checked_add(part.checked_mul(unit)? / scale)
}

/// A sentence for a text that is no size.
pub fn wrong(text: &str) -> String {
    format!(
        "{text:?} is not a size; write a number with KiB, MiB, GiB or TiB, for example 512MiB or 1.5GiB"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4_096),
            ("7B", 7),
            ("64MiB", 64 << 20),
            ("1.5GiB", 3 << 29),
            ("0.25T", 1 << 38),
            ("2G", 2 << 30),
            ("3K", 3 << 10),
            ("0.999999TiB", (1u64 << 40) * 999_999 / 1_000_000),
        ] {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        for text in
            ["", "GiB", "1GB", "1 GiB", "-1", "1.G", ".5G", "1.5", "1e3", "0.0000001T", "99999999T"]
        {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
