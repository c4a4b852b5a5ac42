//! Who called a function of a library that programs in other languages use: the name of an allocation in a trace.

use std::backtrace::Backtrace;

/// The caller of a C function that is on this thread's stack, as function, file and line: as much of it as the program's symbols
/// and debugging information tell. It takes milliseconds, so it is for programs that are traced.
#[must_use]
pub fn caller_of(function: &str) -> String {
    let found = caller_in(&Backtrace::force_capture().to_string(), function);
    found.unwrap_or_else(|| format!("caller of {function}"))
}

/// The frame after that of the function in the text of a backtrace: lines with number and symbol, each of which a line with
/// the place in the source may follow.
fn caller_in(text: &str, function: &str) -> Option<String> {
    let symbol = |line: &str| {
        let (number, symbol) = line.trim().split_once(": ")?;
        number.parse::<u32>().ok().map(|_| symbol.trim().to_owned())
    };
    let mut lines =
        text.lines().skip_while(|line| symbol(line).is_none_or(|name| name != function));
    lines.next()?;
    let mut lines = lines.skip_while(|line| symbol(line).is_none());
    let name = symbol(lines.next()?)?;
    let place = lines.next().and_then(|line| line.trim().strip_prefix("at "));
    // With line and column, or with the line alone.
    Some(match place {
        Some(place) => format!("{name} at {}", place.trim_start_matches("./")),
        None => name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "   0: kumi_dsm::caller::caller_of\n             at ./dsm/src/caller.rs:9:30\n   1: kumi_dsm_allocate\n             at ./bindings/c/src/dsm.rs:163:21\n   2: make_grid\n             at ./examples/grid.c:12\n   3: main\n   4: __libc_start_main\n";

    #[test]
    fn the_frame_after_the_function_is_its_caller() {
        let of = |function| caller_in(TEXT, function);
        assert_eq!(of("kumi_dsm_allocate").as_deref(), Some("make_grid at examples/grid.c:12"));
        assert_eq!(of("make_grid").as_deref(), Some("main"), "without debugging information");
        assert_eq!(
            (of("__libc_start_main"), of("allocate"), caller_in("", "main")),
            (None, None, None)
        );
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn kumi_dsm_test_called() -> bool {
        caller_of("kumi_dsm_test_called").contains("the_caller_is_found_on_the_stack")
    }

    #[test]
    #[cfg_attr(miri, ignore = "backtraces have other frames there")]
    fn the_caller_is_found_on_the_stack() {
        assert!(kumi_dsm_test_called());
        assert_eq!(caller_of("nobody"), "caller of nobody");
    }
}
