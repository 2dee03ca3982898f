//! `/proc/PID/limits`: the resource limits that commands inherit.

/// One resource limit; `u64::MAX` stands for unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// `RLIMIT_…` of this kernel.
    pub resource: u32,
    /// The limit in effect.
    pub soft: u64,
    /// The highest value that the soft limit may be set to.
    pub hard: u64,
}

/// `RLIM_INFINITY`.
pub const UNLIMITED: u64 = u64::MAX;

const RESOURCES: [(&str, u32); 16] = [
    ("Max cpu time", libc::RLIMIT_CPU),
    ("Max file size", libc::RLIMIT_FSIZE),
    ("Max data size", libc::RLIMIT_DATA),
    ("Max stack size", libc::RLIMIT_STACK),
    ("Max core file size", libc::RLIMIT_CORE),
    ("Max resident set", libc::RLIMIT_RSS),
    ("Max processes", libc::RLIMIT_NPROC),
    ("Max open files", libc::RLIMIT_NOFILE),
    ("Max locked memory", libc::RLIMIT_MEMLOCK),
    ("Max address space", libc::RLIMIT_AS),
    ("Max file locks", libc::RLIMIT_LOCKS),
    ("Max pending signals", libc::RLIMIT_SIGPENDING),
    ("Max msgqueue size", libc::RLIMIT_MSGQUEUE),
    ("Max nice priority", libc::RLIMIT_NICE),
    ("Max realtime priority", libc::RLIMIT_RTPRIO),
    ("Max realtime timeout", libc::RLIMIT_RTTIME),
];

/// Parses the table; lines of unknown resources are left out.
pub fn parse(text: &str) -> Vec<Limit> {
    text.lines().filter_map(line).collect()
}

fn line(text: &str) -> Option<Limit> {
    let (rest, resource) =
        RESOURCES.iter().find_map(|(name, resource)| Some((text.strip_prefix(name)?, *resource)))?;
    let mut values = rest.split_whitespace();
    Some(Limit { resource, soft: value(values.next()?)?, hard: value(values.next()?)? })
}

fn value(text: &str) -> Option<u64> {
    if text == "unlimited" { Some(UNLIMITED) } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_and_its_heading_left_out() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max cpu time              unlimited            unlimited            seconds\n\
                    Max open files            1024                 20000                files\n\
                    Max nice priority         0                    0\n\
                    Max tea breaks            1                    1                    cups\n";
        let expected = [
            Limit { resource: libc::RLIMIT_CPU, soft: UNLIMITED, hard: UNLIMITED },
            Limit { resource: libc::RLIMIT_NOFILE, soft: 1024, hard: 20000 },
            Limit { resource: libc::RLIMIT_NICE, soft: 0, hard: 0 },
        ];
        assert_eq!(parse(text), expected);
    }

    #[test]
    fn all_sixteen_limits_of_the_own_process_are_known() {
        let text = std::fs::read_to_string("/proc/self/limits").unwrap();
        assert_eq!(parse(&text).len(), RESOURCES.len());
    }
}
