//! Every document of the repository: links, contents, blocks of code, names, and the generated reference.

use kumi_docs::check::{self, Problem, blocks, compile, environment, links, names};
use kumi_docs::{COMPILED, command, read, reference, region, repository, simulations};
use kumi_sim::figures::ReferenceTable;
use std::path::Path;

#[track_caller]
fn none(problems: &[Problem]) {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} problems:\n{}", lines.len(), lines.join("\n"));
}

fn pages() -> Vec<kumi_docs::markdown::Page> {
    let pages = check::pages(repository()).expect("the documents can be read");
    assert!(pages.len() > 20, "only {} documents were found", pages.len());
    pages
}

#[test]
fn links_lead_somewhere() {
    none(&links::broken(&pages(), &|path| repository().join(path).exists()));
}

#[test]
fn the_book_has_every_page() {
    none(&links::contents(&pages()));
}

#[test]
fn blocks_of_code_are_right() {
    none(&blocks::wrong(&pages(), &command(), COMPILED, repository()));
}

#[test]
fn programs_compile() {
    let folder = tempfile::tempdir().expect("a folder");
    // `make test` has built the modules of Fortran before.
    let exe = std::env::current_exe().expect("a test knows where it is");
    let built = exe.ancestors().nth(2).filter(|built| compile::has_modules(built));
    none(&compile::wrong(&pages(), repository(), built.unwrap_or(folder.path())));
}

#[test]
fn names_in_the_text_exist() {
    // The changelog also tells of what is gone.
    let pages: Vec<_> = pages().into_iter().filter(|page| page.path != "CHANGELOG.md").collect();
    let mut problems = names::paths(&pages, repository());
    problems.extend(names::commands(&pages, &command()));
    // Other folders have Makefiles of their own.
    let pages: Vec<_> = pages
        .into_iter()
        .filter(|page| page.path.starts_with("docs/") || !page.path.contains('/'))
        .collect();
    problems.extend(names::targets(&pages, &read(repository(), "Makefile").expect("the Makefile")));
    none(&problems);
}

#[test]
fn generated_pages_are_those_of_this_code() {
    for (page, expected) in reference(repository()).expect("the reference can be made") {
        let present = read(repository(), page).expect("the page");
        let differing = present.lines().zip(expected.lines()).find(|(a, b)| a != b);
        assert!(
            present == expected,
            "{page} is out of date, run `make reference`; first difference: {differing:?}"
        );
    }
}

/// The region of a page is this, in every digit.
#[track_caller]
fn up_to_date(page: &str, name: &str, content: &str) {
    let present = read(repository(), page).expect("the page");
    let expected = region::replace(&present, name, content);
    let expected = expected.unwrap_or_else(|| panic!("{page} has no region `{name}`"));
    let differing = present.lines().zip(expected.lines()).find(|(a, b)| a != b);
    assert!(
        present == expected,
        "`{name}` of {page} is out of date, run `make simulations`; first difference: {differing:?}"
    );
}

/// Those that take seconds. The others are made by `make simulations` only.
#[test]
fn quick_simulated_tables_are_those_of_this_code() {
    let quick: Vec<_> = ReferenceTable::ALL.into_iter().filter(|table| table.is_quick()).collect();
    assert_eq!(quick, [ReferenceTable::ListPeaks, ReferenceTable::Lists]);
    for table in quick {
        let content = simulations::reference_table(table).expect("it can be simulated");
        up_to_date(simulations::CHECKS, table.name(), &content);
    }
}

#[test]
fn every_simulated_table_has_a_region() {
    let page = read(repository(), simulations::CHECKS).expect("the page");
    for table in ReferenceTable::ALL {
        assert!(region::replace(&page, table.name(), "").is_some(), "{}", table.name());
    }
}

#[test]
fn the_table_of_the_trace_is_that_of_this_code() {
    let folder = std::env::var_os("KUMI_TRACES").unwrap_or_default();
    match simulations::trace(Path::new(&folder)) {
        Ok(trace) => {
            let content = simulations::trace_table(&trace).expect("it can be simulated");
            up_to_date(simulations::SCHEDULING, simulations::TRACE_REGION, &content);
        }
        Err(missing) => {
            let test = "the_table_of_the_trace_is_that_of_this_code";
            kumi_skip::impossible(test, &missing.to_string());
        }
    }
}

#[test]
fn environment_variables_are_documented() {
    let page = read(repository(), "docs/reference/configuration.md").expect("the page");
    let mut named = environment::named(
        repository(),
        &["core", "runtime", "bindings", "tools/kumi", "tools/sim"],
    )
    .expect("the sources");
    // Builds read them, programs do not.
    for built in ["KUMI_COMMIT", "KUMI_LIBFABRIC_INCLUDE"] {
        named.remove(built);
    }
    let documented = environment::documented(&page);
    let missing: Vec<_> = named.difference(&documented).collect();
    let stale: Vec<_> = documented.difference(&named).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "missing: {missing:?}, not in the code: {stale:?}"
    );
}
