use std::path::Path;

#[test]
fn every_page_of_the_guide_is_in_its_index_and_in_the_readme() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide");
    let index = include_str!("../guide/mod.rs");
    let readme = include_str!("../../README.md");
    let mut pages = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(index.contains(&format!("| [`{name}`] |")), "{name} is not in src/guide/mod.rs");
        assert!(readme.contains(&format!("(src/guide/{name}.md)")), "{name} is not in README.md");
        pages += 1;
    }
    assert!(pages > 0);
}
