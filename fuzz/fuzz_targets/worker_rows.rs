#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| everfresh_fuzzed::worker_rows(bytes));
