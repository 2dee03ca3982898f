//! The fields of `/proc/PID/status` that commands inherit.

/// User, groups and privileges of the target's process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// File mode creation mask.
    pub umask: u32,
    /// Inheritable capabilities, one bit each.
    pub inheritable: u64,
    /// Permitted capabilities.
    pub permitted: u64,
    /// Capability bounding set.
    pub bounding: u64,
    /// Whether exec cannot grant privileges.
    pub no_new_privs: bool,
}

/// Parses the text; `None` when a required line is missing or malformed.
pub fn parse(text: &str) -> Option<Status> {
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let effective = |name: &str| field(name)?.split_whitespace().nth(1)?.parse().ok();
    let capabilities = |name: &str| u64::from_str_radix(field(name)?, 16).ok();
    Some(Status {
        uid: effective("Uid")?,
        gid: effective("Gid")?,
        groups: field("Groups")?.split_whitespace().map(|group| group.parse().ok()).collect::<Option<_>>()?,
        // Some kernels that are not Linux itself omit it; then the usual mask.
        umask: field("Umask").map_or(Some(0o022), |mask| u32::from_str_radix(mask, 8).ok())?,
        inheritable: capabilities("CapInh")?,
        permitted: capabilities("CapPrm")?,
        bounding: capabilities("CapBnd")?,
        no_new_privs: field("NoNewPrivs").is_some_and(|value| value == "1"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\ttarget\nUmask:\t0027\nUid:\t0\t1000\t0\t0\nGid:\t0\t100\t0\t0\nGroups:\t4 27 \n\
        CapInh:\t0000000000000000\nCapPrm:\t0000000000000003\nCapBnd:\t00000000a80425fb\nNoNewPrivs:\t1\n";

    #[test]
    fn all_fields_are_read() {
        let expected = Status {
            uid: 1000,
            gid: 100,
            groups: vec![4, 27],
            umask: 0o027,
            inheritable: 0,
            permitted: 3,
            bounding: 0xa804_25fb,
            no_new_privs: true,
        };
        assert_eq!(parse(TEXT), Some(expected));
    }

    #[test]
    fn a_kernel_without_umask_gets_the_usual_one_and_one_without_capabilities_is_refused() {
        assert_eq!(parse(&TEXT.replace("Umask:\t0027\n", "")).unwrap().umask, 0o022);
        assert_eq!(parse(&TEXT.replace("CapBnd", "Cap")), None);
    }
}
