//! `report`: has the numbers of `stats --json`, and opens in a browser without requests or errors.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value as Json;

use crate::browser::{Browser, Theme};
use crate::dump::dump;
use crate::tool::{Conversation, Outcome, TempStore, run, run_with, temp_store};

/// Would be an element and a script without escaping.
const HOSTILE: &str = "<img src=http://example.org/a.png onerror=alert(1)></script><!--";

fn filled_store() -> TempStore {
    let store = temp_store();
    let lines: String = (0..3000).map(|n| format!("key{n:05}\tthe value of number {n}\n")).collect();
    store.load(lines.as_bytes());
    run_with(&["load", &store.db, "-", "--keyspace", "<b>users"], format!("{HOSTILE}\tx\n").as_bytes())
        .creates("<b>users");
    run(&["compact", &store.db]).ok();
    run(&["compact", &store.db, "--keyspace", "<b>users"]).ok();
    run(&["put", &store.db, "logged", "not in a table"]).ok();
    run(&["delete", &store.db, "key00007"]).ok();
    store
}

fn page_path(store: &TempStore) -> String {
    store.folder.path().join("report.html").to_str().unwrap().to_owned()
}

fn write(store: &TempStore, more: &[&str]) -> (Outcome, String) {
    let path = page_path(store);
    let outcome = run(&[&["report", &store.db, "-o", &path][..], more].concat());
    (outcome, std::fs::read_to_string(path).unwrap())
}

fn figures(page: &str) -> BTreeMap<String, f64> {
    let figure = |part: &str| {
        let (stat, rest) = part.split_once('"')?;
        let value = rest.split_once("data-value=\"")?.1.split_once('"')?.0;
        Some((stat.to_owned(), value.parse().ok()?))
    };
    let parts = page.split("data-stat=\"").skip(1);
    parts.map(|part| figure(part).unwrap_or_else(|| panic!("{}", &part[..60.min(part.len())]))).collect()
}

fn in_stats(stats: &Json, name: &str) -> f64 {
    let parts: Vec<&str> = name.split('.').collect();
    let number = match parts[..] {
        [field] => &stats[field],
        [keyspace, level, field] => {
            let keyspace = &stats["keyspaces"][keyspace[1..].parse::<usize>().unwrap()];
            let is_wanted = |found: &&Json| found["level"].as_u64() == level[1..].parse().ok();
            let levels = keyspace["levels"].as_array().unwrap();
            if level == "total" {
                &keyspace["total"][field]
            } else {
                &levels.iter().find(is_wanted).unwrap()[field]
            }
        }
        _ => panic!("{name}"),
    };
    number.as_f64().unwrap_or_else(|| panic!("{name} is {number}"))
}

#[test]
fn the_page_has_the_numbers_of_stats() {
    let store = filled_store();
    let (outcome, page) = write(&store, &[]);
    assert!(outcome.ok().contains(" KiB in "));
    let stats: Json = serde_json::from_str(&run(&["stats", &store.db, "--json"]).ok()).unwrap();
    let figures = figures(&page);
    assert!(figures.len() > 30, "{figures:?}");
    for (name, &value) in &figures {
        let expected = in_stats(&stats, name);
        assert!(
            (value - expected).abs() <= 1e-9 * expected.abs(),
            "{name}: {value}, and {expected} in {stats}"
        );
    }
    for name in
        ["disk_bytes", "k0.total.keys", "k0.total.predicted_rate", "k1.total.entries", "k0.total.tombstones"]
    {
        assert!(figures.contains_key(name), "{name}: {figures:?}");
    }
    assert!(page.contains("3,003 entries in "), "those in memory count");
}

#[test]
fn a_browser_shows_the_page_without_a_request_an_error_or_a_second_scroll_bar() {
    let Some(browser) = Browser::find() else { return };
    let store = filled_store();
    let history = store.folder.path().join("history");
    std::fs::write(&history, run(&["stats", &store.db, "--json"]).ok().repeat(3)).unwrap();
    write(&store, &["--verify", "--history", history.to_str().unwrap()]).0.ok();
    let path = page_path(&store);
    for (width, theme) in [(1400, Theme::Light), (390, Theme::Dark)] {
        let visit = browser.visit(Path::new(&path), width, theme);
        assert_eq!(visit.console, Vec::<String>::new(), "{width}");
        assert_eq!(visit.requests, Vec::<String>::new(), "{width}");
        assert!(visit.dom.contains("3,003 entries in ") && visit.dom.contains("key00000"), "{}", visit.dom);
        assert!(browser.overflow(Path::new(&path), width) <= 0, "{width}: the page is wider than the window");
        let [light, dark] =
            [Theme::Light, Theme::Dark].map(|theme| browser.screenshot(Path::new(&path), width, theme));
        assert!(
            light.len() > 20_000 && dark.len() > 20_000 && light != dark,
            "{width}: there is a dark theme"
        );
    }
    let images = browser.after(Path::new(&path), "document.title = 'images: ' + document.images.length;");
    assert!(images.contains("<title>images: 0</title>"), "a key is text");
}

#[test]
fn a_request_of_a_page_and_an_error_of_its_script_are_noticed() {
    let Some(browser) = Browser::find() else { return };
    let store = filled_store();
    let page = write(&store, &[]).1;
    let path = store.folder.path().join("changed.html");
    let policy = page.split("<meta http-equiv=").nth(1).unwrap().split('>').next().unwrap().to_owned();
    let image = "<img src=\"http://example.org/a.png\"></body>";
    std::fs::write(&path, page.replace("</body>", image)).unwrap();
    let visit = browser.visit(&path, 1400, Theme::Light);
    assert!(
        visit.requests.is_empty() && visit.console[0].contains("Content Security Policy"),
        "{:?}",
        visit.console
    );
    std::fs::write(&path, page.replace("</body>", image).replace(&policy, "x")).unwrap();
    let visit = browser.visit(&path, 1400, Theme::Light);
    assert_eq!(visit.requests, ["http://example.org/a.png"]);
    std::fs::write(&path, page.replace("'use strict';", "'use strict'; null.x;")).unwrap();
    assert!(!browser.visit(&path, 1400, Theme::Light).console.is_empty(), "a changed script does not run");
    std::fs::write(&path, page.replace("<body>", "<body><p style=\"width:2000px\">x")).unwrap();
    assert!(browser.overflow(&path, 390) > 0);
}

#[test]
fn the_hover_of_a_table_shows_its_record() {
    let Some(browser) = Browser::find() else { return };
    let store = filled_store();
    write(&store, &[]).0.ok();
    let script = "const cell = document.querySelector('svg.run rect');\
                  cell.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: 300, clientY: 300 }));";
    let dom = browser.after(Path::new(&page_path(&store)), script);
    let tip = dom.split("id=\"tip\"").nth(1).unwrap().split("</aside>").next().unwrap();
    for shown in ["Table 00", "key00000", "key02999", "bits per key", "filter in memory", "no other"] {
        assert!(tip.contains(shown), "{shown}: {tip}");
    }
}

#[test]
fn an_empty_store_and_one_in_use_give_a_page() {
    let store = temp_store();
    run(&["put", &store.db, "k", "v"]).ok();
    run(&["delete", &store.db, "k"]).ok();
    let (outcome, page) = write(&store, &[]);
    outcome.ok();
    assert!(page.contains("Nothing is in tables."), "{page}");

    let store = filled_store();
    let mut uniq = Conversation::begin(&["uniq", &store.db, "-"]);
    uniq.send("a line\n");
    assert_eq!(uniq.receive(), "a line");
    let (outcome, page) = write(&store, &[]);
    assert!(outcome.code == Some(0) && outcome.stderr.contains("the store is in use"), "{outcome:?}");
    assert!(page.contains("3,004 entries in ") && page.contains("id=\"memory\""), "{page}");
    uniq.end();
}

#[test]
fn a_damaged_store_gives_a_page_with_the_damage_and_exit_code_3() {
    let store = filled_store();
    let manifest =
        store.paths_of("").into_iter().find(|path| path.to_str().unwrap().contains("MANIFEST")).unwrap();
    let table = store.paths_of(".sst").remove(0);
    let flip = |path: &Path, offset: usize| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[offset] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    flip(&table, 100);
    let (outcome, page) = write(&store, &[]);
    outcome.ok();
    assert!(!page.contains("id=\"damage\""), "no block was read");
    let (outcome, page) = write(&store, &["--verify"]);
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    assert!(
        page.contains("id=\"damage\"") && page.contains("of damage w") && page.contains("sievedb verify "),
        "{page}"
    );
    flip(&manifest, 70);
    let (outcome, page) = write(&store, &[]);
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    assert!(page.contains("The store cannot be opened: ") && page.contains("id=\"damage\""), "{page}");

    let missing = run(&["report", "no such store", "-o", &page_path(&store)]);
    assert_eq!((missing.code, missing.stdout.len()), (Some(3), 0));
}

#[test]
fn a_filter_that_cannot_be_used_is_listed_with_exit_code_3() {
    let store = filled_store();
    run(&["refilter", &store.db, "--kind", "blocked-bloom"]).ok();
    let filter = store.paths_of(".filter").remove(0);
    let mut bytes = std::fs::read(&filter).unwrap();
    bytes[4096 + 20] ^= 1;
    std::fs::write(&filter, bytes).unwrap();
    for arguments in [&[][..], &["--verify"]] {
        let (outcome, page) = write(&store, arguments);
        assert_eq!(outcome.code, Some(3), "{outcome:?}");
        assert!(outcome.stderr.contains("is damaged: the page lists how"), "{outcome:?}");
        assert!(page.contains("id=\"damage\"") && page.contains("of damage w"), "{page}");
    }
}

#[test]
fn a_history_has_observed_rates_and_a_wrong_one_is_refused() {
    let store = filled_store();
    let path = store.folder.path().join("history");
    let line = r#"{"keyspaces":[{"name":"default","levels":[{},{},{},{},{},{},{"filter":{"negatives":990,"false_positives":10}}]}]}"#;
    let stats: Json = serde_json::from_str(&run(&["stats", &store.db, "--json"]).ok()).unwrap();
    let level = stats["keyspaces"][0]["levels"][0]["level"].as_u64().unwrap();
    let line = line.replacen("{},", "", 6 - level as usize);
    std::fs::write(&path, line).unwrap();
    let (outcome, page) = write(&store, &["--history", path.to_str().unwrap()]);
    outcome.ok();
    assert!(page.contains("1.00 %<small>of 1,000 probes</small>"), "{page}");
    std::fs::write(&path, "{}\n").unwrap();
    let refused = run(&["report", &store.db, "-o", &page_path(&store), "--history", path.to_str().unwrap()]);
    assert!(refused.fails(2).contains("line 1 has no list of keyspaces"));
}

#[test]
fn the_dump_makes_a_page_of_a_table_a_filter_and_a_sketch() {
    let store = filled_store();
    let page = page_path(&store);
    let read = || std::fs::read_to_string(&page).unwrap();
    let digest = store.folder.path().join("digest");
    run(&["digest", &store.db, "-o", digest.to_str().unwrap()]);
    run(&["refilter", &store.db, "--kind", "blocked-bloom"]).ok();
    for (path, words) in [
        (
            store.paths_of(".sst").remove(0),
            ["Table, ", "this filter", "</i>data ", "Everything in it is intact."],
        ),
        (
            store.paths_of(".filter").remove(0),
            ["Filter file, ", "this filter", "filter", "Everything in it is intact."],
        ),
        (digest, ["Sketch: digest, ", "predicted rate", "keys", "Everything in it is intact."]),
    ] {
        dump(&["report", path.to_str().unwrap(), "-o", &page]).ok();
        words.into_iter().for_each(|word| assert!(read().contains(word), "{word}: {}", read()));
        if let Some(browser) = Browser::find() {
            let visit = browser.visit(Path::new(&page), 390, Theme::Dark);
            assert!(
                visit.console.is_empty() && visit.requests.is_empty(),
                "{:?} {:?}",
                visit.console,
                visit.requests
            );
            assert!(browser.overflow(Path::new(&page), 390) <= 0, "{}", path.display());
        }
    }
    let damaged = store.paths_of(".sst").remove(0);
    let mut bytes = std::fs::read(&damaged).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let outcome = dump(&["report", damaged.to_str().unwrap(), "-o", &page]);
    assert!(outcome.code == Some(3) && read().contains("id=\"damage\""), "{outcome:?}");
    assert_eq!(dump(&["report", "Cargo.toml", "-o", &page]).code, Some(3));
}

#[test]
fn watched_statistics_are_drawn_again_while_another_program_writes() {
    let store = filled_store();
    let mut uniq = Conversation::begin(&["uniq", &store.db, "-"]);
    uniq.send("a line\n");
    assert_eq!(uniq.receive(), "a line");
    let watch = Conversation::begin(&["stats", &store.db, "--watch", "0.1"]);
    let mut frames = 0;
    while frames < 3 {
        let line = watch.receive();
        if line.starts_with("entries ") {
            frames += 1;
            assert!(line.contains("3,004  ") && line.ends_with(&"█".repeat(frames)), "{line}");
        }
    }
    uniq.send("another line\n");
    assert_eq!(uniq.receive(), "another line");
    while !watch.receive().contains("3,005  ") {}
    let writes = watch.receive();
    assert!(writes.starts_with("writes  ") && writes.ends_with('█'), "{writes}");
    drop(watch);
    uniq.end();
    let missing = run(&["stats", &store.db, "--watch", "1", "--keyspace", "none"]);
    assert!(missing.fails(3).contains("there is no keyspace none"));
    run(&["stats", &store.db, "--watch", "0"]).fails(2);
}
