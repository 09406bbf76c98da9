//! Temporary.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::all)]
#[path = "/tmp/hm/sb/callgrind.rs"]
mod callgrind;
#[path = "/tmp/hm/sb/keys.rs"]
mod keys;
#[path = "/tmp/hm/sb/random.rs"]
mod random;
#[path = "/tmp/hm/sb/report.rs"]
mod report;
#[path = "/tmp/hm/sb/shapes.rs"]
mod shapes;
#[path = "/tmp/hm/sb/store.rs"]
mod store;
mod tempfile {
    pub struct Dir(std::path::PathBuf);
    impl Dir {
        pub fn path(&self) -> &std::path::Path {
            &self.0
        }
    }
    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
    pub fn tempdir() -> std::io::Result<Dir> {
        let p = std::env::temp_dir().join(format!("hmshapes-{}", std::process::id()));
        std::fs::create_dir_all(&p)?;
        Ok(Dir(p))
    }
}
type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;
#[derive(clap::Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}
#[derive(clap::Subcommand)]
enum Command {
    Shapes(shapes::Args),
}
fn main() -> Result<()> {
    let Command::Shapes(args) = <Cli as clap::Parser>::parse().command;
    shapes::run(&args)
}
