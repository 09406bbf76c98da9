#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sievedb_sketches::fuzzing::difference_size(data));
