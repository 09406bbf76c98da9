//! The command `sievedb-dump`; see `sievedb_cli::dump`.

fn main() -> std::process::ExitCode {
    sievedb_cli::dump::main()
}
