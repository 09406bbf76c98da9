//! Headless Chromium, if it is installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value as Json;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Theme {
    Dark = 0,
    Light = 1,
}

pub(crate) struct Browser(PathBuf);

pub(crate) struct Visit {
    pub(crate) dom: String,
    pub(crate) console: Vec<String>,
    pub(crate) requests: Vec<String>,
}

impl Browser {
    /// Prints a line if it is missing, which fails in continuous integration.
    pub(crate) fn find() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let found = std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
        let found = found.into_iter().find(|file| file.is_file());
        assert!(found.is_some() || std::env::var_os("SIEVEDB_BROWSER").is_none(), "there is no Chromium");
        if found.is_none() {
            println!("skipped: Chromium is not installed");
        }
        found.map(Self)
    }

    fn run(&self, page: &Path, width: u32, theme: Theme, more: &[String]) -> Output {
        let profile = tempfile::tempdir().unwrap();
        let output = Command::new(&self.0)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
            ])
            .args([
                "--disable-component-update",
                "--disable-sync",
                "--disable-extensions",
                "--hide-scrollbars",
            ])
            .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--window-size={width},900"))
            .arg(format!("--blink-settings=preferredColorScheme={}", theme as u8))
            .args(more)
            .arg(format!("file://{}", page.display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    pub(crate) fn visit(&self, page: &Path, width: u32, theme: Theme) -> Visit {
        let folder = tempfile::tempdir().unwrap();
        let net_log = folder.path().join("net.json");
        let more = ["--dump-dom".to_owned(), format!("--log-net-log={}", net_log.display())];
        let output = self.run(page, width, theme, &more);
        let log: Json = serde_json::from_slice(&std::fs::read(net_log).unwrap()).unwrap();
        let addresses =
            log["events"].as_array().unwrap().iter().filter_map(|event| event["params"]["url"].as_str());
        // The browser's own requests, for updates and the time.
        let is_own = |url: &str| {
            let host = url.split('/').nth(2).unwrap_or_default();
            host.ends_with(".google.com") || host.ends_with(".googleapis.com")
        };
        let mut requests: Vec<String> =
            addresses.filter(|url| url.starts_with("http") && !is_own(url)).map(str::to_owned).collect();
        requests.dedup();
        let console = String::from_utf8_lossy(&output.stderr);
        let console = console.lines().filter(|line| line.contains(":CONSOLE:")).map(str::to_owned);
        Visit { console: console.collect(), requests, dom: String::from_utf8(output.stdout).unwrap() }
    }

    pub(crate) fn screenshot(&self, page: &Path, width: u32, theme: Theme) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let picture = folder.path().join("picture.png");
        self.run(page, width, theme, &[format!("--screenshot={}", picture.display())]);
        std::fs::read(picture).unwrap()
    }

    pub(crate) fn after(&self, page: &Path, script: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let copy = copy_with(page, folder.path(), script);
        self.dom(&copy)
    }

    fn dom(&self, page: &Path) -> String {
        String::from_utf8(self.run(page, 1400, Theme::Light, &["--dump-dom".to_owned()]).stdout).unwrap()
    }

    /// The pixels by which a page is wider than a frame of this width.
    pub(crate) fn overflow(&self, page: &Path, width: u32) -> i64 {
        let folder = tempfile::tempdir().unwrap();
        let script = "parent.postMessage([innerWidth, document.documentElement.scrollWidth].join(), '*');";
        copy_with(page, folder.path(), script);
        let frame = folder.path().join("frame.html");
        let text = format!(
            "<!doctype html><title></title><script>onmessage = (event) => {{ document.title = event.data; }};</script>\
             <iframe src=\"copy.html\" style=\"width:{width}px;height:900px;border:0\"></iframe>"
        );
        std::fs::write(&frame, text).unwrap();
        let dom = self.dom(&frame);
        let title = dom.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
        let (window, document) = title.split_once(',').unwrap_or_else(|| panic!("{dom}"));
        assert_eq!(window.parse(), Ok(width), "the frame has the width");
        document.parse::<i64>().unwrap() - i64::from(width)
    }
}

fn copy_with(page: &Path, folder: &Path, script: &str) -> PathBuf {
    let copy = folder.join("copy.html");
    let text = std::fs::read_to_string(page).unwrap().replace("<meta http-equiv=", "<meta name=");
    std::fs::write(&copy, text.replace("</body>", &format!("<script>{script}</script></body>"))).unwrap();
    copy
}
