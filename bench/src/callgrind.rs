//! Instructions as counted by callgrind, all threads together.
//!
//! The program runs itself under valgrind with little work and with more. The costs of starting, of the preparations
//! and of ending are the same in both runs, so the difference is that of the further work. Valgrind offers AVX2 but
//! not AVX-512, so it counts the AVX2 kernels.

use std::process::Command;

/// The instructions of one unit of work: the difference of two runs of this program with `args` and one more
/// argument, `few` and `many` units of work. `None` without valgrind, or if a run fails.
pub(crate) fn each(args: &[&str], few: u64, many: u64) -> Option<f64> {
    Some((collected(args, many)? - collected(args, few)?) / (many - few) as f64)
}

fn collected(args: &[&str], times: u64) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(args)
        .arg(times.to_string())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        eprintln!("{text}");
        return None;
    }
    parse(&text)
}

fn parse(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.split_once("Collected :"))?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_among_what_valgrind_prints() {
        let text =
            "==7== Events    : Ir\n==7== Collected : 3318144\n==7== \n==7== I   refs:      3,318,144\n";
        assert_eq!(parse(text), Some(3_318_144.0));
        assert_eq!(parse("==7== Events    : Ir\n"), None);
    }
}
