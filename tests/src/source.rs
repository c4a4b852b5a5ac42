//! Reader of the repository's sources: files, functions with their lengths, unsafe code, manifests.

use crate::binaries::repository;
use std::path::{Path, PathBuf};

/// A source file.
#[derive(Debug)]
pub struct Source {
    /// Path from the root of the repository.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// A function and how long it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its name, from 1.
    pub line: usize,
    /// Lines from its name to its closing brace.
    pub lines: usize,
}

/// All files of the repository with one of these extensions, sorted by path; build output and what
/// starts with a dot left out.
///
/// # Panics
/// When a folder or file cannot be read.
pub fn files(extensions: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    walk(repository(), &mut paths);
    paths.retain(|path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
    });
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let path = path.strip_prefix(repository()).expect("found below it");
        Source { path: path.display().to_string(), text }
    };
    paths.into_iter().map(read).collect()
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the repository can be read") {
        let path = entry.expect("the repository can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with('.') || ["target", "node_modules"].contains(&name) {
            continue;
        }
        if path.is_dir() { walk(&path, paths) } else { paths.push(path) }
    }
}

/// The text with comments and the contents of strings and characters blanked out, so that braces
/// and words that remain are code. Lines stay where they are. Understands Rust and C.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => find(bytes, at, b"\n"),
            b'/' if bytes[at..].starts_with(b"/*") => block_comment(bytes, at),
            b'r' if raw_string(bytes, at).is_some() => raw_string(bytes, at).unwrap_or(at),
            b'"' => quoted(bytes, at, b'"'),
            b'\'' if is_character(bytes, at) => quoted(bytes, at, b'\''),
            _ => {
                at += 1;
                continue;
            }
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(out).expect("only whole comments and strings were blanked")
}

/// The position of `needle` from `at` on, or the end.
fn find(bytes: &[u8], at: usize, needle: &[u8]) -> usize {
    let found = bytes[at..].windows(needle.len()).position(|window| window == needle);
    found.map_or(bytes.len(), |offset| at + offset)
}

/// The end of a block comment; Rust's nest.
fn block_comment(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The end of a string or character with escapes that begins at `start`.
fn quoted(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The end of a raw string that begins at `start`, if one does.
fn raw_string(bytes: &[u8], start: usize) -> Option<usize> {
    let before = start.checked_sub(1).map(|before| bytes[before]);
    if before.is_some_and(|byte| byte != b'b' && is_word(byte)) {
        return None;
    }
    let hashes = bytes[start + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let open = start + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    Some((find(bytes, open + 1, &close) + close.len()).min(bytes.len()))
}

/// Tells a character literal from a lifetime.
fn is_character(bytes: &[u8], start: usize) -> bool {
    match bytes.get(start + 1) {
        Some(b'\\') => true,
        Some(byte) if byte.is_ascii() => bytes.get(start + 2) == Some(&b'\''),
        // A character outside ASCII ends within four bytes; lifetimes are ASCII here.
        other => other.is_some(),
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The functions with bodies of a Rust source.
pub fn rust_functions(text: &str) -> Vec<Function> {
    let code = code_only(text);
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if at > 0 && is_word(bytes[at - 1]) {
            continue;
        }
        let name: String =
            code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let Some(open) = body(bytes, at).filter(|_| !name.is_empty()) else { continue };
        found.push(function(&code, name, at, open));
    }
    found
}

/// Where the body of the function declared at `at` begins; none for a declaration without one.
fn body(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (index, byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(index),
            _ => {}
        }
    }
    None
}

fn function(code: &str, name: String, at: usize, open: usize) -> Function {
    let mut depth = 0_i32;
    let mut end = code.len();
    for (index, byte) in code.bytes().enumerate().skip(open) {
        depth += match byte {
            b'{' => 1,
            b'}' => -1,
            _ => 0,
        };
        if depth == 0 {
            end = index;
            break;
        }
    }
    let newlines = |text: &str| text.bytes().filter(|&byte| byte == b'\n').count();
    Function { name, line: newlines(&code[..at]) + 1, lines: newlines(&code[at..end]) + 1 }
}

/// The functions with bodies of a C or C++ source: a body opens behind a parenthesis, outside of
/// other functions; namespaces and classes are looked into.
pub fn c_functions(text: &str) -> Vec<Function> {
    let code = code_only(text);
    let (mut depth, mut begin) = (0_i32, 0);
    // For each open brace, by how much it has raised the depth.
    let mut open = Vec::new();
    let mut found = Vec::new();
    for (index, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => {
                let head = &code[begin..index];
                let is_function = opens_function(head);
                if depth == 0 && is_function {
                    let start = begin + (head.len() - head.trim_start().len());
                    let name = head.split('(').next().unwrap_or_default();
                    let name = name.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next();
                    found.push(function(&code, name.unwrap_or_default().to_owned(), start, index));
                }
                let raises = i32::from(depth > 0 || is_function || !opens_scope(head));
                open.push(raises);
                depth += raises;
                if raises == 0 {
                    begin = index + 1;
                }
            }
            b'}' => {
                depth -= open.pop().unwrap_or_default();
                begin = index + 1;
            }
            b';' if depth == 0 => begin = index + 1,
            b':' if depth == 0 && is_access(&code[begin..index]) => begin = index + 1,
            b'\n' if code[begin..index].trim_start().starts_with('#') => begin = index + 1,
            _ => {}
        }
    }
    found
}

/// Whether what stands before a colon says who may use the members of a class that follow.
fn is_access(head: &str) -> bool {
    ["public", "protected", "private"].contains(&head.trim())
}

/// Whether what stands before a brace is the head of a function.
fn opens_function(head: &str) -> bool {
    let head = head.trim_end();
    [")", ") const", ") noexcept", ") const noexcept"].iter().any(|end| head.ends_with(end))
}

/// Whether what stands before a brace is the head of a namespace or class, with members.
fn opens_scope(head: &str) -> bool {
    let mut words = head.split_whitespace();
    !head.contains('=') && words.any(|word| ["namespace", "class", "struct"].contains(&word))
}

/// The procedures of a Fortran source, those of interfaces too.
pub fn fortran_functions(text: &str) -> Vec<Function> {
    let mut open: Vec<(String, usize)> = Vec::new();
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split(['!', '\'']).next().unwrap_or_default();
        let words: Vec<&str> = code.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
        let at = words.iter().position(|word| ["subroutine", "function"].contains(word));
        let Some(at) = at else { continue };
        if words.iter().take(at).any(|word| *word == "end") {
            let (name, line) = open.pop().unwrap_or_default();
            found.push(Function { name, line, lines: number + 1 - line });
        } else {
            let name = words[at + 1..].iter().find(|word| !word.is_empty());
            open.push((name.copied().unwrap_or_default().to_owned(), number));
        }
    }
    found
}

/// Lines (from 1) with an unsafe block or implementation that no `SAFETY:` comment directly before or
/// on it explains, and unsafe functions without a `# Safety` section.
pub fn unexplained_unsafe(text: &str) -> Vec<usize> {
    let code = code_only(text);
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let sound = if line.contains("unsafe {") || line.contains("unsafe impl") {
            explained(&lines, index, "SAFETY:")
        } else if line.contains("unsafe fn ") && !line.contains("extern") {
            explained(&lines, index, "# Safety") || explained(&lines, index, "SAFETY:")
        } else {
            true
        };
        if !sound {
            found.push(index + 1);
        }
    }
    found
}

/// Whether `word` is on line `index` or in what belongs to it above: comments, attributes and the
/// beginning of the same statement.
fn explained(lines: &[&str], index: usize, word: &str) -> bool {
    lines[index].contains(word)
        || lines[..index]
            .iter()
            .rev()
            .take(30)
            .map_while(|line| {
                let line = line.trim();
                let ends = line.is_empty() || line.ends_with(['}', ';']);
                (line.starts_with("//") || line.starts_with("#[") || !ends).then_some(line)
            })
            .any(|line| line.contains(word))
}
