//! Scrapes the example over TCP as Prometheus does.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use sievedb::{Db, Durability, KeyspaceOptions, Options, TimeSource};
use sievedb_metrics::Reporter;

#[path = "../examples/prometheus.rs"]
mod prometheus;

fn samples(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect(line);
        (name.to_owned(), value.parse().expect(line))
    };
    lines.map(sample).collect()
}

fn fill(db: &Db) {
    for number in 0..2000_u32 {
        db.put(format!("{number:08}"), "value").unwrap();
    }
    db.put_with("z", "", Durability::Synced).unwrap();
    db.compact().unwrap();
    for number in 0..1000_u32 {
        assert!(!db.contains(format!("{number:08}x")).unwrap());
        assert!(db.contains(format!("{number:08}")).unwrap());
    }
    assert_eq!(db.iter().count(), 2001);
}

#[test]
fn a_scrape_has_what_the_statistics_have_and_every_metric_of_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().latency_histograms(true).background_threads(0).memory_budget(16 << 20);
    let db = options.open(dir.path()).unwrap();
    db.open_keyspace("a \"quoted\" name").unwrap();
    let hour = Duration::from_secs(3600);
    let expires = KeyspaceOptions::new().ttl(hour).ttl_buckets(4).time_source(TimeSource::Caller);
    let seen = db.keyspace("seen", expires).unwrap();
    for quarter in 0..7 {
        seen.advance_time(hour * 100 + hour / 4 * quarter).unwrap();
        seen.put("id", quarter.to_string()).unwrap();
        seen.flush().unwrap();
    }
    fill(&db);
    let stats = db.stats();

    let recorder = prometheus::exporter().unwrap().build_recorder();
    let handle = recorder.handle();
    let mut reporter = metrics::with_local_recorder(&recorder, || Reporter::with_labels([("store", "test")]));
    // Twice: totals are set, not added.
    (0..2).for_each(|_| metrics::with_local_recorder(&recorder, || reporter.report(&stats)));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || prometheus::serve(&listener, &handle));
    let scrape = |path: &str| {
        let mut connection = TcpStream::connect(address).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(scrape("/").starts_with("HTTP/1.1 404 "));
    let answer = scrape("/metrics");
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let found = samples(page);
    let value = |name: &str| *found.get(name).unwrap_or_else(|| panic!("{name} is not in\n{page}"));

    let expiry = stats.keyspace("seen").unwrap().expiry.as_ref().unwrap();
    let of_seen = |name: &str| value(&format!("sievedb_{name}{{store=\"test\",keyspace=\"seen\"}}"));
    assert!(expiry.horizon > 0 && expiry.buckets.len() > 3, "{expiry:?}");
    assert_eq!(of_seen("horizon"), expiry.horizon as f64);
    assert_eq!(of_seen("buckets"), expiry.buckets.len() as f64);
    assert_eq!(of_seen("next_expiry_timestamp_seconds"), expiry.next_expiry.unwrap() as f64 / 1000.0);

    let total = stats.keyspaces[0].total();
    let probes = |result: &str| -> f64 {
        (0..7)
            .map(|level| {
                value(&format!(
                    "sievedb_filter_probes_total{{store=\"test\",keyspace=\"default\",level=\"{level}\",result=\"{result}\"}}"
                ))
            })
            .sum()
    };
    assert_eq!(probes("absent"), total.filter.negatives as f64);
    assert_eq!(probes("false_positive"), total.filter.false_positives as f64);
    assert_eq!(probes("true_positive"), 1000.0);
    assert_eq!(probes("absent") + probes("false_positive"), 1000.0);
    assert_eq!(value("sievedb_batches_total{store=\"test\"}"), 2008.0);
    assert_eq!(value("sievedb_memory_budget_bytes{store=\"test\"}"), f64::from(16 << 20));
    assert_eq!(value("sievedb_calls_total{store=\"test\",call=\"get\"}"), 2000.0);
    let latencies = stats.latencies.unwrap();
    for (call, latency) in latencies.by_name() {
        assert_eq!(
            value(&format!("sievedb_calls_total{{store=\"test\",call=\"{call}\"}}")),
            latency.count as f64
        );
        if latency.timed > 0 {
            let timed = value(&format!("sievedb_call_seconds_count{{store=\"test\",call=\"{call}\"}}"));
            assert_eq!(timed, latency.timed as f64, "{call}");
            let sum = value(&format!("sievedb_call_seconds_sum{{store=\"test\",call=\"{call}\"}}"));
            let exact = latency.total.as_secs_f64();
            assert!((exact..=exact * 1.07).contains(&(sum * (1.0 + 1e-9))), "{call}: {sum}, not {exact}");
        }
    }
    let quoted = r#"sievedb_memtable_bytes{store="test",keyspace="a \"quoted\" name"}"#;
    assert_eq!(value(quoted), 0.0);

    // The README and the page name the same metrics.
    let readme = include_str!("../README.md");
    let named: Vec<_> =
        readme.lines().filter_map(|line| line.strip_prefix("| `sievedb_")?.split_once('`')).collect();
    assert!(named.len() > 30);
    for (name, _) in &named {
        assert!(
            page.contains(&format!("\n# TYPE sievedb_{name} "))
                || page.starts_with(&format!("# HELP sievedb_{name} ")),
            "{name}"
        );
    }
    let types = page.lines().filter(|line| line.starts_with("# TYPE ")).count();
    assert_eq!(types, named.len(), "{page}");
}

#[test]
fn counters_go_on_after_a_store_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = prometheus::exporter().unwrap().build_recorder();
    let mut reporter = metrics::with_local_recorder(&recorder, Reporter::new);
    let mut report = |db: &Db| {
        metrics::with_local_recorder(&recorder, || reporter.report(&db.stats()));
        samples(&recorder.handle().render())["sievedb_batches_total"]
    };
    let open = || Options::new().background_threads(0).memory_budget(16 << 20).open(dir.path()).unwrap();
    let put = |db: &Db, times: u32| (0..times).for_each(|n| db.put(n.to_string(), "").unwrap());
    let db = open();
    put(&db, 10);
    assert_eq!(report(&db), 10.0);
    put(&db, 5);
    assert_eq!([report(&db), report(&db)], [15.0; 2]);
    db.close().unwrap();
    let db = open();
    assert_eq!(report(&db), 15.0);
    put(&db, 3);
    assert_eq!(report(&db), 18.0);
}
