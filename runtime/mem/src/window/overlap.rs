//! Overlap of buffers: buffers of one call that must not share memory.

/// Whether any two of these ranges of memory (starts and lengths in bytes) have bytes in common. For
/// bindings that make slices of other languages' buffers. Sorts them.
#[must_use]
pub fn any_overlap(ranges: &mut [(usize, usize)]) -> bool {
    ranges.sort_unstable();
    let mut end = 0;
    for (start, length) in ranges.iter().filter(|range| range.1 > 0) {
        if *start < end {
            return true;
        }
        end = start.saturating_add(*length);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::any_overlap;

    #[test]
    fn bytes_in_common_are_found_in_any_order() {
        assert!(!any_overlap(&mut []));
        assert!(!any_overlap(&mut [(8, 8), (0, 8), (16, 1)]));
        assert!(any_overlap(&mut [(8, 8), (0, 9), (16, 1)]));
        assert!(any_overlap(&mut [(3, 1), (0, 9)]));
        assert!(any_overlap(&mut [(5, 1), (5, 1)]));
        // Nothing shares nothing, also in the midst of something, and hides nobody.
        assert!(!any_overlap(&mut [(5, 0), (0, 9), (5, 0)]));
        assert!(any_overlap(&mut [(5, 0), (0, 9), (7, 1)]));
        assert!(any_overlap(&mut [(usize::MAX - 1, 9), (usize::MAX - 1, 1)]));
    }
}
