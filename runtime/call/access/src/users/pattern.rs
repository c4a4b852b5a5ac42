//! Name patterns: `*` stands for any characters, `?` for one.

/// Whether a name matches a pattern, in time at most the product of their lengths.
pub fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut here) = (0, 0);
    // The last star, and where the name continues behind it.
    let mut star: Option<(usize, usize)> = None;
    while here < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, here));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[here] => (at, here) = (at + 1, here + 1),
            _ => {
                let Some((back, from)) = star else { return false };
                star = Some((back, from + 1));
                (at, here) = (back + 1, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name) in
            [("*", ""), ("*", "dgesv"), ("d*", "dgesv"), ("d?esv", "dgesv"), ("*e*v", "dgeesv")]
        {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("", "a"), ("d*", "sgesv"), ("d?esv", "desv"), ("*x", "xy"), ("dgesv", "dgesvx")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
        assert!(!fits(&"*a".repeat(200), &"a".repeat(199)));
    }
}
