#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sievedb_backup::fuzzing::backup_index(data));
