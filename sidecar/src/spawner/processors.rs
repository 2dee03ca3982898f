//! The environment variables that tell programs how many processors the sandbox may use. Pure but for `here`.

use nix::sched::sched_getaffinity;
use nix::unistd::Pid;

use super::frame::OsBytes;

/// Of programs that count the machine's processors and read no limit: OpenMP, with it OpenBLAS, MKL, torch and `nproc`;
/// Python from 3.13 on; joblib; pytest-xdist.
const COUNTS: [&str; 4] =
    ["OMP_NUM_THREADS", "PYTHON_CPU_COUNT", "LOKY_MAX_CPU_COUNT", "PYTEST_XDIST_AUTO_NUM_WORKERS"];
/// Go reads the limit since 1.25, and never takes less than two for it; programs of an older one get the same.
const GO: (&str, usize) = ("GOMAXPROCS", 2);
const MILLICORES: usize = 1000;

/// Adds them to the image's, for a limit in thousandths of a core and a machine of so many; 0: no limit is known.
pub(super) fn add(environ: &mut Vec<(OsBytes, OsBytes)>, limit_millicores: u32, machine: usize) {
    if limit_millicores == 0 {
        return;
    }
    // A part of a core is one: fewer threads than that would leave some of it unused.
    let limit = usize::try_from(limit_millicores).unwrap_or(usize::MAX).div_ceil(MILLICORES);
    let counts = COUNTS.map(|name| (name, limit.min(machine)));
    let all = counts.into_iter().chain([(GO.0, limit.max(GO.1).min(machine))]);
    // Of two the later one counts: what an image sets stays.
    environ.splice(..0, all.map(|(name, count)| (name.into(), count.to_string().into())));
}

/// How many this process may run on; without a bound where the kernel does not tell.
pub(super) fn here() -> usize {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return usize::MAX };
    (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true)).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(limit_millicores: u32, machine: usize, name: &str) -> Option<String> {
        let mut environ = vec![("LOKY_MAX_CPU_COUNT".into(), b"7".to_vec())];
        add(&mut environ, limit_millicores, machine);
        let found = environ.iter().rfind(|(found, _)| found == name.as_bytes())?;
        Some(String::from_utf8(found.1.clone()).unwrap())
    }

    #[test]
    fn a_limit_is_rounded_up_and_never_more_than_the_machine_has() {
        for (limit_millicores, machine, expected, go) in [
            (2000, 64, "2", "2"),
            (2001, 64, "3", "3"),
            (300, 64, "1", "2"),
            (300, 1, "1", "1"),
            (8000, 2, "2", "2"),
        ] {
            assert_eq!(value(limit_millicores, machine, "OMP_NUM_THREADS").as_deref(), Some(expected));
            assert_eq!(value(limit_millicores, machine, "PYTHON_CPU_COUNT").as_deref(), Some(expected));
            assert_eq!(value(limit_millicores, machine, "GOMAXPROCS").as_deref(), Some(go));
        }
    }

    #[test]
    fn what_the_image_says_stays_and_without_a_limit_nothing_is_said() {
        assert_eq!(value(2000, 64, "LOKY_MAX_CPU_COUNT").as_deref(), Some("7"));
        assert_eq!(value(0, 64, "OMP_NUM_THREADS"), None);
    }

    #[test]
    fn this_machine_has_a_processor() {
        assert!((1..usize::MAX).contains(&here()));
    }
}
