//! Checks the dependency in the README. Its code is a documentation test.

const README: &str = include_str!("../README.md");

#[test]
fn the_dependency_can_be_resolved() {
    // The crate is not in a registry, so a version alone is not found.
    let source = concat!("sievedb-filter = { git = \"", env!("CARGO_PKG_REPOSITORY"), "\" }");
    assert!(README.contains(source), "the README lacks: {source}");
}

#[test]
fn every_argument_is_explained_where_it_is_given() {
    for name in ["seed", "salt", "owner"] {
        let is_explained =
            |line: &str| line.trim_start().starts_with(&format!("let {name} = ")) && line.contains(" // ");
        assert!(README.lines().any(is_explained), "{name}");
    }
    assert!(README.contains("Header::decode(&block)?.key_count"));
}
