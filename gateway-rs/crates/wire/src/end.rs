use crate::agent::End;

/// The name of a command's end in the API and in metrics; `None` when the sidecar did not set one.
pub fn end_name(end: End) -> Option<&'static str> {
    match end {
        End::Unspecified => None,
        End::Exited => Some("exited"),
        End::Signalled => Some("signalled"),
        End::Deadline => Some("deadline"),
        End::OomKilled => Some("oom_killed"),
        End::Cancelled => Some("cancelled"),
    }
}
