//! Fuzz targets: the decoders that read what user code, clients and images send. `setup/fuzz.sh` builds and runs them;
//! docs/inside/tests.md says what each one checks.

use std::path::Path;

/// Where a target leaves its seeds before it reads its corpus.
pub const FOLDER: &str = "ROLLBOX_FUZZ_SEEDS";

/// Writes seeds to the folder that the environment names, if it names one.
///
/// # Panics
/// The folder cannot be written to.
pub fn plant(seeds: &[&[u8]]) {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(Path::new(&folder).join(format!("seed-{number}")), seed).expect("a folder for seeds");
    }
}

/// Declares a program's target: its seeds, and the function that panics for bytes that break what it promises.
#[macro_export]
macro_rules! target {
    ($seeds:expr, $check:expr) => {
        libfuzzer_sys::fuzz_target!(init: $crate::plant(&$seeds), |bytes: &[u8]| {
            $check(bytes);
        });
    };
}
